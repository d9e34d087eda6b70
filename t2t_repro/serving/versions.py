"""Writes numbered versions of a model to a folder that a server watches. A version appears only when it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from t2t_repro.errors import UserError
from t2t_repro.files.output_files import locked, unfinished_folder

SAVED_MODEL, CTRANSLATE2 = "saved_model.pb", "model.bin"
"""For each format, a file that every version has."""


@contextmanager
def new_version(export_dir: str | Path, model_file: str) -> Iterator[tuple[Path, Path]]:
    """Yields a temporary folder, and the path to which this function moves the folder when the `with` block ends.

    The number of the new version is one higher than the highest in `export_dir`; the first is 1. If the block raises an
    exception, the temporary folder is deleted. If the process is killed, the next call deletes it.

    Args:
        export_dir: folder of the versions.
        model_file: `SAVED_MODEL` or `CTRANSLATE2`, the format of the new version.

    Raises UserError if another process is writing a version, if a version has the other format, or instead of an
    OSError, e.g. for a full disk.
    """
    export_dir = Path(export_dir)
    refusal = f"{export_dir}: another export is at work there; wait for its end or choose another --export_dir"
    try:
        with locked(export_dir / ".lock", refusal, "choose another --export_dir"):
            names = [path.name for path in export_dir.iterdir()]
            versions = [int(name) for name in names if name.isdecimal() and name.isascii()]
            (other,) = {SAVED_MODEL, CTRANSLATE2} - {model_file}
            if mixed := [number for number in sorted(versions) if (export_dir / str(number) / other).exists()]:
                raise UserError(f"{export_dir}: version {mixed[0]} has another --format; give another --export_dir")
            version = export_dir / str(max(versions, default=0) + 1)
            with unfinished_folder(export_dir) as temporary:
                yield temporary, version
                os.replace(temporary, version)
    except OSError as error:
        raise UserError(
            f"{export_dir}: cannot be written ({error.strerror or error}); free space or choose another --export_dir"
        ) from None
