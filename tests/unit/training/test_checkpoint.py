"""Tests that checkpoints store the exact state, are complete even after a kill, and can be averaged."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from disks import largest_file
from models import write_checkpoint
from t2t_repro.checkpoint_reader import checkpoints_in, read_checkpoint, step_of
from t2t_repro.data import vocabulary
from t2t_repro.errors import UserError
from t2t_repro.model_folder import ModelFolder, hparams_fingerprint
from t2t_repro.models.transformer import Transformer
from t2t_repro.training import checkpoint_files
from t2t_repro.training.averaging import average_checkpoints
from t2t_repro.training.checkpoint import Checkpoints, warm_start
from t2t_repro.training.checkpoint_files import delete_unfinished
from t2t_repro.training.step import TrainStep, adam

IDS = np.array([[5, 6, 1], [7, 1, 0]], np.int32)


class Training:
    """A model, its optimizer and its checkpoints."""

    def __init__(self, folder: ModelFolder, seed: int = 1, keep: int = 20) -> None:
        keras.utils.set_random_seed(seed)
        self.strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
        with self.strategy.scope():
            self.model = Transformer(folder.hparams, folder.vocabulary.size)
            self.optimizer = adam(folder.hparams)
            self.optimizer.build(self.model.trainable_variables)
        self.checkpoints = Checkpoints(folder, self.model, self.optimizer.variables, keep)

    def variables(self) -> dict[str, np.ndarray]:
        variables = [*self.model.trainable_variables, *self.optimizer.variables]
        return {variable.path: variable.value.numpy() for variable in variables}

    def draw(self, seed: int) -> None:
        """Sets all variables to random values that depend only on `seed`."""
        random = np.random.default_rng(seed)
        for variable in [*self.model.trainable_variables, *self.optimizer.variables]:
            variable.assign(random.integers(-1000, 1000, variable.shape))

    def saved(self, *steps: int) -> Training:
        for step in steps:
            self.draw(step)
            self.checkpoints.save(step)
        return self


def same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def contents(folder: ModelFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def numbers(folder: ModelFolder) -> list[int]:
    return [step_of(path) for path in folder.checkpoints()]


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(UserError) as error:
        call(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_folder_without_checkpoints_restores_nothing(folder: ModelFolder) -> None:
    assert Training(folder).checkpoints.restore() == 0


def test_a_restored_state_is_equal_to_the_bit(folder: ModelFolder) -> None:
    before = Training(folder).saved(3, 12)
    after = Training(folder, seed=2)
    assert not same(after.variables(), before.variables())
    assert after.checkpoints.restore() == 12
    assert same(after.variables(), before.variables())


def test_a_resumed_run_ends_with_the_same_weights(folder: ModelFolder) -> None:
    def take(training: Training, steps: range) -> dict[str, np.ndarray]:
        step = TrainStep(training.model, training.optimizer, 0.1, training.strategy)
        for number in steps:
            step([(IDS, IDS[::-1])], 5, (7, number))
            if number == 1:
                training.checkpoints.save(2)
        return training.variables()

    whole = take(Training(folder), range(4))
    resumed = Training(folder, seed=2)
    assert resumed.checkpoints.restore() == 2
    assert same(take(resumed, range(2, 4)), whole)


@pytest.mark.parametrize("name", ["hparams fingerprint", "vocabulary fingerprint", "data fingerprint", "random seed"])
def test_a_checkpoint_of_another_run_is_refused(folder: ModelFolder, name: str) -> None:
    def identity() -> dict[str, str]:
        return {
            "hparams fingerprint": hparams_fingerprint(folder.hparams),
            "vocabulary fingerprint": folder.vocabulary.fingerprint,
            "data fingerprint": folder.origin.data_fingerprint,
            "random seed": str(folder.origin.random_seed),
        }

    Training(folder).saved(1)
    before = identity()[name]
    if name == "hparams fingerprint":
        folder.hparams = replace(folder.hparams, label_smoothing=0.2)
    elif name == "vocabulary fingerprint":
        folder.vocabulary = vocabulary.train(["of other", "words"], folder.vocabulary.size)
    elif name == "data fingerprint":
        folder.origin = replace(folder.origin, data_fingerprint="fedcba987654")
    else:
        folder.origin = replace(folder.origin, random_seed=8)
    now = identity()[name]
    assert now != before
    message = refused(Training(folder).checkpoints.restore)
    assert f"{name} {before}, now it is {now}" in message and "--warm_start_from" in message


def test_a_longer_run_resumes(folder: ModelFolder) -> None:
    Training(folder).saved(1)
    folder.hparams = replace(folder.hparams, train_steps=10**6, local_eval_frequency=7, num_last_checkpoints=3)
    assert Training(folder).checkpoints.restore() == 1


def test_weights_are_stored_under_the_models_names(folder: ModelFolder) -> None:
    training = Training(folder).saved(5)
    content = read_checkpoint(folder.checkpoint())
    weights = {variable.path: variable.value.numpy() for variable in training.model.trainable_variables}
    assert same(content.weights, weights)
    assert (content.step, content.vocabulary_fingerprint) == (5, folder.vocabulary.fingerprint)


def test_only_the_last_checkpoints_are_kept(folder: ModelFolder) -> None:
    Training(folder, keep=2).saved(9, 10, 100)
    assert numbers(folder) == [10, 100]
    resumed = Training(folder, keep=2)
    resumed.checkpoints.restore()
    resumed.saved(101)
    assert numbers(folder) == [100, 101]
    assert not [path for path in folder.path.iterdir() if "ckpt-9" in path.name or "ckpt-10." in path.name]


def listed(folder: Path) -> list[str]:
    """Returns the steps that TensorFlow's state file of a folder lists.

    Checks that the last one is the latest checkpoint, for TensorFlow and for this project.
    """
    state = tf.train.get_checkpoint_state(str(folder))
    assert state.model_checkpoint_path == state.all_model_checkpoint_paths[-1]
    assert tf.train.latest_checkpoint(str(folder)) == state.model_checkpoint_path == checkpoints_in(folder)[-1]
    return [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths]


def test_tensorflow_finds_the_latest_checkpoint(folder: ModelFolder, tmp_path: Path) -> None:
    training = Training(folder, keep=3).saved(1, 2, 3, 4)
    training.checkpoints.save_best(3)
    training.checkpoints.save_best(4)
    average_checkpoints(folder, 2)
    moved = folder.path.rename(tmp_path / "moved")
    assert listed(moved) == ["2", "3", "4"]
    assert listed(moved / "best") == listed(moved / "averaged") == ["4"]
    assert not list(tmp_path.rglob(".checkpoint*"))


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


def test_a_checkpoint_by_request_is_replaced_by_the_next(folder: ModelFolder) -> None:
    training = Training(folder).saved(5)
    training.checkpoints.save(7, by_request=True)
    assert numbers(folder) == [5, 7]
    resumed = Training(folder, seed=2)
    assert resumed.checkpoints.restore() == 7
    resumed.checkpoints.save_best(7)
    resumed.checkpoints.save(8, by_request=True)
    assert numbers(folder) == [5, 8]
    resumed = Training(folder, seed=2)
    assert resumed.checkpoints.restore() == 8
    resumed.checkpoints.save(10)
    resumed.checkpoints.save(15)
    assert numbers(folder) == [5, 10, 15]
    assert Training(folder).saved(20).checkpoints.restore() == 20


def test_a_checkpoint_by_request_is_deleted_after_a_kill(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(folder).saved(5)
    training.checkpoints.save(7, by_request=True)
    # As if the process were killed before it deletes a checkpoint.
    monkeypatch.setattr(checkpoint_files, "delete", lambda path: None)
    training.checkpoints.save(10)
    monkeypatch.undo()
    assert numbers(folder) == [5, 7, 10]
    assert Training(folder).checkpoints.restore() == 10
    assert numbers(folder) == [5, 10]


def test_checkpoints_without_the_request_variable_are_restored(folder: ModelFolder) -> None:
    training = Training(folder)
    training.checkpoints._step.assign(3)
    tf.train.Checkpoint(**training.checkpoints._state).write(str(folder.path / "model.ckpt-3"))
    assert Training(folder, seed=2).checkpoints.restore() == 3


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_an_unreadable_checkpoint_is_not_called_damaged(folder: ModelFolder, ending: str) -> None:
    Training(folder).saved(1, 2)
    path = folder.path / f"model.ckpt-2.{ending}"
    path.unlink()
    path.mkdir()  # simulates a failing disk: the file exists but cannot be read
    message = refused(Training(folder).checkpoints.restore)
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


def test_the_average_is_the_mean_of_the_last_checkpoints(folder: ModelFolder) -> None:
    training = Training(folder)
    weights = []
    for step in (1, 2, 10):
        training.saved(step)
        weights.append([variable.value.numpy() for variable in training.model.trainable_variables])
    path, averaged = average_checkpoints(folder, 2)
    assert [step_of(name) for name in averaged] == [2, 10]
    assert folder.checkpoint() == path
    assert read_checkpoint(path).step == 10
    means = [np.mean(pair, axis=0) for pair in zip(*weights[1:], strict=True)]
    for variable, mean in zip(folder.model(path).trainable_variables, means, strict=True):
        np.testing.assert_array_equal(variable.numpy(), mean)
    assert numbers(folder) == [1, 2, 10]


def test_a_newer_checkpoint_is_used_before_an_older_average(folder: ModelFolder) -> None:
    training = Training(folder).saved(1, 2)
    path, _ = average_checkpoints(folder, 2)
    assert folder.checkpoint() == path
    training.saved(3)
    assert step_of(folder.checkpoint()) == 3
    assert folder.checkpoint() == folder.checkpoints()[-1]
    again, _ = average_checkpoints(folder, 2)
    assert folder.checkpoint() == again != path


def test_by_default_the_hparams_decide_how_many_are_averaged(folder: ModelFolder) -> None:
    folder.hparams = replace(folder.hparams, num_last_checkpoints=3)
    training = Training(folder).saved(1, 2)
    assert [step_of(name) for name in average_checkpoints(folder, 0)[1]] == [1, 2]
    training.saved(3, 4)
    assert [step_of(name) for name in average_checkpoints(folder, 0)[1]] == [2, 3, 4]


@pytest.mark.parametrize("last", [3, -1])
def test_an_average_of_too_many_checkpoints_is_refused(folder: ModelFolder, last: int) -> None:
    Training(folder).saved(1, 2)
    before = contents(folder)
    assert f"--num_last_checkpoints={last}" in refused(average_checkpoints, folder, last)
    assert contents(folder) == before


def test_an_average_with_another_models_checkpoint_is_refused(folder: ModelFolder) -> None:
    Training(folder).saved(1)
    write_checkpoint(folder.path, 2, {"other": tf.Variable(0.0)}, folder.vocabulary.fingerprint)
    assert "another model" in refused(average_checkpoints, folder, 2)


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
        assert name in refused(call, *arguments)


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
    assert "all 2 checkpoints are damaged" in refused(Training(folder).checkpoints.restore)
    assert numbers(folder) == [1, 2]


def test_the_best_checkpoint_is_kept_apart(folder: ModelFolder) -> None:
    training = Training(folder, keep=1).saved(1)
    first = training.variables()
    assert training.checkpoints.save_best(1) == str(folder.path / "best/model.ckpt-1")
    training.saved(2)
    assert (numbers(folder), checkpoints_in(folder.path / "best")) == ([2], [str(folder.path / "best/model.ckpt-1")])
    content = read_checkpoint(str(folder.path / "best/model.ckpt-1"))
    assert same(content.weights, {name: value for name, value in first.items() if name in content.weights})
    training.checkpoints.save_best(2)
    assert checkpoints_in(folder.path / "best") == [str(folder.path / "best/model.ckpt-2")]
    assert len(list((folder.path / "best").iterdir())) == 3  # index file, data file and state file
    training.checkpoints.save_best(2)
    assert checkpoints_in(folder.path / "best") == [str(folder.path / "best/model.ckpt-2")]


def test_unfinished_files_of_a_killed_process_are_deleted(folder: ModelFolder) -> None:
    Training(folder).saved(1, 10).checkpoints.save_best(10)
    whole = contents(folder)
    for place in (folder.path, folder.path / "best"):
        (place / "model.ckpt-100.data-00000-of-00001").write_bytes(b"half")
        (place / "unfinished-model.ckpt-100_temp").mkdir()
        (place / "unfinished-model.ckpt-100_temp/part-00000-of-00001.data-00000-of-00001").write_bytes(b"half")
        (place / "unfinished-model.ckpt-10.index").write_bytes(b"half")
    (folder.path / "best/model.ckpt-1.data-00000-of-00001").write_bytes(b"whole, in the other folder")
    for name in ("metrics.jsonl", folder.origin.vocabulary):
        (folder.path / f".{name}.a1b2c3_9").write_bytes(b"half")
    delete_unfinished(folder.path)
    assert contents(folder) == whole
    assert [path for path in folder.path.rglob("*") if path.is_dir()] == [folder.path / "best"]


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_kill_before_a_file_appears_leaves_the_older_checkpoint(
    folder: ModelFolder, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(folder).saved(1)
    before, whole = training.variables(), contents(folder)
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
    assert contents(folder) == whole
    resumed = Training(folder, seed=2)
    assert resumed.checkpoints.restore() == 1
    assert same(resumed.variables(), before)


def test_a_warm_start_takes_only_the_weights(folder: ModelFolder) -> None:
    other = Training(folder).saved(5)
    [path] = folder.checkpoints()
    for source in (str(folder.path), path):
        training = Training(folder, seed=2)
        fresh = training.variables()
        assert warm_start(training.model, folder.vocabulary, source) == path
        weights = {variable.path for variable in training.model.trainable_variables}
        assert same(training.variables(), {k: (other.variables() if k in weights else fresh)[k] for k in fresh})


def test_a_warm_start_from_another_model_is_refused(folder: ModelFolder, tmp_path: Path) -> None:
    Training(folder).saved(5)
    training = Training(folder, seed=2)
    before = training.variables()
    assert "no hparams.json" in refused(warm_start, training.model, folder.vocabulary, str(tmp_path))
    assert "missing or damaged" in refused(warm_start, training.model, folder.vocabulary, str(tmp_path / "none"))
    folder.hparams = replace(folder.hparams, num_hidden_layers=folder.hparams.num_hidden_layers + 1)
    larger = Training(folder)
    assert "of the hparams given needs" in refused(warm_start, larger.model, folder.vocabulary, str(folder.path))
    other = vocabulary.train(["of other", "words"], folder.vocabulary.size)
    message = refused(warm_start, training.model, other, folder.checkpoints()[0])
    assert folder.vocabulary.fingerprint in message and other.fingerprint in message and "--vocab_file" in message
    assert same(training.variables(), before)


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
    before = contents(folder)
    with largest_file(4096):
        message = refused(training.checkpoints.save, 3)
    assert "checkpoint 3 cannot be written" in message and "{{" not in message and "[Op" not in message
    assert contents(folder) == before
    assert not [path for path in folder.path.rglob("*") if "ckpt-3" in path.name]
    training.saved(3)
    assert Training(folder, seed=2).checkpoints.restore() == 3


def test_a_full_disk_keeps_a_checkpoint_whose_number_starts_alike(folder: ModelFolder) -> None:
    training = Training(folder).saved(100)
    before = contents(folder)
    with largest_file(4096):
        refused(training.checkpoints.save, 10)
    assert contents(folder) == before


def test_a_full_disk_leaves_no_unfinished_average(folder: ModelFolder) -> None:
    Training(folder).saved(1, 2)
    before = contents(folder)
    with largest_file(4096):
        assert "cannot be written" in refused(average_checkpoints, folder, 2)
    assert contents(folder) == before
    assert step_of(folder.checkpoint()) == 2
