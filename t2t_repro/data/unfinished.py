"""The folder in a data directory in which t2t-datagen writes all files, and the moves to their
places.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from t2t_repro.data import records, summary
from t2t_repro.data.dataset import SPLITS, description_path
from t2t_repro.data.large_split import counts_path
from t2t_repro.files import output_files
from t2t_repro.files.output_files import UNFINISHED, locked

LOCK = ".datagen.lock"
"""Name of the file in a data directory that t2t-datagen keeps locked, so that no second run writes
there.
"""


@contextmanager
def unfinished_folder(data_dir: Path) -> Iterator[Path]:
    """Returns a context with an empty folder for the new files, in which no other t2t-datagen
    writes to `data_dir`.

    If the context ends before `put_in_place`, the data directory is as it was, or missing if it was
    missing.
    """
    refusal = (
        f"{data_dir}: another t2t-datagen is at work there; wait for its end, or give another "
        "--data_dir"
    )
    with locked(data_dir / LOCK, refusal):
        _delete_part(data_dir)
        with output_files.unfinished_folder(data_dir) as folder:
            try:
                yield folder
            finally:
                _delete_part(data_dir)


def _delete_part(data_dir: Path) -> None:
    """Deletes the shards of a run that was stopped while it moved its files to the data directory.

    `put_in_place` deletes the old description first, and moves the new one last. So if only the
    run's folder has a description, the data directory has only a part of the shards.
    """
    for path in (data_dir / UNFINISHED).glob("*.json"):
        if path.name != summary.FILE_NAME and not (data_dir / path.name).exists():
            _delete_data(data_dir, path.stem)


def put_in_place(folder: Path, problem: str) -> None:
    """Replaces the data of a problem in the data directory by the files in the run's folder."""
    description = description_path(folder, problem)
    _delete_data(folder.parent, problem)
    for path in sorted(folder.iterdir(), key=lambda path: path == description):
        os.replace(path, folder.parent / path.name)


def _delete_data(data_dir: Path, problem: str) -> None:
    description_path(data_dir, problem).unlink(missing_ok=True)
    for split in SPLITS:
        counts_path(records.shard_path(data_dir, problem, split, 0, 1)).unlink(missing_ok=True)
        for path in records.find_files(data_dir, problem, split):
            path.unlink()
