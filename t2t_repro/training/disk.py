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
"""Bytes for each weight in a checkpoint of training, which also has Adam's averages of the gradient
and its square.
"""


def kept_checkpoints(hparams: HParams, config: RunConfig) -> int:
    """Returns the maximum number of checkpoints that a run keeps, latest and best ones; fewer in a
    short run.
    """
    limit = config.keep_checkpoint_max + config.max_checkpoints_by_score
    if config.save_checkpoints_secs:
        return limit  # the number of saves depends on the machine's speed
    return min(limit, math.ceil(hparams.train_steps / hparams.local_eval_frequency))


def disk_need(parameters: int, hparams: HParams, config: RunConfig) -> int:
    """Returns the bytes of a run's checkpoints: all it keeps, that in best/, the average, and one
    being written.
    """
    return parameters * (CHECKPOINT * (kept_checkpoints(hparams, config) + 2) + WEIGHT)


def refuse_full_disk(folder: Path, parameters: int, hparams: HParams, config: RunConfig) -> str:
    """Raises UserError if the disk of a model folder cannot hold the checkpoints that the run
    writes first.

    These are a latest checkpoint and a best checkpoint. If the folder already has a best checkpoint
    and all others that the run keeps, each new checkpoint replaces an old one, and space for one is
    enough.

    Returns a warning if the disk will be full before the end of the run, else "".
    """
    free = shutil.disk_usage(folder).free
    checkpoint = CHECKPOINT * parameters
    existing = len(checkpoints_in(folder))
    has_best = bool(checkpoints_in(folder / BEST))
    limit = config.keep_checkpoint_max + config.max_checkpoints_by_score
    first = checkpoint if has_best and existing >= limit else 2 * checkpoint
    kept = min(existing, kept_checkpoints(hparams, config)) + int(has_best)
    missing = disk_need(parameters, hparams, config) - kept * checkpoint
    if free < first:
        raise UserError(
            f"{folder}: its disk has {gigabytes(free)} GB free, but the next checkpoints need "
            f"{gigabytes(first)} GB; free space, or give an --output_dir on another disk"
        )
    if free < missing:
        return (
            f"{folder}: its disk has {gigabytes(free)} GB free, but all checkpoints of this run "
            f"need another {gigabytes(missing)} GB; free space in time, or give a lower "
            "--keep_checkpoint_max"
        )
    return ""


def gigabytes(size: int) -> str:
    """Returns a number of bytes as text in GB, with two decimals, or with two significant digits if
    it is small.
    """
    return f"{size / 1e9:,.2f}" if size >= 1e8 else f"{size / 1e9:.2g}"
