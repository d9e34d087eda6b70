"""Numbered folders that appear whole: a server that watches the place never sees half of one."""

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
    """A folder to write to, and the one that it becomes where the block ends well.

    That one's number is one higher than the highest there, from 1.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    export_dir = Path(export_dir)
    beside = ""
    try:
        export_dir.mkdir(parents=True, exist_ok=True)
        versions = [int(path.name) for path in export_dir.iterdir() if path.name.isdigit()]
        target = export_dir / str(max(versions, default=0) + 1)
        beside = tempfile.mkdtemp(prefix=".writing-", dir=export_dir)
        yield Path(beside), target
        os.chmod(beside, 0o755)
        os.replace(beside, target)
    except OSError as error:
        raise UserError(
            f"{export_dir}: cannot be written ({error.strerror or error}); free space or choose another --export_dir"
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
