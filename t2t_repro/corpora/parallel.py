"""Reads parallel text from two files. Line n of one file is the translation of line n of the other file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from t2t_repro.errors import UserError
from t2t_repro.files.textfile import SGML, read_lines, read_segments

Pair = dict[str, str]
"""A dict with a line of source text under "inputs" and its translation under "targets"."""


def read_pairs(source: str | Path, target: str | Path) -> Iterator[Pair]:
    """Yields pairs of a line of the source file and its translation, the line with the same number in the target file.

    The segments of two SGML files are paired by the ids of documents and segments.

    Raises UserError as `read_lines` does, and if a line or a segment has no counterpart.
    """
    paths = [str(source), str(target)]
    if all(map(SGML.search, paths)):
        segments = [read_segments(path) for path in paths]
        for document, segment in segments[0].keys() ^ segments[1].keys():
            raise UserError(f"{source} and {target}: only one has segment {segment} of document {document!r}; fix it")
        yield from ({"inputs": text, "targets": segments[1][key]} for key, text in segments[0].items())
        return
    sides = [read_lines(path) for path in paths]
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
