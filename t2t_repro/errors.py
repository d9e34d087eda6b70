"""Exceptions whose message the programs print as one line. Error messages name the file or flag and
say what to do.
"""

import difflib
import re
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Sequence
from importlib.util import find_spec

MEMORY_SHORTAGE = re.compile(
    r"out[ _]of[ _]memory|OOM when|failed to allocate|ALLOC_FAILED|ErrorMemoryAllocation"
    # TensorFlow reports these if cuBLAS could not allocate its workspace.
    r"|(no|without|initialize|get) ?BLAS support|Blas \w+ launch failed|failed to create cublas handle"  # noqa: E501
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
        self.kind, self.name = kind, name


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
    return (
        re.sub(r"\{\{.*\}\} | \[Op:.*", "", text.splitlines()[0]) if text else type(error).__name__
    )


def memory_shortage(error: BaseException) -> str:
    """Returns the description of a memory shortage, most often TensorFlow's; "" if `error` has
    another cause.

    If a GPU is out of memory, TensorFlow raises ResourceExhaustedError only for its own
    allocations. If CUDA or one of its libraries fails to allocate memory, TensorFlow raises other
    errors.
    """
    kind = type(error).__name__  # compared by name, because this module does not import TensorFlow
    if kind not in ("MemoryError", "ResourceExhaustedError", "InternalError", "UnknownError"):
        return ""
    line = next((line for line in str(error).splitlines() if MEMORY_SHORTAGE.search(line)), "")
    if not line:
        return (
            ""
            if kind in ("InternalError", "UnknownError") or FULL_DISK.search(str(error))
            else kind
        )
    return re.sub(r"\x1b\[\d*m|\{\{.*\}\} | on /job.*| \[Op:.*", "", line).strip()


def located(error: BaseException) -> str:
    """Returns "FILE:LINE: TYPE: MESSAGE" on one line for an error in a user's code, and without
    TYPE for a UserError.

    FILE:LINE is the last line of the traceback that is neither in a library nor in this package, if
    there is one.
    """
    walked = [*traceback.walk_tb(error.__traceback__)]
    frames: list[tuple[str, int | None]] = [
        (frame.f_code.co_filename, line) for frame, line in walked
    ]
    package = {
        frame.f_code.co_filename
        for frame, _ in walked
        if frame.f_globals.get("__name__", "").startswith("t2t_repro.")
    }
    if isinstance(error, SyntaxError):
        frames.append((str(error.filename), error.lineno))
    libraries = (sysconfig.get_path("stdlib"), "<")
    others = [
        frame for frame in frames if not (frame[0].startswith(libraries) or "-packages" in frame[0])
    ]
    own = [frame for frame in others if frame[0] not in package]
    file, line = (own or others or frames)[-1]
    message = " ".join(
        str(error).partition("Arguments received")[0].split()
    )  # drops Keras's list of arguments
    return (
        f"{file}:{line}: "
        f"{message if isinstance(error, UserError) else f'{type(error).__name__}: {message}'}"
    )


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
    nearest = difflib.get_close_matches(shortened(name), names := sorted(names), n=1, cutoff=0.5)
    cure = (
        f"did you mean {nearest[0]!r}?" if nearest else f"there are: {', '.join(names) or 'none'}"
    )
    return UnknownNameError(f"unknown {kind} {shortened(name)!r}; {cure}", kind, name)
