"""Writes small tar archives, which tests use instead of published ones."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    """Writes a tar archive, compressed with gzip unless its name ends in .tar; returns its path.

    Args:
        files: contents of the files by their paths inside the archive.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:" if path.suffix == ".tar" else "w:gz") as tar:
        for name, contents in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            tar.addfile(member, io.BytesIO(contents))
    return path
