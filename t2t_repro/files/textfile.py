"""Reads lines of UTF-8 text, where only "\\n" ends a line, and writes files that appear only when they are complete."""

from __future__ import annotations

import codecs
import gzip
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from t2t_repro.errors import UserError
from t2t_repro.files.output_files import is_stream, open_stream, put_in_place, without_links

GZIP = b"\x1f\x8b"
"""Bytes with which gzip files begin. No UTF-8 text begins with them."""


def read_lines(path: str) -> Iterator[str]:
    """Yields the lines of a plain or .gz file, without the "\\n" or "\\r\\n" at their end.

    Other separators, such as U+0085, U+2028 or a single "\\r", do not end a line. A last line without "\\n" counts as a
    line.

    Raises:
        UserError: the file is missing, unreadable, damaged or not UTF-8. The message names the file, and the line that
            is not UTF-8.
    """
    try:
        opener: Callable[..., Any] = gzip.open if path.endswith(".gz") else open
        with opener(path, "rb") as file:
            yield from decode_lines(file, path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            f"{path}: cut off or damaged gzip file ({error}); get it again, or remove .gz from its name if it is plain"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


def decode_lines(file: IO[bytes], source: str) -> Iterator[str]:
    """Yields the lines of a file that is open in binary mode. Line ends and decoding are those of `read_lines`.

    Error messages call the file `source`.
    """
    for number, line in enumerate(file, 1):
        if number == 1:
            if line.startswith(GZIP):
                raise UserError(
                    f"{source}: compressed with gzip; unpack it first, or give a file whose name ends in .gz"
                )
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{source}:{number}: not UTF-8 (byte {error.start + 1} of the line is 0x{line[error.start]:02x}); "
                "convert the file, e.g. with iconv"
            ) from None
        yield text.removesuffix("\n").removesuffix("\r")


@contextmanager
def whole_file(path: str | Path, mode: str = "wb") -> Iterator[IO]:
    """Returns a context that opens a file for writing. `path` changes only if the context ends without an error.

    If `path` is a symbolic link, the file to which it leads is replaced. A stream, such as /dev/null, /dev/stdout or a
    named pipe, is opened and written directly.

    Raises UserError if the file cannot be written, e.g. because the disk is full, and BrokenPipeError if no process
    reads the stream any more.
    """
    temporary = ""
    encoding = None if "b" in mode else "utf-8"
    newline = None if encoding is None else "\n"
    try:
        if is_stream(path):
            with open(open_stream(path), mode, encoding=encoding, newline=newline) as file:
                yield file
            return
        target = without_links(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with open(descriptor, mode, encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        put_in_place(temporary, target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); free space or choose another path"
        ) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
