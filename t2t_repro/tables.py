"""Tables of figures, for terminals, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GAP = "  "


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its key in the table's lines, and its header in CSV.
        title: its header for people.
        show: a value as people read it; CSV has the value itself.
        is_key: whether it stands again in each part of a table that is too wide for the terminal.
    """

    name: str
    title: str
    show: Callable[[Any], str] = str
    is_key: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: what CSV has in its column "table".
        title: for people.
        lines: values by the names of columns; None, or no value, is an empty cell.
        notes: sentences to stand below it; CSV has none.
    """

    name: str
    title: str
    lines: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


def to_text(tables: Sequence[Table], columns: Sequence[Column], width: int = 0) -> str:
    """The tables for a terminal; columns without a value are left out.

    Args:
        width: characters of the terminal; a wider table is cut into parts one below the other. 0 is any.
    """
    blocks = []
    for table in tables:
        cut = list(_parts(table, _filled(table, columns), width))
        parts = ["\n".join(GAP.join(cells).rstrip() for cells in zip(*part, strict=True)) for part in cut]
        blocks.append("\n\n".join([table.title, *parts, *table.notes]))
    return "\n\n\n".join(blocks) + "\n"


def to_markdown(tables: Sequence[Table], columns: Sequence[Column]) -> str:
    """The tables as Markdown; columns without a value are left out."""
    blocks = []
    for table in tables:
        filled = _filled(table, columns)
        rows = [
            [column.title for column in filled],
            ["---:" if _is_number(table, column) else "---" for column in filled],
            *([_shown(line, column).replace("|", "\\|") for column in filled] for line in table.lines),
        ]
        blocks += [f"### {table.title}", "\n".join(f"| {' | '.join(row)} |" for row in rows), *table.notes]
    return "\n\n".join(blocks) + "\n"


def to_csv(tables: Sequence[Table], columns: Sequence[Column]) -> str:
    """All lines of the tables under one header, which holds all columns; a line ends with "\\n"."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["table", *(column.name for column in columns)])
    for table in tables:
        writer.writerows([table.name, *(line.get(column.name) for column in columns)] for line in table.lines)
    return file.getvalue()


def _filled(table: Table, columns: Sequence[Column]) -> list[Column]:
    """The columns in which some line has a value."""
    return [column for column in columns if any(_shown(line, column) for line in table.lines)]


def _is_number(table: Table, column: Column) -> bool:
    return not any(isinstance(line.get(column.name), str) for line in table.lines)


def _shown(line: Mapping[str, Any], column: Column) -> str:
    value = line.get(column.name)
    return "" if value is None else column.show(value)


def _parts(table: Table, columns: Sequence[Column], width: int) -> Iterator[list[list[str]]]:
    """The table's columns as cells of equal length, header first, in parts of at most `width` characters."""
    keys: list[list[str]] = []
    rest: list[list[str]] = []
    for column in columns:
        cells = [column.title, *(_shown(line, column) for line in table.lines)]
        longest = max(map(len, cells))
        pad = str.rjust if _is_number(table, column) else str.ljust
        (keys if column.is_key else rest).append([pad(cell, longest) for cell in cells])
    part = list(keys)
    for cells in rest:
        needed = sum(len(other[0]) + len(GAP) for other in part) + len(cells[0])
        if width and needed > width and len(part) > len(keys):
            yield part
            part = list(keys)
        part.append(cells)
    yield part
