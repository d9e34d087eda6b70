"""Locks, with which only one process at a time uses a folder or writes an output file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from t2t_repro.errors import UserError


@contextmanager
def locked(path: Path, refusal: str, cure: str, delete: bool = False) -> Iterator[None]:
    """Returns a context in which this process holds the lock file `path`. Creates the file and its folder if necessary.

    The operating system releases the lock when the process ends, even after a kill. So a lock file that was left behind
    does not stop a later process. If the file system has no locks, the context has no effect.

    Args:
        path: the lock file.
        refusal: message of the error if another process holds the lock.
        cure: what the user can do if the file cannot be written, e.g. "choose another --data_dir".
        delete: True to delete the lock file at the end. A file with contents belongs to the user, and stays.

    Raises UserError if another process holds the lock, or the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _open_locked(path, refusal)
    except FileExistsError:
        raise UserError(f"{path.parent}: not a folder; {cure}") from None
    except OSError as error:
        raise UserError(f"{path.parent}: cannot be written ({error.strerror or error}); {cure}") from None
    with file:
        try:
            yield
        finally:
            # Delete the file while it is locked. Otherwise another process could lock it first and lose its lock file.
            if delete and _is_open_file(file, path) and not os.fstat(file.fileno()).st_size:
                path.unlink(missing_ok=True)


def _open_locked(path: Path, refusal: str) -> IO[bytes]:
    while True:
        # On NFS, other machines see only the locks of files that are open for writing. Without O_NONBLOCK, opening a
        # named pipe would wait for a process that reads it.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        file = open(os.open(path, flags, 0o666), "ab")  # noqa: SIM115, closed by the caller
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UserError(refusal) from None
        except OSError:  # the file system has no locks: continue without one
            return file
        if _is_open_file(file, path):
            return file
        file.close()  # the process that held the lock before has deleted the file: lock the file that is there now


def _is_open_file(file: IO[bytes], path: Path) -> bool:
    """Returns True if `path` leads to the open `file`; False if another process has deleted or replaced that file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
