"""Mistakes that a user can correct: one line that names the file, line or flag, and the cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake of the user. The programs print its one line and exit with code 2."""


class Stopped(Exception):  # noqa: N818, not an error
    """The user stopped the work, and it is saved. The programs print the message and exit with code 0."""


def unknown(kind: str, name: str, names: Iterable[str]) -> UserError:
    """Returns the error for a `name` that is not in `names`; it offers the nearest one, or lists them all.

    Args:
        kind: what the name stands for, e.g. "problem".
    """
    names = sorted(names)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if nearest:
        return UserError(f"unknown {kind} {name!r}; did you mean {nearest[0]!r}?")
    return UserError(f"unknown {kind} {name!r}; there are: {', '.join(names) or 'none'}")
