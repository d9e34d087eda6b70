"""Writes and deletes the files of checkpoints.

TensorFlow's state file, named `checkpoint`, lists the checkpoints of each folder, so that
`tf.train.latest_checkpoint(folder)` works. The paths in the state file are relative, so that the
folder can be moved.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_repro.checkpoints.reader import CHECKPOINT
from t2t_repro.errors import UserError, first_line
from t2t_repro.files.output_files import sync, unfinished_folder, write_file

STATE = "checkpoint"
"""Name of TensorFlow's state file, which lists a folder's checkpoints."""
BEST = "best"
"""Subfolder of a model folder for the best checkpoint on the dev split."""
FILE = re.compile(rf"({re.escape(CHECKPOINT)}-[0-9]+)\.(index|data-[0-9]{{5}}-of-[0-9]{{5}})")
"""Pattern of the names of checkpoints' files; group 1 is the checkpoint's name."""


def write_checkpoint(checkpoint: Any, folder: Path, step: int) -> str:
    """Writes a checkpoint and returns its path. Only one process at a time may write checkpoints in
    `folder`.

    The index file appears last, because programs ignore a checkpoint that has no index file.
    """
    path = folder / f"{CHECKPOINT}-{step}"
    try:
        with unfinished_folder(folder) as unfinished:
            checkpoint.write(str(unfinished / path.name))
            files = sorted(unfinished.iterdir())  # .index after .data
            # The caller deletes older checkpoints next. If the power fails, the new files must be
            # on the disk before.
            for file in files:
                _sync(file)
            # If a checkpoint of this step exists already, its index file is deleted first. If the
            # process is then killed before all files are replaced, no program reads the mixture,
            # which has no index file.
            Path(f"{path}.index").unlink(missing_ok=True)
            for file in files:
                file.replace(folder / file.name)
        _sync(folder)
    except (tf.errors.OpError, OSError) as error:
        raise UserError(
            f"{folder}: checkpoint {step} cannot be written ({first_line(error)}); free space or "
            "choose another folder, then run the same command again"
        ) from None
    return str(path)


def keep_only(folder: Path, checkpoints: Sequence[str]) -> None:
    """Deletes the checkpoints of a folder except `checkpoints`, oldest first, which the state file
    then lists.
    """
    names = [Path(path).name for path in checkpoints]
    if names:
        lines = [
            f'model_checkpoint_path: "{names[-1]}"',
            *(f'all_model_checkpoint_paths: "{name}"' for name in names),
        ]
        write_file(folder / STATE, "".join(f"{line}\n" for line in lines))
    # If the process is killed between the deletions, only data files remain, which no program reads
    # as a checkpoint.
    for path in _index_first(folder):
        if path.name.rpartition(".")[0] not in names:
            path.unlink()


def set_aside(path: str) -> None:
    """Renames the files of a damaged checkpoint to damaged-NAME, so that no program reads them as a
    checkpoint.
    """
    for file in _index_first(Path(path).parent):
        if file.name.rpartition(".")[0] == Path(path).name:
            file.rename(file.with_name(f"damaged-{file.name}"))


def _index_first(folder: Path) -> list[Path]:
    """Returns the files of all checkpoints in a folder, index files before data files."""
    files = [
        file
        for file in folder.glob(f"{CHECKPOINT}-*")
        if FILE.fullmatch(file.name) and file.is_file()
    ]
    return sorted(files, key=lambda file: file.suffix != ".index")


def _sync(path: Path) -> None:
    """Waits until the disk has stored a file's contents, or the list of files in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
