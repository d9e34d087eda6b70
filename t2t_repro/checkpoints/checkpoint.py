"""Saves and restores the checkpoints of a training run."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_repro import devices
from t2t_repro.checkpoints.checkpoint_files import BEST, keep_only, set_aside, write_checkpoint
from t2t_repro.checkpoints.model_folder import ModelFolder, hparams_fingerprint, read_hparams
from t2t_repro.checkpoints.reader import (
    assign_weights,
    find_checkpoint,
    plain_path,
    read_checkpoint,
    read_value,
    refuse_unreadable,
    step_of,
)
from t2t_repro.console.progress import say
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, first_line
from t2t_repro.hparam import HParams

UNSEEN = ("num_heads", "pos", "norm_epsilon", "self_attention_neighborhood", "moe_k")
"""Hparams that change what a model computes, but not the names and shapes of its weights."""
BY_REQUEST = "saved_by_request"
"""Name of the boolean variable that is True in a checkpoint that was saved only because a signal stopped the run."""
IDENTITY = ("hparams_fingerprint", "vocabulary_fingerprint", "data_fingerprint", "random_seed")
"""Names of the fingerprints and the seed of a run. A run resumes only from a checkpoint with the same values."""


class Checkpoints:
    """Saves and restores the state of a training run.

    A checkpoint stores each weight and optimizer variable under its Keras path, not under the attribute names of Python
    objects, so that other programs can find the variables.

    Args:
        folder: model folder.
        model: the model.
        optimizer_variables: all variables that training steps change, except weights. The optimizer must be built.
        keep: number of checkpoints to keep; older checkpoints are deleted.
    """

    def __init__(self, folder: ModelFolder, model: Any, optimizer_variables: list[Any], keep: int) -> None:
        self._folder, self._keep = folder, keep
        self._step = tf.Variable(0, dtype=tf.int64)
        self._by_request = tf.Variable(False)
        self._temporary = ""
        """Path of the last checkpoint if it was saved by request, else empty. The next save deletes that checkpoint."""
        values = (
            hparams_fingerprint(folder.hparams),
            folder.vocabulary.fingerprint,
            folder.origin.data_fingerprint,
            str(folder.origin.random_seed),
        )
        self._identity = dict(zip(IDENTITY, values, strict=True))
        self._state = {
            "weights": _by_name(model.trainable_variables),
            "optimizer": _by_name(optimizer_variables),
            "step": self._step,
            **{name: tf.Variable(value) for name, value in self._identity.items()},
        }
        self._checkpoint = tf.train.Checkpoint(**self._state, **{BY_REQUEST: self._by_request})

    def restore(self) -> int:
        """Restores the latest undamaged checkpoint; returns its step, or 0 if the folder has no checkpoint.

        Prints a line for each damaged checkpoint, and renames its files so that no program reads them as a checkpoint.

        Raises:
            UserError: if all checkpoints are damaged, or if a checkpoint cannot be read from the disk, lacks variables
                of this run, or belongs to a run with other hparams, data, vocabulary or random seed.
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
        latest = checkpoints[-1] if checkpoints else ""
        # A process that was killed may have left older checkpoints that were saved by request.
        kept = [path for path in checkpoints if path == latest or not read_value(path, BY_REQUEST)]
        keep_only(self._folder.path, kept)
        self._temporary = latest if latest and read_value(latest, BY_REQUEST) else ""
        return int(self._step.numpy()) if latest else 0

    def restore_step(self, step: int) -> bool:
        """Restores the checkpoint of step `step`; returns False if this checkpoint is missing or damaged.

        Workers other than the chief call this method, to restore the checkpoint that the chief has restored.
        """
        paths = [path for path in self._folder.checkpoints() if step_of(path) == step]
        return bool(paths) and self._read(paths[0])

    def _read(self, path: str) -> bool:
        """Reads a checkpoint into the variables of this run; returns False if the checkpoint is damaged."""
        for name, value in self._identity.items():
            saved = read_value(path, name)  # None if the checkpoint is damaged, or another program's
            if saved is not None and saved.decode() != value:
                raise UserError(
                    f"{path}: trained with {name.replace('_', ' ')} {saved.decode()}, now it is {value}; put the "
                    "checkpoints of this folder's own training back, or give another --output_dir"
                )
        try:
            with plain_path(path) as readable:
                status = tf.train.Checkpoint(**self._state).read(readable).assert_existing_objects_matched()
            # Without expect_partial, TensorFlow warns later that the variable BY_REQUEST was not restored.
            status.expect_partial()
        except (tf.errors.OpError, ValueError, IndexError) as error:
            if devices.memory_shortage(error):
                raise
            refuse_unreadable(path)
            say(f"{path}: damaged ({first_line(error)}); trying the one before")
            return False
        except AssertionError:
            raise UserError(
                f"{path}: lacks variables of this run; take its weights with --warm_start_from={shlex.quote(path)} and "
                "another --output_dir"
            ) from None
        return True

    def save(self, step: int, by_request: bool = False) -> str:
        """Saves the state after `step` steps; returns the checkpoint's path.

        Args:
            step: number of steps taken.
            by_request: True if the checkpoint is saved only because a signal stopped the run. The next save then
                deletes this checkpoint, so that checkpoint averaging uses checkpoints of the same steps as in a run
                that never stopped.

        Raises:
            UserError: if the disk is full or the folder cannot be written. Earlier checkpoints are not affected.
        """
        path = self._write(self._folder.path, step, by_request)
        checkpoints = [saved for saved in self._folder.checkpoints() if saved == path or saved != self._temporary]
        self._temporary = path if by_request else ""
        keep_only(self._folder.path, checkpoints[-self._keep :])
        return path

    def save_best(self, step: int) -> str:
        """Replaces the best checkpoint by the model's state after `step` steps; returns the new checkpoint's path.

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


def warm_start(model: Any, vocabulary: Vocabulary, source: str) -> str:
    """Sets a model's weights to those of another run's checkpoint; returns the checkpoint's path.

    Args:
        model: the model.
        vocabulary: vocabulary of the model.
        source: path of a checkpoint, or of a folder with checkpoints, e.g. a model folder. In a folder, the averaged
            checkpoint is used, or the latest checkpoint if that is newer.

    Raises:
        UserError: if there is no checkpoint, or if its vocabulary or the names or shapes of its weights differ from the
            model's.
    """
    path = find_checkpoint(source, "--warm_start_from")
    checkpoint = read_checkpoint(path)
    if checkpoint.vocabulary_fingerprint != vocabulary.fingerprint:
        raise UserError(
            f"--warm_start_from={source}: trained with a vocabulary of fingerprint "
            f"{checkpoint.vocabulary_fingerprint}, but the data has {vocabulary.fingerprint}; make the data with that "
            "model's vocabulary by t2t-datagen --vocab_file"
        )
    assign_weights(model, checkpoint, path, "give the --hparams_set and --hparams of its training")
    return path


def other_hparams(checkpoint: str, hparams: HParams) -> dict[str, Any]:
    """Returns the values with which a checkpoint was trained, by name, of hparams in `UNSEEN` that differ now.

    Returns {} if the checkpoint's folder has no hparams.json.
    """
    for folder in list(Path(checkpoint).parents)[:2]:  # averaged and best checkpoints are in a subfolder
        with contextlib.suppress(OSError, UserError):
            trained = read_hparams(folder)
            values = {name: getattr(trained, name, None) for name in UNSEEN}
            return {name: value for name, value in values.items() if value != getattr(hparams, name, None)}
    return {}


def _by_name(variables: list[Any]) -> dict[str, Any]:
    return {variable.path: variable.value for variable in variables}
