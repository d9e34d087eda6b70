"""Tests which checkpoints are kept, and that they can be restored exactly, averaged, and used for a warm start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from checkpoints import Training, listed, numbers, same
from folders import contents
from models import write_checkpoint
from t2t_repro.checkpoints.averaging import average_checkpoints, averaged_count
from t2t_repro.checkpoints.checkpoint import other_hparams, warm_start
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import read_checkpoint, step_of
from t2t_repro.training.step import TrainStep
from user_errors import user_error

pytestmark = pytest.mark.usefixtures("no_graphs")

IDS = np.array([[5, 6, 1], [7, 1, 0]], np.int32)


def test_a_restored_state_is_equal_to_the_bit(folder: ModelFolder) -> None:
    assert Training(folder).checkpoints.restore() == 0
    before = Training(folder).saved(3, 12)
    after = Training(folder, seed=2)
    assert not same(after.variables(), before.variables())
    assert after.checkpoints.restore() == 12
    assert same(after.variables(), before.variables())
    content = read_checkpoint(folder.checkpoint())
    assert same(content.weights, {name: before.variables()[name] for name in content.weights})
    assert {variable.path for variable in before.model.trainable_variables} == content.weights.keys()
    assert (content.step, content.vocabulary_fingerprint) == (12, folder.vocabulary.fingerprint)


def test_a_worker_restores_exactly_the_checkpoint_of_the_chief(folder: ModelFolder) -> None:
    chief = Training(folder).saved(1, 2)
    worker = Training(folder, seed=2)
    assert "model.ckpt-3: the chief has this checkpoint, but" in user_error(worker.checkpoints.restore_step, 3)
    worker.checkpoints.restore_step(2)
    assert same(worker.variables(), chief.variables())
    next(folder.path.glob("model.ckpt-2.data*")).write_bytes(b"half")
    assert "model.ckpt-2: this checkpoint is damaged" in user_error(worker.checkpoints.restore_step, 2)


def test_a_resumed_run_ends_with_the_same_weights(folder: ModelFolder) -> None:
    def take(training: Training, steps: range) -> dict[str, np.ndarray]:
        step = TrainStep(training.model, training.optimizer, 0.1, training.strategy)
        for number in steps:
            step([(IDS, IDS[::-1], np.arange(len(IDS)))], 5, (7, number))
            if number == 1:
                training.checkpoints.save(2)
        return training.variables()

    folder.hparams = replace(folder.hparams, attention_dropout=0.1, relu_dropout=0.1)
    assert folder.hparams.layer_prepostprocess_dropout > 0
    whole = take(Training(folder), range(4))
    resumed = Training(folder, seed=2)
    assert resumed.checkpoints.restore() == 2
    assert same(take(resumed, range(2, 4)), whole)


@pytest.mark.parametrize(
    ("name", "part", "changes"),
    [
        ("hparams fingerprint", "hparams", {"label_smoothing": 0.2}),
        ("data fingerprint", "origin", {"data_fingerprint": "fedcba987654"}),
        ("random seed", "origin", {"random_seed": 8}),
        ("", "hparams", {"train_steps": 10**6, "local_eval_frequency": 7, "num_last_checkpoints": 3}),
    ],
)
def test_only_a_checkpoint_of_the_same_run_is_restored(
    folder: ModelFolder, name: str, part: str, changes: dict[str, Any]
) -> None:
    Training(folder).saved(1)
    before = contents(folder.path)
    setattr(folder, part, replace(getattr(folder, part), **changes))
    if name:
        message = user_error(Training(folder).checkpoints.restore)
        assert f"model.ckpt-1: trained with {name} " in message and "another --output_dir" in message
    else:
        assert Training(folder).checkpoints.restore() == 1
    assert contents(folder.path).keys() == before.keys()


def test_only_the_last_checkpoints_are_kept_and_tensorflow_finds_them(folder: ModelFolder, tmp_path: Path) -> None:
    Training(folder, keep=2).saved(9, 10, 100)
    assert numbers(folder) == [10, 100]
    resumed = Training(folder, keep=2)
    resumed.checkpoints.restore()
    resumed.saved(101).checkpoints.save_best(100)
    assert resumed.checkpoints.save_best(101) == str(folder.path / "best/model.ckpt-101")
    average_checkpoints(folder, 2)
    moved = folder.path.rename(tmp_path / "moved")
    assert listed(moved) == ["100", "101"]
    for place in ("best", "averaged"):
        assert listed(moved / place) == ["101"]
        assert len(list((moved / place).iterdir())) == 3  # index file, data file and TensorFlow's state file
    assert not [name for name in contents(moved) if "ckpt-9" in name or "ckpt-10." in name or "/." in name]


def test_a_checkpoint_by_request_is_replaced_by_the_next(folder: ModelFolder) -> None:
    training = Training(folder).saved(5)
    training.checkpoints.save(7, by_request=True)
    resumed = Training(folder, seed=2)
    assert resumed.checkpoints.restore() == 7
    resumed.checkpoints.save_best(7)
    resumed.checkpoints.save(8, by_request=True)
    assert numbers(folder) == [5, 8]
    resumed.saved(10, 15)
    assert numbers(folder) == [5, 10, 15]
    # A process is killed after it saved step 20 and before it deletes step 17, which was saved by request.
    resumed.checkpoints.save(17, by_request=True)
    training.checkpoints.save(20)
    assert numbers(folder) == [5, 10, 15, 17, 20]
    assert resumed.checkpoints.restore() == 20
    assert numbers(folder) == [5, 10, 15, 20]


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
    assert averaged_count(path) == 2 and averaged_count(averaged[0]) == 0
    means = [np.mean(pair, axis=0) for pair in zip(*weights[1:], strict=True)]
    for variable, mean in zip(folder.model(path).trainable_variables, means, strict=True):
        np.testing.assert_array_equal(variable.numpy(), mean)
    assert numbers(folder) == [1, 2, 10]
    folder.hparams = replace(folder.hparams, num_last_checkpoints=5)  # the default for 0
    assert len(average_checkpoints(folder, 0)[1]) == 3
    folder.hparams = replace(folder.hparams, num_last_checkpoints=1)
    assert len(average_checkpoints(folder, 0)[1]) == 1


def test_a_wrong_average_is_refused(folder: ModelFolder) -> None:
    assert "no checkpoint yet" in user_error(average_checkpoints, folder, 1)
    Training(folder).saved(1, 2)
    before = contents(folder.path)
    for last in (3, -1):
        assert f"--num_last_checkpoints={last}" in user_error(average_checkpoints, folder, last)
    assert contents(folder.path) == before
    write_checkpoint(folder.path, 3, {"other": tf.Variable(0.0)}, folder.vocabulary.fingerprint)
    folder.origin = replace(folder.origin, random_seed=8)
    Training(folder).saved(4, 5)
    write_checkpoint(folder.path, 6, {"other": tf.Variable(0.0)}, folder.vocabulary.fingerprint)
    assert average_checkpoints(folder, 1) and "model.ckpt-6: belongs to" in user_error(average_checkpoints, folder, 2)
    for file in folder.path.glob("model.ckpt-[36].*"):
        file.unlink()
    assert "model.ckpt-4: belongs to another training run" in user_error(average_checkpoints, folder, 3)


def test_a_warm_start_takes_only_the_weights_of_the_same_model(folder: ModelFolder, tmp_path: Path) -> None:
    other, words = Training(folder).saved(5), folder.vocabulary
    training = Training(folder, seed=2)
    fresh = training.variables()
    assert warm_start(training.model, words, str(folder.path)) == str(folder.path / "model.ckpt-5")
    weights = {variable.path for variable in training.model.trainable_variables}
    started = {k: (other.variables() if k in weights else fresh)[k] for k in fresh}
    assert same(training.variables(), started)
    assert "no checkpoint in this folder" in user_error(warm_start, training.model, words, str(tmp_path))
    assert f"no {tmp_path}/none.index" in user_error(warm_start, training.model, words, f"{tmp_path}/none")
    wrong = write_checkpoint(tmp_path, 1, {"w": tf.Variable(1.0)}, words.fingerprint)
    assert "has shape none, the model of the hparams needs" in user_error(warm_start, training.model, words, wrong)
    wrong = write_checkpoint(tmp_path, 1, {"w": tf.Variable(1.0)}, "fedcba987654")
    assert "--vocab_file" in user_error(warm_start, training.model, words, wrong)
    assert same(training.variables(), started)


def test_hparams_that_change_the_meaning_of_weights_are_compared(folder: ModelFolder) -> None:
    path = str(folder.path / "model.ckpt-5")
    changed = replace(folder.hparams, num_heads=1, label_smoothing=0.0, pos="none")
    assert other_hparams(path, folder.hparams) == {}
    expected = {"num_heads": folder.hparams.num_heads, "pos": "timing"}
    assert other_hparams(path, changed) == other_hparams(str(folder.path / "best/model.ckpt-5"), changed) == expected
    (folder.path / "hparams.json").unlink()
    assert other_hparams(path, changed) == {}
