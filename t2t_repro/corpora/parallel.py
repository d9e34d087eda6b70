"""Parallel text in two files: line n of one is the translation of line n of the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax import saxutils

from t2t_repro.errors import UserError
from t2t_repro.textfile import read_lines

Pair = dict[str, str]
"""A source text under "inputs" and its target text under "targets", each one line."""


def read_pairs(
    source: str | Path, target: str | Path, read: Callable[[str], Iterator[str]] = read_lines
) -> Iterator[Pair]:
    """The lines of both files side by side.

    Args:
        read: gives the lines, or what takes their place, of the file at a path.

    Raises:
        UserError: a file cannot be read, or one has more lines than the other; the message tells both counts.
    """
    sides = [read(str(path)) for path in (source, target)]
    for number, texts in enumerate(itertools.zip_longest(*sides)):
        if None in texts:
            counts = [
                number + (text is not None) + sum(1 for _ in rest) for text, rest in zip(texts, sides, strict=True)
            ]
            raise UserError(
                f"{source} has {counts[0]:,} lines, {target} has {counts[1]:,}; line n of one must be the translation "
                "of line n of the other"
            )
        yield {"inputs": texts[0], "targets": texts[1]}


def unescape(text: str) -> str:
    """Text of an SGML file as people read it: "AT&amp;T" becomes "AT&T"."""
    return saxutils.unescape(text, {"&quot;": '"', "&apos;": "'"})
