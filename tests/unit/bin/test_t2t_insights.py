"""Tests what t2t-insights refuses before it loads a model."""

from __future__ import annotations

import socket
import sys

import pytest

import programs
from models import write_checkpoint
from t2t_repro.checkpoints.model_folder import ModelFolder


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "--output_dir is required"),
        (["--output_dir=a,b"], "--output_dir=a,b: this program takes only one model; give one folder"),
        (["--output_dir=nowhere"], "nowhere: no hparams.json there"),
        (["--output_dir=M", "--compare_with=a,b"], "--compare_with=a,b: this program takes only one model"),
        (["--output_dir=M", "--compare_with=m", "--compare_checkpoint_path=m"], "m: no hparams.json there"),
        (["--output_dir=M", "--compare_with=nowhere"], "nowhere: no hparams.json there"),
        (["--output_dir=M", "--checkpoint_path=M/no"], "--checkpoint_path=M/no: no M/no.index"),
        (["--output_dir=M", "--compare_checkpoint_path=no"], "--compare_checkpoint_path=no: no no.index"),
        (["--output_dir=M", "--port=65536"], "--port=65536"),
        (["--output_dir=M", "--port=x"], "--port=x"),
        (["--output_dir=M", "--host="], "--host is required"),
        (["--output_dir=M", "--host=a..b"], "--host=a..b: no such host"),
    ],
    ids=str,
)
def test_mistakes_in_flags(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch, flags: list[str], words: str) -> None:
    write_checkpoint(folder.path, 1, {}, folder.vocabulary.fingerprint)
    (folder.path.parent / "M").symlink_to(folder.path)
    monkeypatch.chdir(folder.path.parent)
    assert words in programs.error("insights", *flags)


def test_a_folder_with_a_comma_in_its_name_is_one_model(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.path.parent / "a,b").symlink_to(folder.path)
    monkeypatch.chdir(folder.path.parent)
    for program in ("insights", "attention"):
        message = programs.error(
            program, "--output_dir=a,b", *(["--source=x", "--out=o"] if program != "insights" else [])
        )
        assert "a,b: no checkpoint" in message


def test_a_folder_without_checkpoint_is_refused(folder: ModelFolder) -> None:
    assert "no checkpoint yet; run t2t-trainer" in programs.error("insights", f"--output_dir={folder.path}")


def test_a_port_in_use(folder: ModelFolder) -> None:
    write_checkpoint(folder.path, 1, {}, folder.vocabulary.fingerprint)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = programs.error("insights", f"--output_dir={folder.path}", f"--port={port}")
    assert line == (
        f"--host=127.0.0.1 --port={port}: Address already in use; give another --port, or --port=0 for a free one"
    )


def test_without_flask_it_says_what_to_install(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(folder.path, 1, {}, folder.vocabulary.fingerprint)
    monkeypatch.setitem(sys.modules, "waitress", None)
    line = programs.error("insights", f"--output_dir={folder.path}")
    assert line == 'Flask or waitress is not installed; pip install "t2t_repro[insights]"'
