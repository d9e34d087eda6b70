"""Keeps a training run from overwriting files in --output_dir that no training run has written."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from pathlib import Path

from t2t_repro.checkpoints.checkpoint_files import STATE
from t2t_repro.checkpoints.model_folder import Origin
from t2t_repro.checkpoints.reader import checkpoints_in
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import from_json
from t2t_repro.files.untrusted import read_text
from t2t_repro.hparam import HParams
from t2t_repro.training import metrics_log

T2T_FLAGS = "flags_t2t.txt"
"""File that tensor2tensor's trainer writes to its model folder."""
LATER_FILES = (STATE, metrics_log.FILE, "results.json", "report.md")
"""Files that t2t-trainer and t2t-reproduce write after the first checkpoint."""


def refuse_foreign_files(folder: Path, first_files: Mapping[str, bytes]) -> None:
    """Raises UserError if a training run would overwrite a file in `folder` that no training run has written.

    This includes the files of tensor2tensor's trainer.

    A folder with valid hparams.json and problem.json is a model folder, whose files a training run has written. If one
    of the two is missing, an earlier run may have been killed while it wrote its first files. So that the same command
    can start again, files with the contents that this run would write are accepted.

    Args:
        folder: value of --output_dir; the folder may not exist yet.
        first_files: contents of the files that the run writes first, by name.
    """
    if _is_json(folder / "hparams.json", HParams) and _is_json(folder / "problem.json", Origin):
        return
    if (folder / T2T_FLAGS).exists():
        raise UserError(
            f"{folder / T2T_FLAGS}: tensor2tensor trained the model in this folder; run t2t-import "
            f"--t2t_model={shlex.quote(str(folder))} --output_dir=M, and train in another --output_dir with "
            "--warm_start_from=M"
        )
    may_overwrite = {name: _holds(folder / name, contents) for name, contents in first_files.items()}
    may_overwrite |= dict.fromkeys(LATER_FILES, bool(checkpoints_in(folder)))
    for name in may_overwrite:
        if (folder / name).exists() and not may_overwrite[name]:
            raise UserError(
                f"{folder / name}: would be overwritten, but no training run has written it; move the file or give "
                "another --output_dir"
            )


def _is_json(path: Path, kind: type) -> bool:
    """Returns True if a file holds the fields of dataclass `kind` as JSON."""
    with contextlib.suppress(OSError, UserError):
        from_json(kind, read_text(path), str(path))
        return True
    return False


def _holds(path: Path, contents: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(contents) and path.read_bytes() == contents
