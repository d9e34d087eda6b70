"""Small archives, as published ones are made."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    """A tar archive of `files`, by their paths inside; gzipped if its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:" if path.suffix == ".tar" else "w:gz") as tar:
        for name, contents in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            tar.addfile(member, io.BytesIO(contents))
    return path
