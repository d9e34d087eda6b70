"""Formats tables of numbers as text for terminals, as Markdown and as CSV."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_repro.console.terminal import wrapped


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


def to_text(tables: Sequence[Table], columns: Sequence[Column], width: int) -> str:
    """Returns the tables as text with aligned columns. Columns without values are omitted.

    A table wider than `width` becomes several, which begin with the same columns of text. The later
    ones omit lines without other values.
    """
    blocks = []
    for table in tables:
        used = _used(table, columns)
        is_number = [_is_number(table, column) for column in used]
        text_count = is_number.index(True) if any(is_number) else len(used)
        parts = _parts([_aligned(table, column) for column in used], text_count, width)
        notes = [wrapped(note, width) for note in table.notes]
        blocks.append("\n\n".join([wrapped(table.title, width), *parts, *notes]))
    return "\n\n\n".join(blocks) + "\n"


def _parts(columns: list[list[str]], text_count: int, width: int) -> list[str]:
    """Returns the lines of a table, or of its parts. The first `text_count` columns are text."""
    count = 1
    while count < text_count and _width(columns[: count + 1]) <= width // 2:
        count += 1
    parts = [columns[:count]]
    for column in columns[count:]:
        if len(parts[-1]) > count and _width([*parts[-1], column]) > width:
            parts.append(columns[:count])
        parts[-1].append(column)
    texts = []
    for part in parts:
        rows = list(zip(*part, strict=True))
        if part is not parts[0]:
            rows = [row for row in rows if any(map(str.strip, row[count:]))]
        texts.append("\n".join("  ".join(row).rstrip() for row in rows))
    return texts


def _width(columns: list[list[str]]) -> int:
    return sum(len(cells[0]) + 2 for cells in columns) - 2


def _aligned(table: Table, column: Column) -> list[str]:
    """Returns the title and the cells of a column, padded to the same width."""
    cells = [column.title, *(_cell(line, column) for line in table.lines)]
    pad = str.rjust if _is_number(table, column) else str.ljust
    width = max(map(len, cells))
    return [pad(cell, width) for cell in cells]


def to_markdown(tables: Sequence[Table], columns: Sequence[Column]) -> str:
    """Returns the tables as Markdown. Columns without values are omitted."""
    blocks = []
    for table in tables:
        used = _used(table, columns)
        rows = [
            [column.title for column in used],
            ["---:" if _is_number(table, column) else "---" for column in used],
        ]
        for line in table.lines:
            rows.append([_cell(line, column).replace("|", "\\|") for column in used])
        text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        blocks += [f"### {table.title}", text, *table.notes]
    return "\n\n".join(blocks) + "\n"


def to_csv(tables: Sequence[Table], columns: Sequence[Column]) -> str:
    """Returns the lines of all tables as CSV, with one header that names all columns. Lines end
    with "\\n".
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["table", *(column.name for column in columns)])
    for table in tables:
        for line in table.lines:
            writer.writerow([table.name, *(line.get(column.name) for column in columns)])
    return file.getvalue()


def _used(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Returns the columns in which at least one line has a value."""
    return [column for column in columns if any(_cell(line, column) for line in table.lines)]


def _is_number(table: Table, column: Column) -> bool:
    """Returns True if no value of the column is text. The tables align such columns to the
    right.
    """
    return not any(isinstance(line.get(column.name), str) for line in table.lines)


def _cell(line: Mapping[str, Any], column: Column) -> str:
    value = line.get(column.name)
    return "" if value is None else column.show(value)
