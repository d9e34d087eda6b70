"""Tests that complete checkpoints survive kills and full disks, and that damaged checkpoints are never used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from checkpoints import Training, listed, numbers, same
from disks import largest_file
from folders import contents
from t2t_repro.checkpoints import checkpoint_files
from t2t_repro.checkpoints.averaging import average_checkpoints
from t2t_repro.checkpoints.checkpoint_files import delete_unfinished
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import read_checkpoint, step_of
from t2t_repro.errors import UserError
from user_errors import user_error


def test_tensorflow_finds_the_latest_checkpoint_after_damage_and_requests(folder: ModelFolder) -> None:
    training = Training(folder).saved(1, 2, 3)
    training.checkpoints.save(4, by_request=True)
    assert listed(folder.path) == ["1", "2", "3", "4"]
    training.saved(5)
    assert listed(folder.path) == ["1", "2", "3", "5"]
    for name in ("model.ckpt-5.index", "model.ckpt-3.data-00000-of-00001"):
        (folder.path / name).write_bytes(b"damaged")
    assert Training(folder).checkpoints.restore() == 2
    assert listed(folder.path) == ["1", "2"]
    for path in folder.path.glob("model.ckpt-*"):
        path.unlink()
    assert Training(folder).checkpoints.restore() == 0
    assert tf.train.get_checkpoint_state(str(folder.path)) is None


@pytest.mark.parametrize("name", ["model.ckpt-3.index", "checkpoint"])
def test_tensorflow_finds_a_checkpoint_after_a_kill(
    folder: ModelFolder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(folder, keep=2).saved(1, 2)

    def replace_or_die(source: Any, target: Any) -> None:
        if Path(target).name == name:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        rename = os.rename
        patched.setattr(Path, "replace", replace_or_die)
        patched.setattr(os, "replace", replace_or_die)
        training.saved(3)
    assert tf.train.latest_checkpoint(str(folder.path)) == str(folder.path / "model.ckpt-2")
    delete_unfinished(folder.path)
    last = Training(folder, keep=2).checkpoints.restore()
    assert last == (3 if name == "checkpoint" else 2)
    assert listed(folder.path)[-1] == str(last)


def test_a_checkpoint_by_request_is_deleted_after_a_kill(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(folder).saved(5)
    training.checkpoints.save(7, by_request=True)
    # `delete` does nothing, as if a kill ended the process before it deletes the checkpoint of step 7.
    monkeypatch.setattr(checkpoint_files, "delete", lambda path: None)
    training.checkpoints.save(10)
    monkeypatch.undo()
    assert numbers(folder) == [5, 7, 10]
    assert Training(folder).checkpoints.restore() == 10
    assert numbers(folder) == [5, 10]


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_an_unreadable_checkpoint_is_not_called_damaged(folder: ModelFolder, ending: str) -> None:
    Training(folder).saved(1, 2)
    path = folder.path / f"model.ckpt-2.{ending}"
    path.unlink()
    path.mkdir()  # as on a failing disk, the path exists but cannot be read
    message = user_error(Training(folder).checkpoints.restore)
    assert message.startswith(f"{path}: cannot be read (")
    assert numbers(folder) == [1, 2]


def test_a_checkpoint_written_over_another_is_never_a_mixture(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(folder).saved(1, 2)
    training.draw(3)
    replace_file = Path.replace

    def killed(self: Path, target: Path) -> None:
        replace_file(self, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        training.checkpoints.save(2)
    monkeypatch.undo()
    assert numbers(folder) == [1]
    delete_unfinished(folder.path)
    assert Training(folder).checkpoints.restore() == 1


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "changed"])
def test_a_damaged_checkpoint_is_refused(folder: ModelFolder, ending: str, damage: str) -> None:
    Training(folder).saved(1, 2)
    path = folder.path / f"model.ckpt-2.{ending}"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        changed = bytes(byte ^ (place % 100 == 50) for place, byte in enumerate(content))
        path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "changed": changed}[damage])
    if ending == "index" and damage == "missing":
        assert numbers(folder) == [1]
        return
    name = str(folder.path / "model.ckpt-2")
    for call, arguments in ((folder.model, (name,)), (average_checkpoints, (folder, 2))):
        assert name in user_error(call, *arguments)


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "changed"])
def test_the_checkpoint_before_a_damaged_one_is_restored(
    folder: ModelFolder, ending: str, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training(folder).saved(1)
    before = training.variables()
    training.saved(2)
    path = folder.path / f"model.ckpt-2.{ending}"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        changed = (
            content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]
        )
        path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "changed": changed}[damage])
    resumed = Training(folder, seed=2)
    assert resumed.checkpoints.restore() == 1
    assert same(resumed.variables(), before)
    assert (str(folder.path / "model.ckpt-2") in capfd.readouterr().err) == ((ending, damage) != ("index", "missing"))
    assert numbers(folder) == [1]
    assert step_of(folder.checkpoint()) == 1
    resumed.saved(2)
    assert Training(folder, seed=3).checkpoints.restore() == 2


def test_nothing_is_restored_if_all_checkpoints_are_damaged(folder: ModelFolder) -> None:
    Training(folder).saved(1, 2)
    for path in folder.path.glob("model.ckpt-*.data-*"):
        path.write_bytes(b"")
    assert "all 2 checkpoints are damaged" in user_error(Training(folder).checkpoints.restore)
    assert numbers(folder) == [1, 2]


def test_unfinished_files_of_a_killed_process_are_deleted(folder: ModelFolder) -> None:
    Training(folder).saved(1, 10).checkpoints.save_best(10)
    whole = contents(folder.path)
    for place in (folder.path, folder.path / "best"):
        (place / "model.ckpt-100.data-00000-of-00001").write_bytes(b"half")
        (place / "unfinished-model.ckpt-100_temp").mkdir()
        (place / "unfinished-model.ckpt-100_temp/part-00000-of-00001.data-00000-of-00001").write_bytes(b"half")
        (place / "unfinished-model.ckpt-10.index").write_bytes(b"half")
    (folder.path / "best/model.ckpt-1.data-00000-of-00001").write_bytes(b"whole, in the other folder")
    for name in ("metrics.jsonl", folder.origin.vocabulary):
        (folder.path / f".{name}.a1b2c3_9").write_bytes(b"half")
    delete_unfinished(folder.path)
    assert contents(folder.path) == whole
    assert [path for path in folder.path.rglob("*") if path.is_dir()] == [folder.path / "best"]


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_kill_before_a_file_appears_leaves_the_older_checkpoint(
    folder: ModelFolder, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(folder).saved(1)
    before, whole = training.variables(), contents(folder.path)
    replace_file = Path.replace

    def replace_or_die(file: Path, target: Path) -> None:
        if target.name == f"model.ckpt-2.{ending}":
            raise KeyboardInterrupt
        replace_file(file, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", replace_or_die)
        training.saved(2)
    assert numbers(folder) == [1]
    delete_unfinished(folder.path)
    assert contents(folder.path) == whole
    resumed = Training(folder, seed=2)
    assert resumed.checkpoints.restore() == 1
    assert same(resumed.variables(), before)


def test_a_changed_byte_is_never_read_as_if_correct(folder: ModelFolder) -> None:
    Training(folder).saved(1)
    name = folder.checkpoint()
    exact = read_checkpoint(name)
    random = np.random.default_rng(0)
    for ending in ("index", "data-00000-of-00001"):
        path = Path(f"{name}.{ending}")
        content = path.read_bytes()
        for place in random.integers(0, len(content), 40):
            path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
            try:
                read = read_checkpoint(name)
            except UserError:
                continue
            assert same(read.weights, exact.weights)
            assert (read.step, read.vocabulary_fingerprint) == (exact.step, exact.vocabulary_fingerprint)
        path.write_bytes(content)


def test_a_full_disk_keeps_the_earlier_checkpoints(folder: ModelFolder) -> None:
    training = Training(folder).saved(1, 2)
    before = contents(folder.path)
    with largest_file(4096):
        message = user_error(training.checkpoints.save, 3)
    assert "checkpoint 3 cannot be written" in message and "{{" not in message and "[Op" not in message
    assert contents(folder.path) == before
    assert not [path for path in folder.path.rglob("*") if "ckpt-3" in path.name]
    training.saved(3)
    assert Training(folder, seed=2).checkpoints.restore() == 3


def test_a_full_disk_keeps_a_checkpoint_whose_number_starts_alike(folder: ModelFolder) -> None:
    training = Training(folder).saved(100)
    before = contents(folder.path)
    with largest_file(4096):
        user_error(training.checkpoints.save, 10)
    assert contents(folder.path) == before


def test_an_average_deletes_the_files_of_a_killed_one(folder: ModelFolder) -> None:
    Training(folder).saved(1, 2)
    averaged = folder.path / "averaged"
    averaged.mkdir()
    for name in ("unfinished-model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001", "notes"):
        (averaged / name).write_text("half")
    average_checkpoints(folder, 2)
    assert sorted(path.name for path in averaged.iterdir()) == [
        "checkpoint", "model.ckpt-2.data-00000-of-00001", "model.ckpt-2.index", "notes",
    ]  # fmt: skip


def test_a_full_disk_leaves_no_unfinished_average(folder: ModelFolder) -> None:
    Training(folder).saved(1, 2)
    before = contents(folder.path)
    with largest_file(4096):
        assert "cannot be written" in user_error(average_checkpoints, folder, 2)
    assert contents(folder.path) == before
    assert step_of(folder.checkpoint()) == 2


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[8,9]"),
        tf.errors.InternalError(None, None, "Failed copying input tensor: Dst tensor is not initialized."),
    ],
)
def test_a_checkpoint_that_does_not_fit_in_memory_is_not_called_damaged(
    error: tf.errors.OpError, folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    Training(folder).saved(1, 2)
    before = contents(folder.path)

    def read(checkpoint: Any, path: str) -> None:
        raise error

    resumed = Training(folder)
    monkeypatch.setattr(tf.train.Checkpoint, "read", read)
    with pytest.raises(type(error)):
        resumed.checkpoints.restore()
    assert contents(folder.path) == before
