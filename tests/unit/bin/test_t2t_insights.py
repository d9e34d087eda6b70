"""Tests what t2t-insights refuses before it loads a model."""

from __future__ import annotations

import socket

import programs
from models import write_checkpoint
from t2t_repro.checkpoints.model_folder import ModelFolder


def test_a_port_in_use_is_named(folder: ModelFolder) -> None:
    write_checkpoint(folder.path, 1, {}, folder.vocabulary.fingerprint)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = programs.error("insights", f"--output_dir={folder.path}", f"--port={port}")
    assert line.startswith(f"--host=127.0.0.1 --port={port}: Address already in use")
