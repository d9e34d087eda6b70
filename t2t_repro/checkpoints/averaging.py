"""Checkpoint averaging: the mean of the weights of the last (section 6.1 of the paper) or the best
checkpoints.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_repro.checkpoints.checkpoint import identity_of
from t2t_repro.checkpoints.checkpoint_files import keep_only, write_checkpoint
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import checkpoints_in, read_checkpoint, read_value, step_of
from t2t_repro.console.progress import say
from t2t_repro.errors import UserError, counted
from t2t_repro.files.output_files import only_writer, subfolder


def average_checkpoints(
    folder: ModelFolder, last: int, steps: Sequence[int] = ()
) -> tuple[str, list[str]]:
    """Averages the weights of checkpoints of a model folder, and saves the average in its folder
    averaged/.

    The average is a checkpoint with the averaged weights, the last checkpoint's step and the run's
    fingerprints, but without optimizer variables. Returns its path, and the paths of the
    checkpoints from which it was computed.

    `last` is the number of last checkpoints to average. 0 means the number in the hparam
    num_last_checkpoints, or all checkpoints if the folder has fewer. `steps` has the steps of the
    checkpoints to average instead of the last ones.

    Raises UserError if there are fewer than `last` checkpoints, one is missing, damaged or of
    another training run, or another process is writing an average.
    """
    paths = _checkpoints_of(folder, steps) if steps else _last_checkpoints(folder, last)
    step = step_of(folder.checkpoints()[-1])
    identity = identity_of(folder)
    sums: dict[str, np.ndarray] = {}
    first_traits = None
    for path in paths:
        checkpoint = read_checkpoint(path)
        shapes = {name: value.shape for name, value in checkpoint.weights.items()}
        traits = (shapes, [read_value(path, name) for name in identity])
        first_traits = first_traits or traits
        if traits != first_traits:
            raise UserError(
                f"{path}: belongs to another training run than the other checkpoints of "
                f"{folder.path}; move it away"
            )
        folder.require_own(path, checkpoint)
        for name, value in checkpoint.weights.items():
            sums[name] = sums.get(name, 0.0) + value.astype(np.float64)
    average = tf.train.Checkpoint(
        weights={
            name: tf.Variable((total / len(paths)).astype(np.float32))
            for name, total in sums.items()
        },
        step=tf.Variable(step, dtype=tf.int64),
        averaged=tf.Variable(0 if steps else len(paths), dtype=tf.int64),
        **{name: tf.Variable(value) for name, value in identity.items()},
    )
    place = subfolder(folder.path, "averaged")
    with only_writer(place, "--output_dir"):
        path = write_checkpoint(average, place, step)
        keep_only(place, checkpoints_in(place))
    return path, paths


def _last_checkpoints(folder: ModelFolder, last: int) -> list[str]:
    """Returns the paths of the `last` checkpoints, oldest first; 0 means the hparam
    num_last_checkpoints, or all if there are fewer.
    """
    checkpoints = folder.checkpoints()
    number = last or folder.hparams.num_last_checkpoints
    if len(checkpoints) < max(last, 1):
        raise UserError(
            f"{folder.path}: holds {counted(len(checkpoints), 'checkpoint')}, not "
            f"--num_last_checkpoints={number}; train longer, save more often, or average fewer"
        )
    if len(checkpoints) < number:
        say(
            f"{folder.path}: averaging {len(checkpoints)}, not {number} checkpoints, because the "
            "folder has no more"
        )
    return checkpoints[-number:]


def _checkpoints_of(folder: ModelFolder, steps: Sequence[int]) -> list[str]:
    """Returns the paths of the checkpoints of `steps`, oldest first."""
    path_of = {step_of(path): path for path in folder.checkpoints()}
    for step in steps:
        if step not in path_of:
            raise UserError(
                f"{folder.path}: the checkpoint of step {step:,}, one of the {len(steps)} best, "
                "no longer exists; give a lower --num_best_checkpoints, or train with "
                f"--max_checkpoints_by_score={len(steps)}"
            )
    return [path_of[step] for step in sorted(steps)]


def averaged_count(path: str) -> int:
    """Returns how many last checkpoints contributed to the average at `path`; 0 if it is damaged or
    the average of the best checkpoints.
    """
    return int(read_value(path, "averaged") or 0)
