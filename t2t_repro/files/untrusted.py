"""Reads files that may be damaged or hostile, as SECURITY.md promises: no devices, large files or
dangerous JSON.
"""

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from t2t_repro.errors import UserError, shortened

MAX_JSON_BYTES = 1 << 20
"""Maximum size of a JSON file that describes a model or data. The files that this project writes
have a few kB.
"""
MAX_DIGITS = 20
"""Maximum length of an integer in JSON, including the sign. No 64-bit integer is longer."""
CURE = "restore the file"
"""End of the error messages about a damaged file, unless the caller gives another `cure`."""


def require_regular(path: str | Path) -> None:
    """Raises UserError if `path` is a device, a FIFO, a socket or a folder. Reading a device or
    FIFO may never end.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise UserError(
            f"{path}: cannot be read (it is not a regular file); put a regular file there"
        )


def read_bytes(path: str | Path, max_bytes: int, cure: str = CURE) -> bytes:
    """Returns the contents of a regular file of at most `max_bytes` bytes; raises UserError for
    other files.

    `cure` says what the user can do about a damaged file, in the imperative.
    """
    require_regular(path)
    with open(path, "rb") as file:
        contents = file.read(max_bytes + 1)
    if len(contents) > max_bytes:
        raise UserError(f"{path}: the file has more than {max_bytes:,} bytes; {cure}")
    return contents


def read_text(path: str | Path, max_bytes: int = MAX_JSON_BYTES, cure: str = CURE) -> str:
    """Returns the contents of a regular UTF-8 file of at most `max_bytes` bytes; raises UserError
    for other files.

    `cure` says what the user can do about a damaged file, in the imperative.
    """
    return as_text(read_bytes(path, max_bytes, cure), path, cure)


def as_text(contents: bytes, source: str | Path, cure: str = CURE) -> str:
    """Returns the contents of a UTF-8 file as text. `source` is its name, and `cure` as for
    `read_bytes`.
    """
    try:
        return contents.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: not UTF-8 (byte {error.start}); {cure}") from None


def parse_json(text: str, source: str, cure: str = CURE) -> Any:
    """Returns the value of a JSON text. `source` is the name of the file, and `cure` as for
    `read_bytes`.

    Raises UserError if the text is not JSON, is nested too deeply, has a number that is not finite
    or has more than `MAX_DIGITS` digits, or has a string that UTF-8 cannot encode.
    """
    try:
        value = json.loads(
            text, parse_int=_integer, parse_float=_finite_number, parse_constant=_finite_number
        )
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
