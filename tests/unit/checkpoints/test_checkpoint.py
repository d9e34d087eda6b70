"""Tests which checkpoints are kept, and that they can be restored exactly, averaged, and used for a warm start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from checkpoints import Training, listed, numbers, same
from folders import contents
from models import write_checkpoint
from t2t_repro.checkpoints.averaging import average_checkpoints
from t2t_repro.checkpoints.checkpoint import other_hparams, warm_start
from t2t_repro.checkpoints.model_folder import ModelFolder, hparams_fingerprint
from t2t_repro.checkpoints.reader import checkpoints_in, read_checkpoint, step_of
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.training.step import TrainStep
from user_errors import user_error

IDS = np.array([[5, 6, 1], [7, 1, 0]], np.int32)


def test_a_folder_without_checkpoints_restores_nothing(folder: ModelFolder) -> None:
    assert Training(folder).checkpoints.restore() == 0


def test_a_restored_state_is_equal_to_the_bit(folder: ModelFolder) -> None:
    before = Training(folder).saved(3, 12)
    after = Training(folder, seed=2)
    assert not same(after.variables(), before.variables())
    assert after.checkpoints.restore() == 12
    assert same(after.variables(), before.variables())


def test_a_worker_restores_exactly_the_checkpoint_of_the_chief(folder: ModelFolder) -> None:
    chief = Training(folder).saved(1, 2)
    worker = Training(folder, seed=2)
    assert not worker.checkpoints.restore_step(3)
    assert worker.checkpoints.restore_step(2) and same(worker.variables(), chief.variables())
    next(folder.path.glob("model.ckpt-2.data*")).write_bytes(b"half")
    assert not Training(folder, seed=2).checkpoints.restore_step(2)


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
        folder.vocabulary = sentencepiece.train(["of other", "words"], folder.vocabulary.size)
    elif name == "data fingerprint":
        folder.origin = replace(folder.origin, data_fingerprint="fedcba987654")
    else:
        folder.origin = replace(folder.origin, random_seed=8)
    now = identity()[name]
    assert now != before
    message = user_error(Training(folder).checkpoints.restore)
    assert f"{name} {before}, now it is {now}" in message and "another --output_dir" in message


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


def test_tensorflow_finds_the_latest_checkpoint(folder: ModelFolder, tmp_path: Path) -> None:
    training = Training(folder, keep=3).saved(1, 2, 3, 4)
    training.checkpoints.save_best(3)
    training.checkpoints.save_best(4)
    average_checkpoints(folder, 2)
    moved = folder.path.rename(tmp_path / "moved")
    assert listed(moved) == ["2", "3", "4"]
    assert listed(moved / "best") == listed(moved / "averaged") == ["4"]
    assert not list(tmp_path.rglob(".checkpoint*"))


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


def test_checkpoints_without_the_request_variable_are_restored(folder: ModelFolder) -> None:
    training = Training(folder)
    training.checkpoints._step.assign(3)
    tf.train.Checkpoint(**training.checkpoints._state).write(str(folder.path / "model.ckpt-3"))
    assert Training(folder, seed=2).checkpoints.restore() == 3


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
    before = contents(folder.path)
    assert f"--num_last_checkpoints={last}" in user_error(average_checkpoints, folder, last)
    assert contents(folder.path) == before


@pytest.mark.parametrize("other", ["weights", "shapes", "seed"])
def test_an_average_with_a_checkpoint_of_another_training_is_refused(folder: ModelFolder, other: str) -> None:
    Training(folder).saved(1)
    if other == "weights":
        write_checkpoint(folder.path, 2, {"other": tf.Variable(0.0)}, folder.vocabulary.fingerprint)
    elif other == "shapes":
        folder.hparams = replace(folder.hparams, filter_size=8)
        Training(folder).saved(2)
    else:
        folder.origin = replace(folder.origin, random_seed=8)
        Training(folder).saved(2)
    assert "model.ckpt-2: belongs to another training run than" in user_error(average_checkpoints, folder, 2)


def test_a_checkpoint_of_another_size_is_refused_and_stays(folder: ModelFolder) -> None:
    hparams = folder.hparams
    folder.hparams = replace(hparams, filter_size=8)
    Training(folder).saved(2)
    before, folder.hparams = contents(folder.path), hparams
    assert "trained with hparams fingerprint" in user_error(Training(folder).checkpoints.restore)
    assert contents(folder.path) == before


def test_the_best_checkpoint_is_kept_apart(folder: ModelFolder) -> None:
    training = Training(folder, keep=1).saved(1)
    best = training.variables()
    assert training.checkpoints.save_best(1) == str(folder.path / "best/model.ckpt-1")
    training.saved(2)
    assert (numbers(folder), checkpoints_in(folder.path / "best")) == ([2], [str(folder.path / "best/model.ckpt-1")])
    content = read_checkpoint(str(folder.path / "best/model.ckpt-1"))
    assert same(content.weights, {name: value for name, value in best.items() if name in content.weights})
    training.checkpoints.save_best(2)
    assert checkpoints_in(folder.path / "best") == [str(folder.path / "best/model.ckpt-2")]
    assert len(list((folder.path / "best").iterdir())) == 3  # index file, data file and TensorFlow's state file
    training.checkpoints.save_best(2)
    assert checkpoints_in(folder.path / "best") == [str(folder.path / "best/model.ckpt-2")]


def test_a_warm_start_takes_only_the_weights(folder: ModelFolder) -> None:
    other = Training(folder).saved(5)
    [path] = folder.checkpoints()
    for source in (str(folder.path), path):
        training = Training(folder, seed=2)
        fresh = training.variables()
        assert warm_start(training.model, folder.vocabulary, source) == path
        weights = {variable.path for variable in training.model.trainable_variables}
        assert same(training.variables(), {k: (other.variables() if k in weights else fresh)[k] for k in fresh})


def test_hparams_that_change_the_meaning_of_weights_are_compared(folder: ModelFolder) -> None:
    Training(folder).saved(5)
    folder.save_description()
    [path] = folder.checkpoints()
    changed = replace(folder.hparams, num_heads=1, label_smoothing=0.0, pos="none")
    assert other_hparams(path, folder.hparams) == {}
    expected = {"num_heads": folder.hparams.num_heads, "pos": "timing"}
    assert other_hparams(path, changed) == other_hparams(str(folder.path / "best/model.ckpt-5"), changed) == expected
    (folder.path / "hparams.json").unlink()
    assert other_hparams(path, changed) == {}


def test_a_warm_start_from_another_model_is_refused(folder: ModelFolder, tmp_path: Path) -> None:
    Training(folder).saved(5)
    training = Training(folder, seed=2)
    before = training.variables()
    assert "no checkpoint in this folder" in user_error(warm_start, training.model, folder.vocabulary, str(tmp_path))
    message = user_error(warm_start, training.model, folder.vocabulary, str(tmp_path / "none"))
    assert message.startswith(f"--warm_start_from={tmp_path / 'none'}: no {tmp_path / 'none'}.index")
    folder.hparams = replace(folder.hparams, num_hidden_layers=folder.hparams.num_hidden_layers + 1)
    larger = Training(folder)
    assert "of the hparams given needs" in user_error(warm_start, larger.model, folder.vocabulary, str(folder.path))
    other = sentencepiece.train(["of other", "words"], folder.vocabulary.size)
    message = user_error(warm_start, training.model, other, folder.checkpoints()[0])
    assert folder.vocabulary.fingerprint in message and other.fingerprint in message and "--vocab_file" in message
    assert same(training.variables(), before)
