"""Checkpoints: exact, whole or not there, averaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from disks import largest_file
from t2t_repro.errors import UserError
from t2t_repro.model_folder import ModelFolder, read_checkpoint, step_of
from t2t_repro.models.transformer import Transformer
from t2t_repro.training.checkpoint import Checkpoints, average_checkpoints
from t2t_repro.training.step import TrainStep, adam

IDS = np.array([[5, 6, 1], [7, 1, 0]], np.int32)


class Training:
    """A model, its optimizer and its checkpoints."""

    def __init__(self, folder: ModelFolder, seed: int = 1, keep: int = 20, random_seed: int = 7) -> None:
        keras.utils.set_random_seed(seed)
        self.strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
        with self.strategy.scope():
            self.model = Transformer(folder.hparams, folder.vocabulary.size)
            self.optimizer = adam(folder.hparams)
            self.optimizer.build(self.model.trainable_variables)
        self.checkpoints = Checkpoints(folder, self.model, self.optimizer, random_seed, keep)

    def variables(self) -> dict[str, np.ndarray]:
        variables = [*self.model.trainable_variables, *self.optimizer.variables]
        return {variable.path: variable.value.numpy() for variable in variables}

    def draw(self, seed: int) -> None:
        """Gives all variables values of that seed."""
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


def test_nothing_to_restore(folder: ModelFolder) -> None:
    assert Training(folder).checkpoints.restore() == 0


def test_everything_comes_back_to_the_bit(folder: ModelFolder) -> None:
    before = Training(folder).saved(3, 12)
    after = Training(folder, seed=2)
    assert not same(after.variables(), before.variables())
    assert after.checkpoints.restore() == 12
    assert same(after.variables(), before.variables())


def test_a_resumed_training_is_as_if_never_stopped(folder: ModelFolder) -> None:
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


def test_another_random_seed_is_refused(folder: ModelFolder) -> None:
    Training(folder, random_seed=7).saved(1)
    assert "--random_seed=7, not 8" in refused(Training(folder, random_seed=8).checkpoints.restore)


def test_weights_are_readable_under_the_models_names(folder: ModelFolder) -> None:
    training = Training(folder).saved(5)
    content = read_checkpoint(folder.checkpoint())
    weights = {variable.path: variable.value.numpy() for variable in training.model.trainable_variables}
    assert same(content.weights, weights)
    assert (content.step, content.vocabulary_fingerprint) == (5, folder.vocabulary.fingerprint)


def test_only_so_many_are_kept(folder: ModelFolder) -> None:
    Training(folder, keep=2).saved(9, 10, 100)
    assert numbers(folder) == [10, 100]
    resumed = Training(folder, keep=2)
    resumed.checkpoints.restore()
    resumed.saved(101)
    assert numbers(folder) == [100, 101]
    assert not [path for path in folder.path.iterdir() if "ckpt-9" in path.name or "ckpt-10." in path.name]


def test_the_average_is_the_mean_of_the_last(folder: ModelFolder) -> None:
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


def test_a_newer_checkpoint_outranks_an_older_average(folder: ModelFolder) -> None:
    training = Training(folder).saved(1, 2)
    path, _ = average_checkpoints(folder, 2)
    assert folder.checkpoint() == path
    training.saved(3)
    assert step_of(folder.checkpoint()) == 3
    assert folder.checkpoint() == folder.checkpoints()[-1]
    again, _ = average_checkpoints(folder, 2)
    assert folder.checkpoint() == again != path


@pytest.mark.parametrize("last", [3, 0, -1])
def test_an_average_of_what_is_not_there(folder: ModelFolder, last: int) -> None:
    Training(folder).saved(1, 2)
    before = contents(folder)
    assert f"--num_last_checkpoints={last}" in refused(average_checkpoints, folder, last)
    assert contents(folder) == before


def test_an_average_over_another_models_checkpoint(folder: ModelFolder) -> None:
    Training(folder).saved(1)
    tf.train.Checkpoint(
        weights={"other": tf.Variable(0.0)},
        step=tf.Variable(2, dtype=tf.int64),
        vocabulary_fingerprint=tf.Variable(folder.vocabulary.fingerprint),
    ).write(str(folder.path / "model.ckpt-2"))
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
    for call, arguments in (
        (Training(folder).checkpoints.restore, ()),
        (folder.model, (name,)),
        (average_checkpoints, (folder, 2)),
    ):
        assert name in refused(call, *arguments)


def test_a_changed_byte_is_never_read_as_if_whole(folder: ModelFolder) -> None:
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


def test_a_full_disk_leaves_the_earlier_checkpoints(folder: ModelFolder) -> None:
    training = Training(folder).saved(1, 2)
    before = contents(folder)
    with largest_file(4096):
        assert "checkpoint 3 cannot be written" in refused(training.checkpoints.save, 3)
    assert contents(folder) == before
    assert not [path for path in folder.path.rglob("*") if "ckpt-3" in path.name]
    training.saved(3)
    assert Training(folder, seed=2).checkpoints.restore() == 3


def test_a_full_disk_takes_no_checkpoint_whose_number_begins_alike(folder: ModelFolder) -> None:
    training = Training(folder).saved(100)
    before = contents(folder)
    with largest_file(4096):
        refused(training.checkpoints.save, 10)
    assert contents(folder) == before


def test_a_full_disk_leaves_no_half_average(folder: ModelFolder) -> None:
    Training(folder).saved(1, 2)
    before = contents(folder)
    with largest_file(4096):
        assert "cannot be written" in refused(average_checkpoints, folder, 2)
    assert contents(folder) == before
    assert step_of(folder.checkpoint()) == 2
