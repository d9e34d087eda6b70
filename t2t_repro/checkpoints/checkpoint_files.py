"""Writes, lists, renames and deletes the files of checkpoints.

TensorFlow's state file, named `checkpoint`, lists the checkpoints of each folder, so that
`tf.train.latest_checkpoint(folder)` works. The paths in the state file are relative, so that the folder can be moved.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_repro.checkpoints.reader import CHECKPOINT, checkpoints_in
from t2t_repro.errors import UserError, first_line
from t2t_repro.files.textfile import whole_file

UNFINISHED = "unfinished-"
"""Prefix of a checkpoint's file names until the checkpoint is complete."""

STATE = "checkpoint"
"""Name of TensorFlow's state file, which lists a folder's checkpoints."""

BEST = "best"
"""Subfolder of a model folder for the checkpoint with the lowest dev loss."""

DATA_FILE = re.compile(rf"({re.escape(CHECKPOINT)}-[0-9]+)\.data-[0-9]{{5}}-of-[0-9]{{5}}")
"""Pattern of the names of checkpoints' data files; group 1 is the checkpoint's name."""

UNFINISHED_FILE = re.compile(rf"{UNFINISHED}{re.escape(CHECKPOINT)}-[0-9]+[._].*", re.DOTALL)
"""Pattern of the names of files and folders that TensorFlow creates while it writes a checkpoint."""

TEMPORARY_FILE = re.compile(
    r"\.(checkpoint|hparams\.json|problem\.json|metrics\.jsonl|vocab\..+|not_finite-[0-9]+\.tsv)\.[a-z0-9_]{8}",
    re.DOTALL,
)
"""Pattern of the temporary names that `textfile.whole_file` gives a training run's files until they are complete."""


def write_checkpoint(checkpoint: Any, folder: Path, step: int) -> str:
    """Writes a checkpoint and returns its path.

    The index file gets its final name last, because programs ignore a checkpoint that has no index file.

    Raises:
        UserError: if the disk is full or the folder cannot be written.
    """
    path = folder / f"{CHECKPOINT}-{step}"
    unfinished = f"{UNFINISHED}{path.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.write(str(folder / unfinished))
        files = sorted(folder.glob(f"{unfinished}.*"))
        # If a checkpoint of this step exists already, its index file is deleted first. If the process is then killed
        # before all files are replaced, no program reads the mixture of old and new files, which has no index file.
        (folder / f"{path.name}.index").unlink(missing_ok=True)
        # The caller deletes older checkpoints next. In case the power fails, the new files must be on the disk before.
        for file in files:
            _sync(file)
        # If the process is killed while TensorFlow writes an index file, the file may be empty. So TensorFlow wrote to
        # temporary names, and the complete files are renamed here, the index last.
        for file in files:
            file.replace(folder / file.name.replace(unfinished, path.name))
        _sync(folder)
    except (tf.errors.OpError, OSError) as error:
        _delete_matching(folder, re.compile(rf"{re.escape(unfinished)}[._].*", re.DOTALL))
        raise UserError(
            f"{folder}: checkpoint {step} cannot be written ({first_line(error)}); free space or choose another "
            "folder, then run the same command again"
        ) from None
    return str(path)


def keep_only(folder: Path, checkpoints: Sequence[str]) -> None:
    """Deletes all checkpoints of a folder except `checkpoints`, and lists `checkpoints` in the state file.

    Args:
        folder: folder of the checkpoints.
        checkpoints: paths of the checkpoints to keep, oldest first.

    Raises:
        UserError: if the state file cannot be written.
    """
    if checkpoints:
        names = [Path(path).name for path in checkpoints]
        with whole_file(folder / STATE, "w") as file:
            file.write(f'model_checkpoint_path: "{names[-1]}"\n')
            file.writelines(f'all_model_checkpoint_paths: "{name}"\n' for name in names)
    else:
        (folder / STATE).unlink(missing_ok=True)
    for path in checkpoints_in(folder):
        if path not in checkpoints:
            delete(path)


def delete(path: str) -> None:
    """Deletes the files of a checkpoint, the index file first.

    If the process is killed between the deletions, only data files remain, which no program reads as a checkpoint.
    """
    for file in _files(path):
        if file.is_file():
            file.unlink()


def set_aside(path: str) -> None:
    """Renames the files of a damaged checkpoint to damaged-NAME, so that no program reads them as a checkpoint."""
    for file in _files(path):
        file.rename(file.with_name(f"damaged-{file.name}"))


def delete_unfinished(folder: Path) -> None:
    """Deletes the files that a killed process left unfinished in a model folder and its subfolder `BEST`.

    These are temporary files, and checkpoint data files without an index file. The function recognizes them by their
    names, and keeps all other files, which may be the user's.
    """
    for place in (folder, folder / BEST):
        names = {Path(path).name for path in checkpoints_in(place)}
        _delete_matching(place, UNFINISHED_FILE)
        for path in _matching(place, TEMPORARY_FILE) + _matching(place, DATA_FILE):
            data_file = DATA_FILE.fullmatch(path.name)
            if path.is_file() and not (data_file and data_file[1] in names):
                path.unlink()


def _files(checkpoint: str) -> list[Path]:
    """Returns the paths of a checkpoint's existing files: its index file first, then its data files."""
    path = Path(checkpoint)
    files = [path.with_name(f"{path.name}.index"), *_matching(path.parent, DATA_FILE)]
    return [file for file in files if file.name.startswith(f"{path.name}.") and file.exists()]


def _matching(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """Returns the sorted paths of the files and folders in `folder` whose whole names match a pattern."""
    return sorted(path for path in folder.iterdir() if name.fullmatch(path.name)) if folder.is_dir() else []


def _delete_matching(folder: Path, name: re.Pattern[str]) -> None:
    """Deletes the files in `folder` whose whole names match a pattern, and such folders with their contents."""
    for path in _matching(folder, name):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _sync(path: Path) -> None:
    """Waits until the disk has stored a file's contents, or the list of files in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
