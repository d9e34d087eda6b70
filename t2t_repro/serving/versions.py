"""Writes numbered versions of a model to a folder that a server watches. A version appears only when it is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from t2t_repro.errors import UserError


@contextmanager
def new_version(export_dir: str | Path) -> Iterator[tuple[Path, Path]]:
    """Yields a temporary folder, and the path to which this function moves the folder when the `with` block ends.

    The number of the new version is one higher than the highest in `export_dir`; the first is 1. If the block raises an
    exception, the temporary folder is deleted. An OSError, e.g. for a full disk, becomes a UserError.
    """
    export_dir = Path(export_dir)
    temporary = ""
    try:
        export_dir.mkdir(parents=True, exist_ok=True)
        versions = [int(path.name) for path in export_dir.iterdir() if path.name.isdecimal() and path.name.isascii()]
        version = export_dir / str(max(versions, default=0) + 1)
        temporary = tempfile.mkdtemp(prefix=".writing-", dir=export_dir)
        yield Path(temporary), version
        os.chmod(temporary, 0o755)
        os.replace(temporary, version)
    except OSError as error:
        raise UserError(
            f"{export_dir}: cannot be written ({error.strerror or error}); free space or choose another --export_dir"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
