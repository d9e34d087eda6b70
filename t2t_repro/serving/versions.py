"""Writes numbered versions of a model to a folder that a server watches. A version appears only
when it is complete.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from t2t_repro.files.output_files import locked, unfinished_folder


@contextmanager
def new_version(export_dir: str | Path) -> Iterator[tuple[Path, Path]]:
    """Yields a temporary folder, and the path to which this function moves the folder when the
    `with` block ends.

    The number of the new version is one higher than the highest in `export_dir`; the first is 1. If
    the block raises an exception, the temporary folder is deleted. If the process is killed, the
    next call deletes it.

    Raises UserError if another process is writing a version.
    """
    export_dir = Path(export_dir)
    refusal = (
        f"{export_dir}: another export is at work there; wait for its end or choose another "
        "--export_dir"
    )
    with locked(export_dir / ".lock", refusal):
        names = [path.name for path in export_dir.iterdir()]
        versions = [int(name) for name in names if name.isdecimal() and name.isascii()]
        version = export_dir / str(max(versions, default=0) + 1)
        with unfinished_folder(export_dir) as temporary:
            yield temporary, version
            temporary.rename(version)
