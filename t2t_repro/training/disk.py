"""The disk space that the checkpoints of a training run need."""

import math
import shutil
from pathlib import Path

from t2t_repro.checkpoints.checkpoint_files import BEST
from t2t_repro.checkpoints.reader import checkpoints_in
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.training.config import RunConfig

WEIGHT = 4
"""Bytes of a weight in an averaged checkpoint."""
CHECKPOINT = 3 * WEIGHT
"""Bytes for each weight in a checkpoint of training, which also has Adam's averages of the gradient and its square."""


def latest_checkpoints(hparams: HParams, config: RunConfig) -> int:
    """Returns the number of latest checkpoints that a run keeps: --keep_checkpoint_max, or fewer in a short run."""
    if config.save_checkpoints_secs:
        return config.keep_checkpoint_max  # the number of saves depends on the machine's speed
    return min(config.keep_checkpoint_max, math.ceil(hparams.train_steps / config.local_eval_frequency))


def disk_need(parameters: int, hparams: HParams, config: RunConfig) -> int:
    """Returns the bytes of a run's checkpoints: the latest, the best, the average, and one that is being written."""
    return parameters * (CHECKPOINT * (latest_checkpoints(hparams, config) + 2) + WEIGHT)


def refuse_full_disk(folder: Path, parameters: int, hparams: HParams, config: RunConfig) -> str:
    """Raises UserError if the disk of a model folder cannot hold the checkpoints that the run writes first.

    These are a latest checkpoint and a best checkpoint. If the folder already has a best checkpoint and all latest
    checkpoints, each new checkpoint replaces an old one, and space for one is enough.

    Returns a warning if the disk will be full before the end of the run, else "".
    """
    free, checkpoint = shutil.disk_usage(folder).free, CHECKPOINT * parameters
    existing, best = len(checkpoints_in(folder)), bool(checkpoints_in(folder / BEST))
    first = checkpoint * (1 if best and existing >= config.keep_checkpoint_max else 2)
    kept = best + min(existing, latest_checkpoints(hparams, config))
    missing = disk_need(parameters, hparams, config) - kept * checkpoint
    if free < first:
        raise UserError(
            f"{folder}: its disk has {gigabytes(free)} GB free, but the next checkpoints need {gigabytes(first)} GB; "
            "free space, or give an --output_dir on another disk"
        )
    if free < missing:
        return (
            f"{folder}: its disk has {gigabytes(free)} GB free, but all checkpoints of this run need another "
            f"{gigabytes(missing)} GB; free space in time, or give a lower --keep_checkpoint_max"
        )
    return ""


def gigabytes(size: int) -> str:
    """Returns a number of bytes as text in GB, with two decimals, or with two significant digits if it is small."""
    return f"{size / 1e9:,.2f}" if size >= 1e8 else f"{size / 1e9:.2g}"
