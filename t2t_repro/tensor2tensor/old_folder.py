"""Finds what an import needs in the folders of a tensor2tensor user: checkpoints, hparams.json, flags, vocabularies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from t2t_repro.checkpoints.reader import checkpoints_in
from t2t_repro.errors import UserError
from t2t_repro.files.untrusted import parse_json, read_text

FLAG_FILES = ("flags_t2t.txt", "flags.txt")
"""Files in which tensor2tensor's programs stored the flags of their runs, one --name=value in each line."""
HPARAMS = "hparams.json"


class OldFolder:
    """A folder that tensor2tensor's trainer or averaging program wrote.

    Args:
        path: the folder.

    Raises:
        UserError: the folder is missing, or a file in it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; give a folder with a checkpoint of tensor2tensor")
        self.flags: dict[str, str] = {}
        """The flags of the run, by name."""
        for name in FLAG_FILES:
            if (path / name).exists():
                lines = read_text(path / name).splitlines()
                matches = [re.fullmatch(r"--(\w+)=(.*)", line) for line in lines]
                self.flags |= {match[1]: match[2] for match in matches if match}

    def hparams_file(self) -> Path | None:
        """Returns the path of hparams.json in this folder or, for averages, in that of the training; else None.

        Raises:
            UserError: several folders could be that of the training, and their files differ.
        """
        if (self.path / HPARAMS).is_file():
            return self.path / HPARAMS
        folders = self._places(self.flags.get("output_dir", ""))
        files = [folder / HPARAMS for folder in folders if (folder / HPARAMS).is_file()]
        if len(files) > 1 and len({read_text(file) for file in files}) > 1:
            names = " and ".join(str(file) for file in files)
            raise UserError(f"{self.path}: {names} differ, and only one belongs to its training; give --hparams_json")
        return files[0] if files else None

    def vocabulary_files(self, problem: str) -> list[Path]:
        """Returns the vocabularies of the problem in this folder and in the data directory of the training.

        If neither has a file with the problem's name, returns all files there that begin with "vocab.".
        """
        places = [self.path, *self._places(self.flags.get("data_dir", ""))]
        files = sorted({file for place in places for file in place.glob("vocab.*") if file.is_file()})
        return [file for file in files if file.name.startswith(f"vocab.{problem}.")] or files

    def _places(self, path: str) -> list[Path]:
        """Returns the existing folders that a flag can mean.

        A relative path is relative to the folder in which tensor2tensor ran. So it is tried from all folders above
        this one, and from the current folder.
        """
        if not path:
            return []
        starts = dict.fromkeys([*self.path.absolute().parents, Path.cwd()])
        return [folder for start in starts if (folder := start / path).is_dir()]


def last_checkpoints(path: Path, count: int) -> list[str]:
    """Returns the paths of a folder's last checkpoints, oldest first.

    Raises:
        UserError: the folder has fewer than `count` checkpoints.
    """
    paths, others = checkpoints_in(path), sorted(path.glob("*ckpt-*.index"))
    if others and not paths:  # e.g. averaged.ckpt-0 of tensor2tensor's averaging
        raise UserError(
            f"{path}: has no checkpoint model.ckpt-*; give --checkpoint, e.g. --checkpoint={others[0].with_suffix('')}"
        )
    if len(paths) < count:
        raise UserError(
            f"{path}: has {len(paths)} checkpoints model.ckpt-*, not {count}; "
            + ("copy the checkpoint there" if count == 1 else f"give --average_last={len(paths) or 1} or less")
        )
    return paths[-count:]


def read_hparams(path: Path) -> dict[str, Any]:
    """Returns the hparams in a file hparams.json of tensor2tensor. Raises UserError if it is missing or damaged."""
    try:
        values = parse_json(read_text(path), str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such file; give the hparams.json of the training") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a JSON object; restore the file")
    return values
