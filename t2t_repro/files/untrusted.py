"""Reads files that may be damaged or hostile. Refuses devices, files that are too large, and dangerous JSON.

A model folder or data directory may come from somebody else. Its JSON files and vocabulary must not make a program read
a device, fill the memory or end in a traceback. SECURITY.md lists what is trusted and what is not.
"""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from t2t_repro.errors import UserError, shortened

MAX_JSON_BYTES = 1 << 20
"""Maximum size of a JSON file that describes a model or data. The files that this project writes have a few kB."""
MAX_DIGITS = 20
"""Maximum length of an integer in JSON, including the sign. No 64-bit integer is longer."""
CURE = "restore the file"
"""End of the error messages about a damaged file, unless the caller gives another `cure`."""


def require_regular(path: str | Path) -> None:
    """Raises UserError if `path` is a device, a FIFO, a socket or a folder. Reading a device or FIFO may never end.

    A missing file raises FileNotFoundError or NotADirectoryError.
    """
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UserError(f"{shortened(str(path), 200)}: cannot be read ({error.strerror or error})") from None
    if not is_regular:
        raise UserError(f"{path}: cannot be read (it is not a regular file); put a regular file there")


def read_bytes(path: str | Path, max_bytes: int, cure: str = CURE) -> bytes:
    """Returns the contents of a regular file.

    Args:
        path: the file.
        max_bytes: maximum size of the file.
        cure: what the user can do about a damaged file, in the imperative, for error messages.

    Raises:
        FileNotFoundError or NotADirectoryError: the file is missing.
        UserError: the file is not regular, cannot be read, or has more than `max_bytes` bytes.
    """
    require_regular(path)
    try:
        with open(path, "rb") as file:
            contents = file.read(max_bytes + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(contents) > max_bytes:
        raise UserError(f"{path}: the file has more than {max_bytes:,} bytes; {cure}")
    return contents


def read_text(path: str | Path, max_bytes: int = MAX_JSON_BYTES, cure: str = CURE) -> str:
    """Returns the contents of a regular UTF-8 file. Arguments and errors are those of `read_bytes`."""
    try:
        return read_bytes(path, max_bytes, cure).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start}); {cure}") from None


def parse_json(text: str, source: str, cure: str = CURE) -> Any:
    """Returns the value of a JSON text.

    Args:
        text: the JSON.
        source: name of the file, for error messages.
        cure: what the user can do about a damaged file, in the imperative, for error messages.

    Raises:
        UserError: the text is not JSON, is nested too deeply, has a number that is not finite or has more than
            `MAX_DIGITS` digits, or has a string that UTF-8 cannot encode.
    """
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_finite_number, parse_constant=_finite_number)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise UserError(f"{source}:{error.lineno}: not JSON ({error.msg}); {cure}") from None
    except UnicodeEncodeError:
        raise UserError(f"{source}: a string has half a surrogate pair; {cure}") from None
    except RecursionError:
        raise UserError(f"{source}: nested too deeply; {cure}") from None
    except ValueError as error:
        raise UserError(f"{source}: {error}; {cure}") from None
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text)


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shortened(text)} is not a finite number")
    return number
