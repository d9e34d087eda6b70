"""The disk space that the checkpoints of a training run need."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from t2t_repro.checkpoints.checkpoint_files import BEST
from t2t_repro.checkpoints.reader import checkpoints_in
from t2t_repro.console.tables import Table
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models.size_formulas import FLOAT32
from t2t_repro.training.config import RunConfig

ADAM_VARIABLES = 2
"""Number of Adam's variables for each weight: the moving averages of the gradient and of its square."""


@dataclass(frozen=True)
class DiskNeed:
    """The disk space that a training run needs for its checkpoints. The indexes and logs, a few MB, are not counted."""

    latest: int
    """Number of latest checkpoints that the run keeps: --keep_checkpoint_max, or fewer if the run saves fewer."""
    weights: int
    """Bytes of the model's weights."""

    @classmethod
    def of(cls, parameters: int, hparams: HParams, config: RunConfig) -> DiskNeed:
        """Returns the disk need of a run that trains a model with `parameters` weights by Adam."""
        saves = math.ceil(hparams.train_steps / config.local_eval_frequency)
        # With save_checkpoints_secs, the number of saves depends on the machine's speed, so the maximum is assumed.
        latest = config.keep_checkpoint_max if config.save_checkpoints_secs else min(config.keep_checkpoint_max, saves)
        return cls(latest, FLOAT32 * parameters)

    @property
    def checkpoint(self) -> int:
        """Bytes of a checkpoint: the weights and Adam's variables."""
        return self.weights * (1 + ADAM_VARIABLES)

    @property
    def total(self) -> int:
        """Bytes of all checkpoints that the disk must hold at the same time."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """Returns the bytes of all checkpoints of each kind. The keys of the dictionary describe the kinds."""
        return {
            f"{self.latest:,} latest checkpoints (--keep_checkpoint_max)": self.latest * self.checkpoint,
            "best checkpoint": self.checkpoint,
            "averaged checkpoint, without Adam's variables": self.weights,
            "checkpoint that is being written": self.checkpoint,
        }

    def table(self) -> Table:
        """Returns a table for a dry run: the bytes of each kind of checkpoint, and the bytes of all together."""
        lines = [{"disk": name, "disk_bytes": size} for name, size in [*self.parts().items(), ("together", self.total)]]
        return Table("disk", "Disk space for checkpoints", lines)


def refuse_full_disk(folder: Path, need: DiskNeed, keep: int) -> str:
    """Checks that the disk of a model folder can hold the checkpoints that the run writes first.

    These are a latest checkpoint and a best checkpoint. If the folder already has a best checkpoint and `keep` latest
    checkpoints, each new checkpoint replaces an old one, and space for one is enough.

    Args:
        folder: the model folder, which must exist.
        need: the run's disk need.
        keep: value of --keep_checkpoint_max.

    Returns:
        A warning if the disk will be full before the end of the run, else "".

    Raises:
        UserError: if there is too little space.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # the file system does not say how much space is free
        return ""
    existing, best = len(checkpoints_in(folder)), checkpoints_in(folder / BEST)
    count = 1 if best and existing >= keep else 2
    if free < count * need.checkpoint:
        raise UserError(
            f"{folder}: its disk has {gigabytes(free)} GB free, but the next checkpoints need "
            f"{gigabytes(count * need.checkpoint)} GB; free space, or give an --output_dir on another disk"
        )
    missing = need.total - (min(existing, need.latest) + bool(best)) * need.checkpoint
    if free < missing:
        return (
            f"{folder}: its disk has {gigabytes(free)} GB free, but all checkpoints of this run need another "
            f"{gigabytes(missing)} GB; free space in time, or give a lower --keep_checkpoint_max"
        )
    return ""


def gigabytes(size: int) -> str:
    """Returns a number of bytes as text in GB, with two decimals, or with two significant digits if it is small."""
    return f"{size / 1e9:,.2f}" if size >= 1e8 else f"{size / 1e9:.2g}"
