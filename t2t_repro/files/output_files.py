"""Opens, locks and replaces output files.

A regular file is replaced when its new contents are complete. A stream, such as a device, a pipe or a terminal, cannot
be replaced, so programs write to it directly.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from t2t_repro.errors import UserError
from t2t_repro.files.locks import locked

MAX_LINKS = 40
"""Number of symbolic links in a chain after which Linux reports a loop."""
DESCRIPTOR = re.compile(r"/proc/(\d+)/(?:task/\d+/)?fd/(\d+)")
"""Path in /proc of a file that a process has open. Links such as /dev/stdout and /dev/fd/63 lead to such paths."""

UNFINISHED = ".unfinished"
"""Suffix of the temporary file, beside the output file, that keeps finished translations until all are finished."""

FileId = str | Path | int
"""A path, or the number of an open file such as 0 for standard input."""
Input = tuple[str, FileId]
"""A file that a program reads: the flag or the words that name it in error messages, and the file."""


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


def open_stream(path: str | Path) -> int:
    """Opens a path for which `is_stream` is True. Returns a new file descriptor.

    For an open file of this process, such as /dev/stdout, the new descriptor continues at the position of the old one,
    so that nothing that was written before is lost. Raises OSError if the path cannot be opened.
    """
    target = without_links(path)
    match = DESCRIPTOR.fullmatch(str(target))
    if match and int(match[1]) == os.getpid():
        return os.dup(int(match[2]))
    return os.open(target, os.O_WRONLY | os.O_APPEND)


def refuse_reading_end(path: Path) -> None:
    """Raises OSError if a stream cannot be written, e.g. /dev/stdin.

    Does not open the stream, because opening a named pipe waits until another process opens it, too.
    """
    match = DESCRIPTOR.fullmatch(str(path))
    if match and int(match[1]) == os.getpid():
        is_writable = fcntl.fcntl(int(match[2]), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    else:
        is_writable = os.access(path, os.W_OK)
    if not is_writable:
        raise OSError(errno.EACCES, "it is open only for reading, or you lack the permission", str(path))


def put_in_place(temporary: str | Path, target: Path) -> None:
    """Renames a finished temporary file to `target`. Keeps the permissions of an existing `target`.

    Without an existing `target`, the file gets the permissions that the umask allows. Raises OSError if renaming fails.
    """
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    os.chmod(temporary, mode)
    os.replace(temporary, target)


def refuse_irregular(path: Path) -> None:
    """Raises UserError if the path of a temporary file exists but is not a regular file, e.g. a link or a folder."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise UserError(f"{path} is not a regular file; move it away or choose another output file")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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
        target = without_links(path)
        has_lock = not is_stream(target)
        if not has_lock:
            refuse_reading_end(target)
    except OSError as error:
        raise UserError(f"{flag}={path} cannot be written ({error.strerror}); choose another path") from None
    if target.is_dir():
        raise UserError(f"{flag}={path} is a folder; name a file")
    refuse_overwriting(flag, [path, f"{target}{suffix}"], inputs)
    with only_writer(target, flag) if has_lock else nullcontext():
        yield target


def refuse_folder_name(flag: str, path: str) -> None:
    """Raises UserError if the path of an output file ends in "/"."""
    if path.endswith("/"):
        raise UserError(f"{flag}={path} is a folder; name a file")


@contextmanager
def only_writer(path: Path, flag: str) -> Iterator[None]:
    """Returns a context in which no other program of this project writes the output file `path`.

    The lock file .NAME.lock lies beside the output file; see `locks.locked`.

    Args:
        path: path of the output file; see `without_links`.
        flag: the flag that named the file, for error messages.

    Raises UserError if another process is writing the file, or if its folder cannot be written.
    """
    lock = path.with_name(f".{path.name}.lock")
    refusal = f"{path}: another process is writing this file; wait for its end, or choose another {flag}"
    with locked(lock, refusal, f"choose another {flag}", delete=True):
        yield


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
