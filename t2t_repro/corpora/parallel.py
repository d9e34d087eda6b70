"""Reads parallel text: from two files, whose lines with the same number are a pair, or from a file
with both sides.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_repro.corpora.parts import LineRange
from t2t_repro.errors import UserError, counted, refuse_different_counts
from t2t_repro.files.textfile import SGML, read_lines, read_segments
from t2t_repro.files.untrusted import parse_json

Pair = dict[str, str]
"""A dict with a line of source text under "inputs" and its translation under "targets"."""


def read_pairs(
    source: str | Path, target: str | Path, part: LineRange | None = None
) -> Iterator[Pair]:
    """Yields pairs of a line of the source file and its translation, the line with the same number
    in the target file.

    The segments of two SGML files are paired by the ids of documents and segments. `part` has a
    part of the lines.

    Raises UserError if a file is missing, damaged or not UTF-8, or if a line or a segment has no
    counterpart.
    """
    sides = part.lines() if part else [read_lines(str(path)) for path in (source, target)]
    if _are_segments(source, target):
        sides[1] = iter(_paired_segments(source, target))
    lines_before = part.first_line - 1 if part else 0
    for number, texts in enumerate(itertools.zip_longest(*sides), lines_before):
        if None in texts:
            counts = [
                number + (text is not None) + sum(1 for _ in rest)
                for text, rest in zip(texts, sides, strict=True)
            ]
            cure = "fix the files: line n of one must be the translation of line n of the other"
            refuse_different_counts((source, target), counts, cure)
        yield {"inputs": texts[0], "targets": texts[1]}


def read_tsv(path: str, part: LineRange | None = None) -> Iterator[Pair]:
    """Yields the pairs of a file with lines source<TAB>target. Raises UserError if a line has not
    two columns.
    """
    for number, line in numbered(path, part):
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(
                f"{path}:{number}: {counted(len(columns), 'column')}; write source<TAB>target"
            )
        yield {"inputs": columns[0], "targets": columns[1]}


def read_rows(
    path: str, languages: tuple[str, str] = ("", ""), part: LineRange | None = None
) -> Iterator[Pair]:
    """Yields the pairs of a file with a JSON object in each line.

    An object, or the object that it has under "translation", has the source and the target under
    "inputs" and "targets" or under the two `languages`. A newline in them becomes a space. Raises
    UserError if an object has no pair.
    """
    for number, line in numbered(path, part):
        row = parse_json(line, f"{path}:{number}", "write a JSON object in each line")
        row = row.get("translation", row) if isinstance(row, dict) else {}
        row = row if isinstance(row, dict) else {}
        for keys in (("inputs", "targets"), languages):
            source, target = map(row.get, keys)
            if isinstance(source, str) and isinstance(target, str):
                break
        else:
            raise UserError(
                f'{path}:{number}: no texts under "inputs" and "targets"; write both, or name the '
                "two keys, e.g. by --languages=en,de"
            )
        yield {"inputs": source.replace("\n", " "), "targets": target.replace("\n", " ")}


def numbered(path: str, part: LineRange | None) -> Iterator[tuple[int, str]]:
    """Returns the lines of a file, or only those of a part, with their numbers from 1."""
    if part:
        return enumerate(part.lines()[0], part.first_line)
    return enumerate(read_lines(path), 1)


def read_targets(target: str | Path, source: str | Path, texts: Sequence[str]) -> list[str]:
    """Returns the texts of the file `target`, in the order of the texts of the file `source`, which
    are `texts`.

    Raises UserError if the file is missing, damaged or not UTF-8, or if a line or a segment has no
    counterpart.
    """
    if _are_segments(source, target):
        return _paired_segments(source, target)
    lines = list(read_lines(str(target)))
    cure = "give one line of the second for each line of the first"
    refuse_different_counts((source or "standard input", target), (len(texts), len(lines)), cure)
    return lines


def _paired_segments(source: str | Path, target: str | Path) -> list[str]:
    """Returns the segments of the SGML file `target`, in the order in which the SGML file `source`
    has segments with the same ids.
    """
    keys = read_segments(str(source)).keys()
    segments = read_segments(str(target))
    for document, segment in keys ^ segments.keys():
        raise UserError(
            f"{source} and {target}: only one has segment {segment} of document {document!r}; fix "
            "it"
        )
    return [segments[key] for key in keys]


def _are_segments(*paths: str | Path) -> bool:
    return all(SGML.search(str(path)) for path in paths)
