"""Writes output files: under a temporary name, renamed when they are complete, and locked against a
second process.

A stream, such as a device, a pipe or a terminal, cannot be replaced, so programs write to it
directly.
"""

import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from t2t_repro.errors import UserError

OPEN_FILE = re.compile(r"/dev/(stdin|stdout|stderr)|/(?:dev|proc/self)/fd/(\d+)")
"""Path of a file that this process has open."""

UNFINISHED = ".unfinished"
"""Start of the names of temporary files and folders. Also the suffix of the file, beside the output
file, that keeps finished translations until all are finished.
"""

FileId = str | Path | int
"""A path, or the number of an open file such as 0 for standard input."""
Input = tuple[str, FileId]
"""A file that a program reads: the flag or the words that name it in error messages, and the file.
"""


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Returns a context that opens a file for writing. `path` changes only if the context ends
    without an error.

    If `path` is a symbolic link, the link is replaced: it may be part of a folder that the user
    received. `output_file` follows the links that a user gives.

    Raises UserError if the file cannot be written, e.g. because the disk is full. Other errors
    inside the context keep their type and message.
    """
    path = Path(path)
    temporary = path.with_name(f"{UNFINISHED}-{secrets.token_hex(8)}")
    with named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = _Output(temporary, "xb")
    raw.output = path
    try:
        _copy_permissions(path, temporary)
        with io.BufferedWriter(raw) as file:
            yield file
            file.flush()
            with named_errors(path):
                sync(raw.fileno())
        with named_errors(path):
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: str | Path, contents: str | bytes) -> None:
    """Replaces a file, which changes only if all `contents` can be written. Text is written in
    UTF-8. Raises UserError if the file cannot be written.
    """
    with whole_file(path) as file:
        file.write(contents.encode() if isinstance(contents, str) else contents)


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """Returns a context that opens the output that a user named for writing, as `whole_file` does.

    If `path` is a symbolic link, the file to which it leads is replaced. A stream, such as
    /dev/null, /dev/stdout or a named pipe, is written directly.

    Raises UserError if the output cannot be written, and BrokenPipeError if no process reads the
    stream any more.
    """
    if not is_stream(path):
        with whole_file(without_links(path)) as file:
            yield file
        return
    target = without_links(path)
    with named_errors(path):
        # A copy of its descriptor continues at the same position.
        if match := OPEN_FILE.fullmatch(str(target)):
            names = ("stdin", "stdout", "stderr")
            descriptor = os.dup(int(match[2] or names.index(match[1])))
        else:
            descriptor = os.open(target, os.O_WRONLY | os.O_APPEND)
        raw = _Output(descriptor, "wb")
    raw.output = path
    with io.BufferedWriter(raw) as file:
        yield file


class _Output(io.FileIO):
    """A file that is being written. Its errors name `output`, the path that the user knows."""

    output: Path

    def write(self, data: Any) -> int:
        with named_errors(self.output):
            return super().write(data)


@contextmanager
def named_errors(path: Path, cure: str = "free space or choose another path") -> Iterator[None]:
    """Returns a context that turns OSErrors, except BrokenPipeError, into UserErrors about writing
    `path`.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); {cure}") from None


def subfolder(parent: Path, name: str) -> Path:
    """Returns the path of a folder inside a folder that the user may have received, for a program
    that writes there.

    Raises UserError if it is a symbolic link, which could lead the program to other files of the
    user.
    """
    path = parent / name
    if path.is_symlink():
        raise UserError(
            f"{path} is a symbolic link, where a program writes only into a folder; replace the "
            "link"
        )
    return path


@contextmanager
def unfinished_folder(parent: Path) -> Iterator[Path]:
    """Returns a context with an empty folder inside `parent`, for files that the caller renames
    when all are complete.

    The folder and what is left in it are deleted at the end; after a kill, by the next call. So
    only one process at a time may be in the context for the same `parent`; see `locked`.
    """
    folder = subfolder(parent, UNFINISHED)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(temporary: Path, target: Path) -> None:
    """Renames a finished temporary file to `target`. Keeps the permissions of an existing
    `target`.
    """
    _copy_permissions(target, temporary)
    os.replace(temporary, target)


def sync(descriptor: int) -> None:
    """Waits until the disk has stored an open file or folder, unless its file system cannot tell,
    e.g. on FUSE.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def _copy_permissions(source: Path, target: Path) -> None:
    with suppress(OSError):  # FUSE and CIFS may forbid it
        shutil.copymode(source, target)


def without_links(path: str | Path) -> Path:
    """Returns the path to which symbolic links lead, e.g. that of an open file such as
    /dev/stdout.
    """
    path = Path(path)
    for _ in range(40):  # as many as Linux follows
        if OPEN_FILE.fullmatch(str(path)) or not path.is_symlink():
            break
        path = path.parent / os.readlink(path)
    return path


def is_stream(path: str | Path) -> bool:
    """Returns True for an open file such as /dev/stdout, and for an existing device, pipe or
    socket.
    """
    target = without_links(path)
    if OPEN_FILE.fullmatch(str(target)):
        return True
    try:
        mode = os.stat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def refuse_irregular(path: Path) -> None:
    """Raises UserError if the path of a journal or lock exists but is not a regular file, e.g. a
    link or a folder.
    """
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise UserError(f"{path} is not a regular file; move it away or choose another output")


def refuse_overwriting(flag: str, outputs: Iterable[FileId], inputs: Iterable[Input]) -> None:
    """Raises UserError if a program would overwrite a regular file that it also reads, even under
    another path.

    `flag` is the flag that named the output.
    """
    names = {_inode(path): name for name, path in inputs}
    for output in outputs:
        if (inode := _inode(output)) and inode in names:
            shown = "standard output" if isinstance(output, int) else output
            raise UserError(
                f"{shown} is also an input ({names[inode]}) and would be overwritten; choose "
                f"another {flag}"
            )


def _inode(file: FileId) -> tuple[int, int] | None:
    """Returns two numbers that identify a regular file; None if `file` is missing, a stream or a
    folder.
    """
    try:
        status = os.stat(file)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def only_writer(path: Path, flag: str) -> AbstractContextManager[None]:
    """Returns a context in which no other program of this project writes the output file `path`,
    which `flag` named.

    The lock file .NAME.lock lies beside the output file; see `locked`.
    """
    refusal = (
        f"{path}: another process is writing this file; wait for its end, or choose another {flag}"
    )
    return locked(path.with_name(f".{path.name}.lock"), refusal)


@contextmanager
def locked(path: Path, refusal: str, waits: bool = False) -> Iterator[None]:
    """Returns a context in which this process holds the lock file `path`. Creates the file and its
    folder if necessary.

    The operating system releases the lock when the process ends, even after a kill. So a lock file
    that was left behind does not stop a later process. If the file system has no locks, the context
    has no effect. The file is deleted at the end, and so is a folder that was created for it and is
    still empty.

    Raises UserError with the message `refusal` if another process holds the lock, unless this
    function `waits` for it, or if `path` is a link.
    """
    refuse_irregular(path)
    is_new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(path, refusal, waits):
        try:
            yield
        finally:
            # Before the lock ends, so that it cannot be the file of the next process.
            path.unlink(missing_ok=True)
            if is_new:
                with suppress(OSError):  # it is not empty
                    path.parent.rmdir()


def _open_locked(path: Path, refusal: str, waits: bool) -> IO[bytes]:
    while True:
        file = open(path, "ab")  # noqa: SIM115, closed by the caller. On NFS, only files opened for writing are locked.
        try:
            fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UserError(refusal) from None
        except OSError:  # the file system has no locks: continue without one
            return file
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        # The process that held the lock before has deleted the file: lock the file that is there
        # now.
        file.close()
