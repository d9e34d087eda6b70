"""The files of checkpoints: written whole, deleted, moved aside, and listed for TensorFlow.

Each folder of checkpoints has TensorFlow's state file `checkpoint`, so that `tf.train.latest_checkpoint(folder)` works.
Its paths are relative, so that the folder can be moved.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_repro.checkpoint_reader import CHECKPOINT, checkpoints_in
from t2t_repro.errors import UserError
from t2t_repro.textfile import whole_file

UNFINISHED = "unfinished-"
"""Start of the name of a checkpoint that is being written."""

STATE = "checkpoint"
"""Name of TensorFlow's state file."""

BEST = "best"
"""Folder, inside a model folder, of the checkpoint with the lowest dev loss."""


def write_checkpoint(checkpoint: Any, folder: Path, step: int) -> str:
    """Writes a tf.train.Checkpoint, so that it appears whole or not at all; returns its path.

    Raises:
        UserError: if the disk is full or the folder cannot be written.
    """
    path = folder / f"{CHECKPOINT}-{step}"
    unfinished = f"{UNFINISHED}{path.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.write(str(folder / unfinished))
        files = sorted(folder.glob(f"{unfinished}.*"))
        # If a checkpoint of this name exists, its index is deleted first: without an index it is no checkpoint, even
        # if the process is killed when only its data has been replaced.
        (folder / f"{path.name}.index").unlink(missing_ok=True)
        # Older checkpoints are deleted next. If the power fails then, this one must be on the disk.
        for file in files:
            _sync(file)
        # TensorFlow writes the index in place, so a kill may leave it empty. Here the whole index is renamed, last.
        for file in files:
            file.replace(folder / file.name.replace(unfinished, path.name))
        _sync(folder)
    except (tf.errors.OpError, OSError) as error:
        for file in folder.glob(f"{unfinished}[._]*"):
            _delete_any(file)
        raise UserError(
            f"{folder}: checkpoint {step} cannot be written ({first_line(error)}); free space or choose another "
            "folder, then run the same command again"
        ) from None
    return str(path)


def keep_only(folder: Path, checkpoints: Sequence[str]) -> None:
    """Lists checkpoints in the folder's state file, then deletes all others.

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
    """Deletes a checkpoint. Its index is first: without an index, no program takes the rest for a checkpoint."""
    for file in (Path(f"{path}.index"), *sorted(Path(path).parent.glob(f"{Path(path).name}.data-*"))):
        file.unlink(missing_ok=True)


def set_aside(path: str) -> None:
    """Renames a damaged checkpoint's files, so that no program takes them for a checkpoint."""
    for file in sorted(Path(path).parent.glob(f"{Path(path).name}.*")):
        file.rename(file.with_name(f"damaged-{file.name}"))


def delete_unfinished(folder: Path) -> None:
    """Deletes a killed process's unfinished files in a model folder: temporary files, and data without an index."""
    for place in (folder, folder / BEST):
        for path in place.glob(f".*.{'?' * 8}"):  # the temporary names of `whole_file`
            path.unlink(missing_ok=True)
        names = {Path(path).name for path in checkpoints_in(place)}
        for path in place.glob(f"{UNFINISHED}{CHECKPOINT}-*"):
            _delete_any(path)
        for path in place.glob(f"{CHECKPOINT}-*.data-*"):
            if path.name.partition(".data-")[0] not in names:
                _delete_any(path)


def refuse_unreadable(path: str) -> None:
    """Raises UserError if a checkpoint's files cannot be read. TensorFlow's error would call them damaged."""
    for file in sorted(Path(path).parent.glob(f"{Path(path).name}.*")):
        try:
            with open(file, "rb") as stream:
                while stream.read(1 << 24):
                    pass
        except OSError as error:
            raise UserError(
                f"{file}: cannot be read ({error.strerror or error}); check the disk and the permissions, then run the "
                "same command again"
            ) from None


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, without TensorFlow's names of nodes."""
    text = str(error).strip()
    return re.sub(r"\{\{.*\}\} | \[Op:.*", "", text.splitlines()[0]) if text else type(error).__name__


def _delete_any(path: Path) -> None:
    """Deletes a file, or a folder with its contents."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Waits until a file's contents, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
