"""Formats tables of numbers as text for terminals, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: key of the column in `Table.lines`, and header in CSV.
        title: header in text and Markdown.
        show: formats a value for text and Markdown. CSV has the unformatted value.
    """

    name: str
    title: str
    show: Callable[[Any], str] = str


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


def to_text(tables: Sequence[Table], columns: Sequence[Column]) -> str:
    """Returns the tables as text with aligned columns. Columns without values are omitted."""
    blocks = []
    for table in tables:
        aligned = []
        for column in _used(table, columns):
            cells = [column.title, *(_cell(line, column) for line in table.lines)]
            pad, width = str.rjust if _is_number(table, column) else str.ljust, max(map(len, cells))
            aligned.append([pad(cell, width) for cell in cells])
        rows = "\n".join("  ".join(cells).rstrip() for cells in zip(*aligned, strict=True))
        blocks.append("\n\n".join([table.title, rows, *table.notes]))
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
