"""Formats tables of numbers as text for terminals, as Markdown and as CSV."""

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
        name: key of the column in `Table.lines`, and header in CSV.
        title: header in text and Markdown.
        show: formats a value for text and Markdown. CSV has the unformatted value.
        is_key: True to repeat this column in each part of a table that is cut because the terminal is too narrow.
    """

    name: str
    title: str
    show: Callable[[Any], str] = str
    is_key: bool = False


@dataclass(frozen=True)
class Table:
    """A table of numbers.

    Attributes:
        name: value of the column "table" in CSV.
        title: title in text and Markdown.
        lines: for each line, its values by column name. A missing value or None is an empty cell.
        notes: sentences below the table in text and Markdown.
    """

    name: str
    title: str
    lines: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


def to_text(tables: Sequence[Table], columns: Sequence[Column], width: int = 0) -> str:
    """Returns the tables as text for a terminal. Columns without values are omitted.

    Args:
        tables: the tables to format.
        columns: the columns to show.
        width: width of the terminal in characters; 0 means no limit. A wider table is cut into parts, which are shown
            one below the other.
    """
    blocks = []
    for table in tables:
        parts = [
            "\n".join(GAP.join(cells).rstrip() for cells in zip(*part, strict=True))
            for part in _parts(table, _used(table, columns), width)
        ]
        blocks.append("\n\n".join([table.title, *parts, *table.notes]))
    return "\n\n\n".join(blocks) + "\n"


def to_markdown(tables: Sequence[Table], columns: Sequence[Column]) -> str:
    """Returns the tables as Markdown. Columns without values are omitted."""
    blocks = []
    for table in tables:
        used = _used(table, columns)
        rows = [
            [column.title for column in used],
            ["---:" if _is_number(table, column) else "---" for column in used],
            *([_cell(line, column).replace("|", "\\|") for column in used] for line in table.lines),
        ]
        blocks += [f"### {table.title}", "\n".join(f"| {' | '.join(row)} |" for row in rows), *table.notes]
    return "\n\n".join(blocks) + "\n"


def to_csv(tables: Sequence[Table], columns: Sequence[Column]) -> str:
    """Returns the lines of all tables as CSV, with one header that names all columns. Lines end with "\\n"."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["table", *(column.name for column in columns)])
    for table in tables:
        writer.writerows([table.name, *(line.get(column.name) for column in columns)] for line in table.lines)
    return file.getvalue()


def _used(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Returns the columns in which at least one line has a value."""
    return [column for column in columns if any(_cell(line, column) for line in table.lines)]


def _is_number(table: Table, column: Column) -> bool:
    """Returns True if no value of the column is text. The tables align such columns to the right."""
    return not any(isinstance(line.get(column.name), str) for line in table.lines)


def _cell(line: Mapping[str, Any], column: Column) -> str:
    """Returns the formatted value of a column in a line, or an empty string if the value is missing."""
    value = line.get(column.name)
    return "" if value is None else column.show(value)


def _parts(table: Table, columns: Sequence[Column], width: int) -> Iterator[list[list[str]]]:
    """Yields the table in parts that are at most `width` characters wide, if the columns allow it.

    A part is a list of columns. A column is a list of cells, the header first, padded to the same width.
    """
    keys: list[list[str]] = []
    others: list[list[str]] = []
    for column in columns:
        cells = [column.title, *(_cell(line, column) for line in table.lines)]
        cell_width = max(map(len, cells))
        pad = str.rjust if _is_number(table, column) else str.ljust
        (keys if column.is_key else others).append([pad(cell, cell_width) for cell in cells])
    part = list(keys)
    for cells in others:
        part_width = sum(len(column_cells[0]) + len(GAP) for column_cells in part) + len(cells[0])
        if width and part_width > width and len(part) > len(keys):
            yield part
            part = list(keys)
        part.append(cells)
    yield part
