"""Checkpoints of a training: saved whole, restored exactly, averaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.errors import UserError
from t2t_repro.model_folder import CHECKPOINT, ModelFolder, read_checkpoint, step_of


class Checkpoints:
    """Saves and restores the state of a training.

    Weights and optimizer variables are kept under their own names, not by the shape of Python objects, so that other
    programs can read them.

    Args:
        folder: the model folder.
        model: the model.
        optimizer: its optimizer, built.
        random_seed: kept with the rest, and checked against on resume.
        keep: how many checkpoints stay; older ones are deleted.
    """

    def __init__(self, folder: ModelFolder, model: Any, optimizer: Any, random_seed: int, keep: int) -> None:
        self._folder = folder
        self._step = tf.Variable(0, dtype=tf.int64)
        self._seed = tf.Variable(random_seed, dtype=tf.int64)
        checkpoint = tf.train.Checkpoint(
            weights=by_name(model.trainable_variables),
            optimizer=by_name(optimizer.variables),
            step=self._step,
            random_seed=self._seed,
            vocabulary_fingerprint=tf.Variable(folder.vocabulary.fingerprint),
        )
        self._manager = tf.train.CheckpointManager(checkpoint, str(folder.path), keep, checkpoint_name=CHECKPOINT)
        self._checkpoint = checkpoint

    def restore(self) -> int:
        """Restores the latest checkpoint; returns its step, or 0 where there is none.

        Raises:
            UserError: it is damaged, or the random seed is another.
        """
        found = self._folder.checkpoints()
        if not found:
            return 0
        seed = int(self._seed.numpy())
        try:
            self._checkpoint.restore(found[-1]).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(
                f"{found[-1]}: cannot be restored ({reason}); delete it to go on from the one before"
            ) from None
        saved = int(self._seed.numpy())
        if saved != seed:
            raise UserError(f"{found[-1]}: trained with --random_seed={saved}, not {seed}; give that one to go on")
        return int(self._step.numpy())

    def save(self, step: int) -> str:
        """Saves the state after `step` steps; returns the checkpoint's path.

        Raises:
            UserError: the disk is full or the folder cannot be written; earlier checkpoints stay whole.
        """
        self._step.assign(step)
        with whole_checkpoint(self._folder.path, step):
            return str(self._manager.save(checkpoint_number=step, check_interval=False))


def by_name(variables: list[Any]) -> dict[str, Any]:
    """TensorFlow's variables of Keras's, by their paths."""
    named = {variable.path: variable.value for variable in variables}
    if len(named) != len(variables):
        raise ValueError("two variables have the same name; name the model's layers apart")
    return named


@contextmanager
def whole_checkpoint(folder: Path, step: int) -> Iterator[None]:
    """Turns failures to write into one line, and removes what was half written."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        for path in folder.glob(f"{CHECKPOINT}-{step}[._]*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{folder}: checkpoint {step} cannot be written ({reason}); free space or choose another folder, "
            "then run the same command again"
        ) from None


def average_checkpoints(folder: ModelFolder, last: int) -> tuple[str, list[str]]:
    """Averages the weights of the last `last` checkpoints (section 6.1).

    The result lies in the folder's "averaged", holds weights, step and fingerprint, and is taken by decoder and
    exporter like any other checkpoint.

    Returns:
        The path of the averaged checkpoint, and the paths of those that went in.

    Raises:
        UserError: fewer checkpoints than asked for, one is damaged, or the disk is full.
    """
    paths = folder.checkpoints()[-last:]
    if len(paths) < last or last < 1:
        raise UserError(
            f"{folder.path}: holds {len(paths)} checkpoints, not --num_last_checkpoints={last}; "
            "train longer, save more often, or average fewer"
        )
    sums: dict[str, np.ndarray] = {}
    for path in paths:
        content = read_checkpoint(path)
        if content.vocabulary_fingerprint != folder.vocabulary.fingerprint or (
            sums and sums.keys() != content.weights.keys()
        ):
            raise UserError(f"{path}: of another model than the rest of {folder.path}; move it away")
        for name, value in content.weights.items():
            sums[name] = sums.get(name, 0.0) + value.astype(np.float64)
    step = step_of(paths[-1])
    averaged = folder.path / "averaged"
    checkpoint = tf.train.Checkpoint(
        weights={name: tf.Variable((total / last).astype(np.float32)) for name, total in sums.items()},
        step=tf.Variable(step, dtype=tf.int64),
        averaged=tf.Variable(last, dtype=tf.int64),
        vocabulary_fingerprint=tf.Variable(folder.vocabulary.fingerprint),
    )
    with whole_checkpoint(averaged, step):
        averaged.mkdir(exist_ok=True)
        return str(checkpoint.write(str(averaged / f"{CHECKPOINT}-{step}"))), paths


def averaged_count(path: str) -> int:
    """How many checkpoints the averaged one at `path` is the mean of; 0 where there is none, or none that is whole."""
    name = "averaged/.ATTRIBUTES/VARIABLE_VALUE"
    try:
        reader = tf.train.load_checkpoint(path)
        return int(reader.get_tensor(name)) if reader.has_tensor(name) else 0
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError):
        return 0
