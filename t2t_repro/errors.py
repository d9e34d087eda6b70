"""Exceptions whose message the programs print as one line. Error messages name the file or flag and
say what to do.
"""

import difflib
import re
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

MEMORY_SHORTAGE = re.compile(
    r"out[ _]of[ _]memory|OOM when|failed to allocate|ALLOC_FAILED|ErrorMemoryAllocation"
    # TensorFlow reports these if cuBLAS could not allocate its workspace.
    r"|(no|without|initialize|get) ?BLAS support|Blas \w+ launch failed"
    r"|failed to create cublas handle"
    # TensorFlow reports this if a GPU had no memory for a copy of a tensor.
    r"|(Dst|Src) tensor is not initialized",
    re.IGNORECASE,
)
"""Matches messages of the errors that TensorFlow raises if a device is out of memory."""

FULL_DISK = re.compile(r"No space left|quota", re.IGNORECASE)
"""Matches messages of the ResourceExhaustedError that TensorFlow raises if a disk is full."""


class UserError(Exception):
    """An error that the user can correct. The programs print its message in one line and exit with
    code 2.
    """


class Stopped(Exception):  # noqa: N818, not an error
    """A stop that the user requested, after the work was saved. The programs print the message and
    exit with code 0.
    """


class UnknownNameError(UserError):
    """A wrong name of a kind such as "problem". If tensor2tensor has the name, `bin/` says what
    replaces it.
    """

    def __init__(self, message: str, kind: str, name: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name


def require_extra(extra: str, *libraries: str) -> None:
    """Raises UserError if one of the libraries that `extra` of setup.py installs is missing. Does
    not import them.
    """
    for library in libraries:
        if not find_spec(library):
            raise UserError(f'{library} is not installed; run: pip install "t2t_repro[{extra}]"')


def shortened(text: str, length: int = 80) -> str:
    """Returns the first `length` characters of `text`, and "..." if there are more. Keeps error
    messages short.
    """
    return text if len(text) <= length else f"{text[:length]}..."


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, e.g. "1 line" or "2,000 lines"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def text_list(name: str, texts: Iterable[str], count: int | None = None) -> list[str]:
    """Returns the texts of the argument `name` as a list.

    Raises UserError if it is a str, whose characters would be read as texts; TypeError if it or an
    element has another type; and ValueError unless it has `count` texts.
    """
    if isinstance(texts, str):
        raise UserError(f"{name} is one string; give a list: [{shortened(texts)!r}]")
    strings = list(texts) if isinstance(texts, Iterable) else [texts]
    for text in strings:
        if not isinstance(text, str):
            raise TypeError(
                f"{name} has {shortened(repr(text))}, which is no str; give an iterable of str"
            )
    if count not in (None, len(strings)):
        raise ValueError(f"{len(strings):,} {name} but {count:,} texts; give one for each text")
    return strings


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, without the names of TensorFlow graph nodes."""
    text = str(error).strip()
    if not text:
        return type(error).__name__
    return re.sub(r"\{\{.*\}\} | \[Op:.*", "", text.splitlines()[0])


def memory_shortage(error: BaseException) -> str:
    """Returns the description of a memory shortage, most often TensorFlow's; "" if `error` has
    another cause.

    If a GPU is out of memory, TensorFlow raises ResourceExhaustedError only for its own
    allocations. If CUDA or one of its libraries fails to allocate memory, TensorFlow raises other
    errors.
    """
    # Classes are compared by name, because this module does not import TensorFlow.
    kind = type(error).__name__
    is_certain = kind in ("MemoryError", "ResourceExhaustedError")
    if not is_certain and kind not in ("InternalError", "UnknownError"):
        return ""
    line = next((line for line in str(error).splitlines() if MEMORY_SHORTAGE.search(line)), "")
    if not line:
        return kind if is_certain and not FULL_DISK.search(str(error)) else ""
    return re.sub(r"\x1b\[\d*m|\{\{.*\}\} | on /job.*| \[Op:.*", "", line).strip()


def located(error: BaseException) -> str:
    """Returns "FILE:LINE: TYPE: MESSAGE" on one line for an error in a user's code, and without
    TYPE for a UserError.

    FILE:LINE is the last line of the traceback that is neither in a library nor in this package, if
    there is one.
    """
    places: list[tuple[str, int | None]] = []
    package = set()
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        places.append((file, line))
        if frame.f_globals.get("__name__", "").startswith("t2t_repro."):
            package.add(file)
    if isinstance(error, SyntaxError):
        places.append((str(error.filename), error.lineno))
    libraries = (sysconfig.get_path("stdlib"), "<")
    others = [
        place for place in places if not (place[0].startswith(libraries) or "-packages" in place[0])
    ]
    users = [place for place in others if place[0] not in package]
    file, line_number = (users or others or places)[-1]
    message = str(error).partition("Arguments received")[0]  # drops Keras's list of arguments
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return f"{file}:{line_number}: {kind}{' '.join(message.split())}"


def check_type(name: str, value: Any, kind: type) -> None:
    """Raises UserError unless a field's value is of type `kind`. An int is also a float, but a bool
    is not an int.
    """
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{name}={shortened(repr(value))} must be of type {kind.__name__}")


def refuse_unknown(kind: str, name: str, names: Collection[str]) -> None:
    """Raises UnknownNameError unless `name` is one of `names`."""
    if name not in names:
        raise unknown(kind, name, names)


def refuse_different_counts(names: Sequence[object], counts: Sequence[int], cure: str) -> None:
    """Raises UserError, which ends with the `cure`, if the files `names` have different numbers of
    lines.
    """
    if len(set(counts)) > 1:
        shown = " and ".join(f"{count:,}" for count in counts)
        raise UserError(f"{' and '.join(map(str, names))} have {shown} lines; {cure}")


def unknown(kind: str, name: str, names: Iterable[str]) -> UnknownNameError:
    """Returns the error for an unknown `name`. The message suggests the nearest of the `names`, or
    lists them all.
    """
    names = sorted(names)
    cure = f"there are: {', '.join(names) or 'none'}"
    if nearest := difflib.get_close_matches(shortened(name), names, n=1, cutoff=0.5):
        cure = f"did you mean {nearest[0]!r}?"
    return UnknownNameError(f"unknown {kind} {shortened(name)!r}; {cure}", kind, name)
