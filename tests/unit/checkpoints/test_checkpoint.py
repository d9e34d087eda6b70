"""Tests which checkpoints are kept, and that they can be restored exactly, averaged, and used for a
warm start.
"""

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
from t2t_repro.checkpoints.reader import read_checkpoint, read_value, step_of
from user_errors import user_error

pytestmark = pytest.mark.usefixtures("no_graphs")

IDS = np.array([[5, 6, 1], [7, 1, 0]], np.int32)


def test_the_chief_restores_the_last_state_to_the_bit_and_a_worker_the_same(
    folder: ModelFolder,
) -> None:
    after = Training(folder)
    worker = Training(folder)
    assert after.checkpoints.restore() == 0
    before = Training(folder).saved(3, 12)
    assert not same(after.variables(), before.variables())
    assert after.checkpoints.restore() == 12
    assert same(after.variables(), before.variables())
    content = read_checkpoint(folder.checkpoint())
    assert content.weights.keys() == {
        variable.path for variable in before.model.trainable_variables
    }
    assert same(content.weights, {name: before.variables()[name] for name in content.weights})
    assert content.vocabulary_fingerprint == folder.vocabulary.fingerprint
    assert "model.ckpt-4: this checkpoint is missing" in user_error(
        worker.checkpoints.restore_step, 4
    )
    worker.checkpoints.restore_step(12)
    assert same(worker.variables(), before.variables())
    next(folder.path.glob("model.ckpt-12.data*")).write_bytes(b"half")
    assert "model.ckpt-12: this checkpoint is damaged" in user_error(
        worker.checkpoints.restore_step, 12
    )


@pytest.mark.parametrize(
    ("name", "part", "changes"),
    [
        ("hparams fingerprint", "hparams", {"label_smoothing": 0.2}),
        ("data fingerprint", "origin", {"data_fingerprint": "fedcba987654"}),
        ("random seed", "origin", {"random_seed": 8}),
    ],
)
def test_only_a_checkpoint_of_the_same_run_is_restored(
    folder: ModelFolder, name: str, part: str, changes: dict[str, Any]
) -> None:
    Training(folder).saved(1)
    before = contents(folder.path)
    setattr(folder, part, replace(getattr(folder, part), **changes))
    message = user_error(Training(folder).checkpoints.restore)
    assert f"model.ckpt-1: trained with {name} " in message
    assert contents(folder.path).keys() == before.keys()


def test_a_run_resumes_with_another_number_of_steps(folder: ModelFolder) -> None:
    Training(folder).saved(1)
    folder.hparams = replace(
        folder.hparams, train_steps=10**6, local_eval_frequency=7, num_last_checkpoints=3
    )
    assert Training(folder).checkpoints.restore() == 1


def test_only_the_last_checkpoints_are_kept_and_tensorflow_finds_them(
    folder: ModelFolder, tmp_path: Path
) -> None:
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
        # index file, data file and TensorFlow's state file
        assert len(list((moved / place).iterdir())) == 3
    assert not [
        name for name in contents(moved) if "ckpt-9" in name or "ckpt-10." in name or "/." in name
    ]


def test_the_best_checkpoints_are_kept_besides_the_last(folder: ModelFolder) -> None:
    training = Training(folder, keep=2)
    for step, best, kept in (
        (1, [], [1]),
        (2, [1], [1, 2]),
        (3, [1], [1, 2, 3]),
        (4, [3, 1], [1, 3, 4]),
        (5, [5, 3], [3, 4, 5]),
        (6, [5], [5, 6]),
    ):
        training.saved(step).checkpoints.keep_also(best)
        assert numbers(folder) == kept and listed(folder.path) == list(map(str, kept))
    training.saved(7, 8, 9)
    assert numbers(folder) == [5, 8, 9]


def test_an_average_of_chosen_checkpoints_is_used_until_a_newer_checkpoint_exists(
    folder: ModelFolder,
) -> None:
    training = Training(folder)
    weights = {}
    for step in (1, 2, 3):
        training.saved(step)
        weights[step] = training.model.trainable_variables[0].value.numpy()
    path, averaged = average_checkpoints(folder, 0, [2, 1])
    assert [step_of(name) for name in averaged] == [1, 2] and folder.checkpoint() == path
    name = training.model.trainable_variables[0].path
    np.testing.assert_array_equal(
        read_checkpoint(path).weights[name], (weights[1] + weights[2]) / 2
    )
    # t2t-reproduce must not take it for the mean of the last checkpoints.
    assert averaged_count(path) == 0
    training.saved(4)
    assert step_of(folder.checkpoint()) == 4
    assert "step 7" in user_error(average_checkpoints, folder, 0, [7, 1])


def test_a_checkpoint_by_request_is_replaced_by_the_next(folder: ModelFolder) -> None:
    training = Training(folder).saved(5)
    resumed = Training(folder)
    training.checkpoints.save(7, by_request=True)
    assert resumed.checkpoints.restore() == 7
    resumed.checkpoints.save_best(7)
    resumed.checkpoints.save(8, by_request=True)
    assert numbers(folder) == [5, 8]
    resumed.saved(10, 15)
    assert numbers(folder) == [5, 10, 15]
    # A process is killed after it saved step 20 and before it deletes step 17, which was saved by
    # request.
    resumed.checkpoints.save(17, by_request=True)
    training.checkpoints.save(20)
    assert numbers(folder) == [5, 10, 15, 17, 20]
    assert resumed.checkpoints.restore() == 20
    assert numbers(folder) == [5, 10, 15, 20]


def test_the_average_is_the_mean_of_the_last_checkpoints(folder: ModelFolder) -> None:
    training = Training(folder)
    weights = []
    assert "holds 0 checkpoints" in user_error(average_checkpoints, folder, 0)
    for step in (1, 2, 10):
        training.saved(step)
        weights.append([variable.value.numpy() for variable in training.model.trainable_variables])
    path, averaged = average_checkpoints(folder, 2)
    assert [step_of(name) for name in averaged] == [2, 10] and folder.checkpoint() == path
    content = read_checkpoint(path)
    assert read_value(path, "step") == 10
    assert averaged_count(path) == 2 and averaged_count(averaged[0]) == 0
    for variable, *pair in zip(training.model.trainable_variables, *weights[1:], strict=True):
        np.testing.assert_array_equal(content.weights[variable.path], np.mean(pair, axis=0))
    assert numbers(folder) == [1, 2, 10]
    for default, count in ((5, 3), (1, 1)):
        folder.hparams = replace(folder.hparams, num_last_checkpoints=default)
        assert len(average_checkpoints(folder, 0)[1]) == count
    assert "--num_last_checkpoints=4" in user_error(average_checkpoints, folder, 4)


def test_checkpoints_of_other_runs_are_not_averaged(folder: ModelFolder) -> None:
    Training(folder).saved(2)
    folder.origin = replace(folder.origin, random_seed=8)
    Training(folder).saved(4, 5)
    assert "model.ckpt-4: belongs to another training run" in user_error(
        average_checkpoints, folder, 3
    )
    write_checkpoint(folder.path, 6, {"other": tf.Variable(0.0)}, folder.vocabulary.fingerprint)
    assert average_checkpoints(folder, 1) and "model.ckpt-6: belongs to" in user_error(
        average_checkpoints, folder, 2
    )
    write_checkpoint(folder.path, 7, {"other": tf.Variable(0.0)}, "fedcba987654")
    assert "trained with other vocabulary than" in user_error(average_checkpoints, folder, 1)


def test_a_checkpoint_of_other_hparams_is_not_used(folder: ModelFolder) -> None:
    Training(folder).saved(1, 2)
    average, _ = average_checkpoints(folder, 2)
    folder.hparams = replace(folder.hparams, num_heads=1)
    for path in (str(folder.path / "model.ckpt-1"), average):
        assert "trained with other hparams than" in user_error(folder.model, path)


def test_a_warm_start_takes_only_the_weights_of_the_same_model(
    folder: ModelFolder, tmp_path: Path
) -> None:
    other = Training(folder).saved(5)
    words = folder.vocabulary
    training = Training(folder)
    fresh = training.variables()
    assert warm_start(training.model, words, str(folder.path)) == str(folder.path / "model.ckpt-5")
    weights = {variable.path for variable in training.model.trainable_variables}
    started = {k: (other.variables() if k in weights else fresh)[k] for k in fresh}
    assert same(training.variables(), started)
    for name, fingerprint in (("1", words.fingerprint), ("2", "fedcba987654")):
        write_checkpoint(tmp_path, int(name), {"w": tf.Variable(1.0)}, fingerprint)
    for source, words_of_error in (
        (folder.path.parent / "none", "no {}.index"),
        (folder.path / "best", "no {}.index"),
        (tmp_path / "model.ckpt-1", "has shape none, the model of the hparams needs"),
        (tmp_path / "model.ckpt-2", "--vocab_file"),
    ):
        message = user_error(warm_start, training.model, words, str(source))
        assert words_of_error.format(source) in message and str(source) in message
    assert same(training.variables(), started)


def test_hparams_that_change_the_meaning_of_weights_are_compared(folder: ModelFolder) -> None:
    changed = replace(folder.hparams, num_heads=1, label_smoothing=0.0, pos="none")
    expected = {"num_heads": folder.hparams.num_heads, "pos": "timing"}
    for path in (str(folder.path / place / "model.ckpt-5") for place in ("", "best")):
        assert (
            other_hparams(path, folder.hparams) == {} and other_hparams(path, changed) == expected
        )
