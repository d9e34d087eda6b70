"""Tests that complete checkpoints survive kills and full disks, and that damaged checkpoints are
never used.
"""

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

from checkpoints import Training, listed, numbers, same
from disks import largest_file
from folders import contents
from t2t_repro.checkpoints.averaging import average_checkpoints
from t2t_repro.checkpoints.checkpoint_files import keep_only, set_aside
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import read_checkpoint, step_of
from user_errors import user_error

ENDINGS = ("index", "data-00000-of-00001")
USER_FILES = [
    ".env",
    "model.ckpt-2.data-notes",
    "model.ckpt-2.txt",
    "model.ckpt-2x.data-00000-of-00001",
]


def test_only_the_files_of_a_checkpoint_are_deleted_or_renamed(tmp_path: Path) -> None:
    files = (
        "model.ckpt-2.index",
        "model.ckpt-2.data-00000-of-00002",
        "model.ckpt-2.data-00001-of-00002",
    )
    for change in (
        lambda: keep_only(tmp_path, []),
        lambda: set_aside(str(tmp_path / "model.ckpt-2")),
    ):
        for name in [*USER_FILES, *files]:
            (tmp_path / name).touch()
        change()
        names = {path.name for path in tmp_path.iterdir()}
        assert names >= set(USER_FILES) and not names & set(files)
    assert names == {*USER_FILES, *(f"damaged-{name}" for name in files)}


@pytest.mark.parametrize(
    ("ending", "damage"),
    [("index", "changed"), *((ENDINGS[1], kind) for kind in ("missing", "cut", "changed"))],
)
def test_the_checkpoint_before_a_damaged_one_is_restored(
    folder: ModelFolder, ending: str, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training(folder).saved(1)
    before = training.variables()
    training.saved(2)
    path = folder.path / f"model.ckpt-2.{ending}"
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "missing":
        path.unlink()
    else:
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes({"cut": content[:middle], "changed": changed}[damage])
    if (ending, damage) != (ENDINGS[1], "changed"):  # the changed byte is not of a weight
        name = str(folder.path / "model.ckpt-2")
        assert name in user_error(read_checkpoint, name) and name in user_error(
            average_checkpoints, folder, 2
        )
    resumed = Training(folder)
    assert resumed.checkpoints.restore() == 1
    assert same(resumed.variables(), before)
    assert str(folder.path / "model.ckpt-2: damaged") in capfd.readouterr().err
    assert numbers(folder) == [1] and listed(folder.path) == ["1"]
    next(folder.path.glob("model.ckpt-1.data-*")).write_bytes(b"")
    assert "all checkpoints (1) are damaged" in user_error(resumed.checkpoints.restore)
    assert numbers(folder) == [1]


@pytest.mark.parametrize(
    "error",
    [tf.errors.InternalError(None, None, "Dst tensor is not initialized."), None],
    ids=["memory", "disk"],
)
def test_a_checkpoint_that_cannot_be_read_is_not_called_damaged(
    error: tf.errors.OpError | None, folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    Training(folder).saved(1, 2)
    resumed = Training(folder)
    if error:
        monkeypatch.setattr(tf.train, "load_checkpoint", mock.Mock(side_effect=error))
        with pytest.raises(tf.errors.InternalError):
            resumed.checkpoints.restore()
    else:
        [path] = folder.path.glob("model.ckpt-2.data*")
        path.unlink()
        path.symlink_to("/proc/self/mem")  # a regular file that cannot be read
        assert user_error(resumed.checkpoints.restore).startswith(f"{path}: cannot be read (")
    assert numbers(folder) == [1, 2]


@pytest.mark.parametrize(
    "name", [*(f"model.ckpt-{step}.{ending}" for step in (2, 3) for ending in ENDINGS), "state"]
)
def test_a_kill_while_a_checkpoint_is_saved_leaves_a_complete_one(
    folder: ModelFolder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill comes just before a file gets its name, of a new checkpoint or of one that is written
    again.
    """
    training = Training(folder).saved(1)
    states = {1: training.variables()}
    training.saved(2)
    states[2] = training.variables()
    step = 2 if "-2." in name else 3
    replace = os.replace  # Path.replace calls it, too

    def killed(source: Any, target: Any) -> None:
        if Path(target).name == ("checkpoint" if name == "state" else name):
            raise KeyboardInterrupt
        replace(source, target)

    training.draw(3)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "replace", killed)
        training.checkpoints.save(step)
    complete = 3 if name == "state" else step - 1
    states[3] = training.variables()
    assert numbers(folder)[-1] == complete
    (folder.path / ".unfinished").mkdir(exist_ok=True)
    (folder.path / ".unfinished/model.ckpt-3_temp").write_text("as a kill leaves it")
    resumed = Training(folder)
    assert resumed.checkpoints.restore() == complete
    assert same(resumed.variables(), states[complete])
    resumed.saved(4)
    assert not (folder.path / ".unfinished").exists()
    for path in folder.path.glob("model.ckpt*.data*"):
        assert path.with_suffix(".index").exists()


def test_a_full_disk_keeps_the_earlier_checkpoints(folder: ModelFolder) -> None:
    training = Training(folder).saved(2, 100)
    before = contents(folder.path)
    with largest_file(1000):
        message = user_error(training.checkpoints.save, 10)
        assert "cannot be written" in user_error(average_checkpoints, folder, 2)
    assert "checkpoint 10 cannot be written" in message
    assert "{{" not in message and "[Op" not in message  # TensorFlow's names of its operations
    assert contents(folder.path) == before
    assert step_of(folder.checkpoint()) == 100
    training.saved(101)
    assert Training(folder).checkpoints.restore() == 101
