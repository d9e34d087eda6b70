"""Reads lines of UTF-8 text, where only "\\n" ends a line."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from t2t_repro.errors import UserError

GZIP = b"\x1f\x8b"
"""Bytes with which gzip files begin. No UTF-8 text begins with them."""


def read_lines(path: str) -> Iterator[str]:
    """Yields the lines of a plain or .gz file, without the "\\n" or "\\r\\n" at their end.

    Other separators, such as U+0085, U+2028 or a single "\\r", do not end a line. A last line without "\\n" counts as a
    line. Raises UserError if the file is missing, damaged or not UTF-8.
    """
    try:
        opener: Callable[..., Any] = gzip.open if path.endswith(".gz") else open
        with opener(path, "rb") as file:
            yield from decode_lines(file, path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cut off or damaged gzip file ({error}); get it again") from None


def decode_lines(file: IO[bytes], source: str) -> Iterator[str]:
    """Yields the lines of a file that is open in binary mode as `read_lines` does; messages call it `source`."""
    for number, line in enumerate(file, 1):
        if number == 1:
            if line.startswith(GZIP):
                raise UserError(f"{source}: compressed with gzip; give a file whose name ends in .gz")
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{source}:{number}: not UTF-8 ({error}); convert the file, e.g. with iconv") from None
        yield text.removesuffix("\n").removesuffix("\r")
