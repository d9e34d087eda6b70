"""Saves and restores the checkpoints of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_repro.checkpoint_reader import assign_weights, read_checkpoint, read_value, step_of
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.model_folder import ModelFolder, hparams_fingerprint
from t2t_repro.progress import say
from t2t_repro.training.checkpoint_files import (
    BEST,
    first_line,
    keep_only,
    refuse_unreadable,
    set_aside,
    write_checkpoint,
)

BY_REQUEST = "saved_by_request"
"""Name, in a checkpoint, of the variable that is true if it was saved only because the run had to stop."""


class Checkpoints:
    """Saves and restores the state of a training run.

    Weights and optimizer variables are stored under their own names, not under the attributes of Python objects, so
    that other programs can read them.

    Args:
        folder: model folder.
        model: the model.
        optimizer_variables: variables of the built optimizer, and others that change from step to step.
        keep: number of checkpoints to keep; older ones are deleted.
    """

    def __init__(self, folder: ModelFolder, model: Any, optimizer_variables: list[Any], keep: int) -> None:
        self._folder, self._keep = folder, keep
        self._step = tf.Variable(0, dtype=tf.int64)
        self._by_request = tf.Variable(False)
        self._temporary = ""
        """Path of the last checkpoint if it was saved by request, else empty. The next checkpoint replaces it."""
        self._identity = {
            "hparams_fingerprint": hparams_fingerprint(folder.hparams),
            "vocabulary_fingerprint": folder.vocabulary.fingerprint,
            "data_fingerprint": folder.origin.data_fingerprint,
            "random_seed": str(folder.origin.random_seed),
        }
        """Values that must be the same when the run resumes."""
        self._saved_identity = {name: tf.Variable(value) for name, value in self._identity.items()}
        self._state = {
            "weights": _by_name(model.trainable_variables),
            "optimizer": _by_name(optimizer_variables),
            "step": self._step,
            **self._saved_identity,
        }
        self._checkpoint = tf.train.Checkpoint(**self._state, **{BY_REQUEST: self._by_request})

    def restore(self) -> int:
        """Restores the latest checkpoint that is whole; returns its step, or 0 if there is no checkpoint.

        Reports each damaged checkpoint and renames its files, so that no program takes it for the latest.

        Raises:
            UserError: if all checkpoints are damaged, the latest cannot be read from the disk, or it belongs to a run
                with other hparams, data, vocabulary or seed.
        """
        checkpoints = self._folder.checkpoints()
        damaged = []
        while checkpoints and not self._read(checkpoints[-1]):
            damaged.append(checkpoints.pop())
        if damaged and not checkpoints:
            raise UserError(
                f"{self._folder.path}: all {len(damaged)} checkpoints are damaged; give another --output_dir"
            )
        for path in damaged:
            set_aside(path)
        latest = checkpoints[-1:]
        # A process that was killed may have left an older checkpoint that was saved by request.
        keep_only(self._folder.path, [path for path in checkpoints[:-1] if not was_by_request(path)] + latest)
        self._temporary = next(filter(was_by_request, latest), "")
        return int(self._step.numpy()) if latest else 0

    def restore_step(self, step: int) -> bool:
        """Restores the checkpoint of a step, for a worker that is not the chief; returns whether it could."""
        paths = [path for path in self._folder.checkpoints() if step_of(path) == step]
        return bool(paths) and self._read(paths[0])

    def _read(self, path: str) -> bool:
        """Reads a checkpoint into the variables; returns False if it is damaged."""
        try:
            status = tf.train.Checkpoint(**self._state).read(path).assert_existing_objects_matched()
            status.expect_partial()  # otherwise TensorFlow warns later that BY_REQUEST was not restored
        except tf.errors.ResourceExhaustedError:
            raise
        except (tf.errors.OpError, ValueError, IndexError) as error:
            refuse_unreadable(path)
            say(f"{path}: damaged ({first_line(error)}); trying the one before")
            return False
        except AssertionError:
            raise UserError(
                f"{path}: lacks variables of this run; it was made by another version of t2t-trainer or with another "
                f"--precision; take its weights with --warm_start_from={path} and another --output_dir"
            ) from None
        for name, value in self._identity.items():
            saved = self._saved_identity[name].numpy().decode()
            if saved != value:
                raise UserError(
                    f"{path}: trained with {name.replace('_', ' ')} {saved}, now it is {value}; resume with the same, "
                    f"or take its weights with --warm_start_from={path} and another --output_dir"
                )
        return True

    def save(self, step: int, by_request: bool = False) -> str:
        """Saves the state after `step` steps; returns the checkpoint's path.

        Args:
            step: number of steps taken.
            by_request: whether it is saved only because the run must stop. The next checkpoint replaces it, so that an
                average is the same as if the run had never stopped.

        Raises:
            UserError: if the disk is full or the folder cannot be written. Earlier checkpoints stay whole.
        """
        path = self._write(self._folder.path, step, by_request)
        checkpoints = [other for other in self._folder.checkpoints() if other == path or other != self._temporary]
        self._temporary = path if by_request else ""
        keep_only(self._folder.path, checkpoints[-self._keep :])
        return path

    def save_best(self, step: int) -> str:
        """Replaces the best checkpoint by the state after `step` steps; returns its path.

        Raises:
            UserError: if the disk is full or the folder cannot be written.
        """
        path = self._write(self._folder.path / BEST, step, by_request=False)
        keep_only(self._folder.path / BEST, [path])
        return path

    def _write(self, folder: Path, step: int, by_request: bool) -> str:
        self._step.assign(step)
        self._by_request.assign(by_request)
        return write_checkpoint(self._checkpoint, folder, step)


def was_by_request(path: str) -> bool:
    """Returns whether a checkpoint was saved only because the run had to stop; False if it cannot be read."""
    return bool(read_value(path, BY_REQUEST))


def warm_start(model: Any, vocabulary: Vocabulary, source: str) -> str:
    """Sets a model's weights to those of another run's checkpoint; returns the checkpoint's path.

    Args:
        model: the model.
        vocabulary: vocabulary of the model.
        source: path of a checkpoint, or of a model folder; its averaged checkpoint is used, or its latest.

    Raises:
        UserError: if there is no checkpoint, or its vocabulary, names or shapes differ.
    """
    path = ModelFolder(source).checkpoint() if Path(source).is_dir() else source
    checkpoint = read_checkpoint(path)
    if checkpoint.vocabulary_fingerprint != vocabulary.fingerprint:
        raise UserError(
            f"--warm_start_from={source}: trained with a vocabulary of fingerprint "
            f"{checkpoint.vocabulary_fingerprint}, but the data has {vocabulary.fingerprint}; make the data with that "
            "model's vocabulary by t2t-datagen --vocab_file"
        )
    assign_weights(model, checkpoint, path, "the hparams given", "give the --hparams_set and --hparams of its training")
    return path


def _by_name(variables: list[Any]) -> dict[str, Any]:
    """Returns the TensorFlow variables of Keras variables by their paths, which are unique."""
    return {variable.path: variable.value for variable in variables}
