"""Reads and writes all files of a folder."""

from collections.abc import Mapping
from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the contents of all files in a folder and its subfolders, by path in the folder. No
    folder gives {}.
    """
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def put(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes files, given by name, into a folder."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
