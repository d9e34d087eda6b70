"""Cuts plain text files into parts, which several processes can read at the same time."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from t2t_repro.files.textfile import is_plain, line_offsets, read_range

PART_LINES = 100_000
"""Number of lines in a part."""


@dataclass(frozen=True)
class LineRange:
    """Consecutive lines of one file, or of two aligned files."""

    paths: tuple[str, ...]
    first_line: int
    """Number of the first line, from 1."""
    ranges: tuple[tuple[int, int], ...]
    """Positions in bytes of the beginning and the end of the lines in each file."""

    def lines(self) -> list[Iterator[str]]:
        """Returns the lines of each file."""
        return [
            read_range(path, self.first_line, *bounds)
            for path, bounds in zip(self.paths, self.ranges, strict=True)
        ]


def line_ranges(paths: Sequence[str]) -> list[LineRange] | list[None]:
    """Returns the parts of one plain file, or of two with equal numbers of lines; else [None], for
    a single part.
    """
    if not all(map(is_plain, paths)):
        return [None]
    offsets = [line_offsets(path, PART_LINES) for path in paths]
    if len({len(ends) for ends in offsets}) > 1 or len(offsets[0]) <= 2:
        return [None]  # with other numbers of lines, reading the files ends in an error
    bounds = zip(*map(itertools.pairwise, offsets), strict=True)
    return [
        LineRange(tuple(paths), 1 + PART_LINES * part, ranges) for part, ranges in enumerate(bounds)
    ]
