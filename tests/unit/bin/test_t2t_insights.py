"""Tests what t2t-insights refuses before it loads a model."""

from __future__ import annotations

import socket
import sys

import pytest

import programs
from models import write_checkpoint
from t2t_repro.checkpoints.model_folder import ModelFolder


def test_a_port_in_use_and_missing_packages_are_named(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(folder.path, 1, {}, folder.vocabulary.fingerprint)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = programs.error("insights", f"--output_dir={folder.path}", f"--port={port}")
    assert line.startswith(f"--host=127.0.0.1 --port={port}: Address already in use")
    monkeypatch.setitem(sys.modules, "waitress", None)
    line = programs.error("insights", f"--output_dir={folder.path}")
    assert line == 'Flask or waitress is not installed; pip install "t2t_repro[insights]"'
