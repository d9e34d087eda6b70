"""A fake training run, which saves and restores random weights, and functions that examine its
model folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from step_models import Lookup
from t2t_repro.checkpoints.checkpoint import Checkpoints
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import checkpoints_in, step_of
from t2t_repro.training.optimizer import make_optimizer


class Training:
    """A small model, its optimizer and its checkpoints. Instead of training, `draw` sets all
    variables randomly.
    """

    def __init__(self, folder: ModelFolder, keep: int = 20, vocab_size: int = 12) -> None:
        self.strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
        with self.strategy.scope():
            self.model = Lookup(vocab_size)
            self.optimizer = make_optimizer(folder.hparams)
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
        """Saves a checkpoint for each of `steps`, each with other values of the variables; returns
        this object.
        """
        for step in steps:
            self.draw(step)
            self.checkpoints.save(step)
        return self


def same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    """Returns True if both dictionaries have the same names and exactly the same values."""
    return ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name]) for name in ours
    )


def numbers(folder: ModelFolder) -> list[int]:
    """Returns the steps of the checkpoints in a model folder."""
    return [step_of(path) for path in folder.checkpoints()]


def listed(folder: Path) -> list[str]:
    """Returns the steps of the checkpoints that TensorFlow's state file in a folder lists.

    Asserts that TensorFlow and this project find the last of these checkpoints as the latest one.
    """
    state = tf.train.get_checkpoint_state(str(folder))
    assert state.model_checkpoint_path == state.all_model_checkpoint_paths[-1]
    assert (
        tf.train.latest_checkpoint(str(folder))
        == state.model_checkpoint_path
        == checkpoints_in(folder)[-1]
    )
    return [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths]
