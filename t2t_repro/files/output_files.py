"""Writes output files: under a temporary name, renamed when they are complete, and locked against a second process.

A stream, such as a device, a pipe or a terminal, cannot be replaced, so programs write to it directly.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

from t2t_repro.errors import UserError

MAX_LINKS = 40
"""Number of symbolic links in a chain after which Linux reports a loop."""
DESCRIPTOR = re.compile(r"/proc/(\d+)/(?:task/\d+/)?fd/(\d+)")
"""Path in /proc of a file that a process has open. Links such as /dev/stdout and /dev/fd/63 lead to such paths."""

UNFINISHED = ".unfinished"
"""Start of the names of temporary files and folders. Also the suffix of the file, beside the output file, that keeps
finished translations until all are finished."""

FileId = str | Path | int
"""A path, or the number of an open file such as 0 for standard input."""
Input = tuple[str, FileId]
"""A file that a program reads: the flag or the words that name it in error messages, and the file."""


@contextmanager
def whole_file(path: str | Path, mode: str = "wb") -> Iterator[IO]:
    """Returns a context that opens a file for writing. `path` changes only if the context ends without an error.

    If `path` is a symbolic link, the file to which it leads is replaced. A stream, such as /dev/null, /dev/stdout or a
    named pipe, is opened and written directly.

    Raises UserError if the file cannot be written, e.g. because the disk is full, and BrokenPipeError if no process
    reads the stream any more.
    """
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    temporary = None
    try:
        if is_stream(path):
            with open(_open_stream(path), mode, encoding=encoding, newline=newline) as file:
                yield file
            return
        target = without_links(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{UNFINISHED}-{secrets.token_hex(8)}")
        with open(temporary, mode.replace("w", "x"), encoding=encoding, newline=newline) as file:
            _copy_permissions(target, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); free space or choose another path"
        ) from None
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


@contextmanager
def unfinished_folder(parent: Path) -> Iterator[Path]:
    """Returns a context with an empty folder inside `parent`, for files that the caller renames when all are complete.

    The folder and what is left in it are deleted at the end; after a kill, by the next call. So only one process at a
    time may be in the context for the same `parent`; see `locked`.
    """
    folder = parent / UNFINISHED
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(temporary: Path, target: Path) -> None:
    """Renames a finished temporary file to `target`. Keeps the permissions of an existing `target`."""
    _copy_permissions(target, temporary)
    os.replace(temporary, target)


def _copy_permissions(source: Path, target: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.copymode(source, target)


def without_links(path: str | Path) -> Path:
    """Returns the path of the file to which symbolic links lead, or `path` itself if it is not a link.

    A link to an open file, such as /dev/stdout, leads to a path in /proc, e.g. /proc/123/fd/1. The function returns
    that path, although it is a link itself, because its target may not be a path.

    Raises OSError if the links form a loop.
    """
    path = Path(path)
    for _ in range(MAX_LINKS):
        real = Path(os.path.realpath(path.parent), path.name)
        if DESCRIPTOR.fullmatch(str(real)):
            return real
        if not path.is_symlink():
            return path
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def is_stream(path: str | Path) -> bool:
    """Returns True for an open file such as /dev/stdout, and for an existing device, pipe or socket.

    Raises OSError if the path cannot be read.
    """
    target = without_links(path)
    if DESCRIPTOR.fullmatch(str(target)):
        return True
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _open_stream(path: str | Path) -> int:
    """Opens a path for which `is_stream` is True. Returns a new file descriptor.

    For an open file of this process, such as /dev/stdout, the new descriptor continues at the position of the old one,
    so that nothing that was written before is lost.
    """
    target = without_links(path)
    match = DESCRIPTOR.fullmatch(str(target))
    if match and int(match[1]) == os.getpid():
        return os.dup(int(match[2]))
    return os.open(target, os.O_WRONLY | os.O_APPEND)


@contextmanager
def output_file(flag: str, path: str, suffix: str, inputs: Sequence[Input]) -> Iterator[Path]:
    """Returns a context in which a program may write the output `path`. Provides `without_links(path)`.

    Unless the output is a stream, only one process at a time can be in the context of the same output.

    Args:
        flag: the flag that named the output, for error messages.
        path: path of the output, as the user gave it.
        suffix: ending of the temporary file that the program writes, too: its path is the output's path + `suffix`.
        inputs: the files that the program reads.

    Raises UserError if the output is a folder or one of `inputs`, cannot be written, or is written by another process.
    """
    refuse_folder_name(flag, path)
    try:
        target, has_lock = without_links(path), not is_stream(path)
    except OSError as error:
        raise UserError(f"{flag}={path} cannot be written ({error.strerror}); choose another path") from None
    if not has_lock and not os.access(target, os.W_OK):
        raise UserError(f"{flag}={path} cannot be written; choose another path")
    if target.is_dir():
        raise UserError(f"{flag}={path} is a folder; name a file")
    refuse_overwriting(flag, [path, f"{target}{suffix}"], inputs)
    with only_writer(target, flag) if has_lock else nullcontext():
        yield target


def refuse_folder_name(flag: str, path: str) -> None:
    """Raises UserError if the path of an output file ends in "/"."""
    if path.endswith("/"):
        raise UserError(f"{flag}={path} is a folder; name a file")


def refuse_irregular(path: Path) -> None:
    """Raises UserError if the path of a temporary file exists but is not a regular file, e.g. a link or a folder."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise UserError(f"{path} is not a regular file; move it away or choose another output file")


def refuse_overwriting(flag: str, outputs: Iterable[FileId], inputs: Iterable[Input]) -> None:
    """Raises UserError if a program would overwrite a regular file that it also reads, even under another path.

    Args:
        flag: the flag that named the output.
        outputs: the files that the program writes.
        inputs: the files that the program reads.
    """
    names = {_inode(path): name for name, path in inputs}
    for output in outputs:
        if (inode := _inode(output)) and inode in names:
            shown = "standard output" if isinstance(output, int) else output
            raise UserError(
                f"{shown} is also an input ({names[inode]}) and would be overwritten; choose another {flag}"
            )


def _inode(file: FileId) -> tuple[int, int] | None:
    """Returns two numbers that identify a regular file; None if `file` is missing, a stream or a folder."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


@contextmanager
def only_writer(path: Path, flag: str) -> Iterator[None]:
    """Returns a context in which no other program of this project writes the output file `path`.

    The lock file .NAME.lock lies beside the output file; see `locked`.

    Args:
        path: path of the output file; see `without_links`.
        flag: the flag that named the file, for error messages.

    Raises UserError if another process is writing the file, or if its folder cannot be written.
    """
    refusal = f"{path}: another process is writing this file; wait for its end, or choose another {flag}"
    with locked(path.with_name(f".{path.name}.lock"), refusal, f"choose another {flag}"):
        yield


@contextmanager
def locked(path: Path, refusal: str, cure: str) -> Iterator[None]:
    """Returns a context in which this process holds the lock file `path`. Creates the file and its folder if necessary.

    The operating system releases the lock when the process ends, even after a kill. So a lock file that was left behind
    does not stop a later process. If the file system has no locks, the context has no effect. At the end, the file is
    deleted; a file with contents belongs to the user, and stays.

    Args:
        path: the lock file.
        refusal: message of the error if another process holds the lock.
        cure: what the user can do if the file cannot be written, e.g. "choose another --data_dir".

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
            if _is_open_file(file, path) and not os.fstat(file.fileno()).st_size:
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
