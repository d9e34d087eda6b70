"""Reads parallel text from two files. Line n of one file is the translation of line n of the other file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax import saxutils

from t2t_repro.errors import UserError
from t2t_repro.files.textfile import read_lines

Pair = dict[str, str]
"""A dict with a line of source text under "inputs" and its translation under "targets"."""


def read_pairs(
    source: str | Path, target: str | Path, read: Callable[[str], Iterator[str]] = read_lines
) -> Iterator[Pair]:
    """Yields pairs of a line of the source file and its translation, the line with the same number in the target file.

    Args:
        read: function that yields the texts of the file at a path, by default its lines.
    """
    sides = [read(str(path)) for path in (source, target)]
    for number, texts in enumerate(itertools.zip_longest(*sides)):
        if None in texts:
            counts = [
                number + (text is not None) + sum(1 for _ in rest) for text, rest in zip(texts, sides, strict=True)
            ]
            raise UserError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}; fix the files: line n of one "
                "must be the translation of line n of the other"
            )
        yield {"inputs": texts[0], "targets": texts[1]}


def unescape(text: str) -> str:
    """Returns text with SGML entities replaced by their characters: "AT&amp;T" becomes "AT&T"."""
    return saxutils.unescape(text, {"&quot;": '"', "&apos;": "'"})
