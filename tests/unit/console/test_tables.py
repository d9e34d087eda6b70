"""Tests that two small tables are formatted as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io

from t2t_repro.console.tables import Column, Table, to_csv, to_markdown, to_text

COLUMNS = (
    Column("set", "set"),
    Column("steps", "steps", "{:,}".format),
    Column("score", "score", "{:.1f}".format),
    Column("never", "never"),
    Column("note", "a note"),
)
FIRST = Table(
    "1",
    "First",
    [
        {"set": "a", "steps": 1000, "score": 0.0, "never": None},
        {"set": "long name", "score": 12.34, "note": "x, y | z"},
    ],
    ["One.", "Two."],
)
SECOND = Table("2", "Second", [{"set": "b", "note": 'says "so"'}])


def test_text_aligns_the_columns_and_omits_empty_ones() -> None:
    assert to_text([FIRST, SECOND], COLUMNS) == (
        "First\n\n"
        "set        steps  score  a note\n"
        "a          1,000    0.0\n"
        "long name          12.3  x, y | z\n\n"
        "One.\n\nTwo.\n\n\n"
        "Second\n\n"
        "set  a note\n"
        'b    says "so"\n'
    )


def test_markdown_escapes_bars() -> None:
    assert to_markdown([FIRST, SECOND], COLUMNS) == (
        "### First\n\n"
        "| set | steps | score | a note |\n"
        "| --- | ---: | ---: | --- |\n"
        "| a | 1,000 | 0.0 |  |\n"
        "| long name |  | 12.3 | x, y \\| z |\n\n"
        "One.\n\nTwo.\n\n"
        "### Second\n\n"
        "| set | a note |\n"
        "| --- | --- |\n"
        '| b | says "so" |\n'
    )


def test_csv_has_unformatted_values() -> None:
    text = to_csv([FIRST, SECOND], COLUMNS)
    assert text.startswith("table,set,steps,score,never,note\n1,a,1000,0.0,,\n")
    assert "\r" not in text
    assert list(csv.DictReader(io.StringIO(text)))[1:] == [
        {"table": "1", "set": "long name", "steps": "", "score": "12.34", "never": "", "note": "x, y | z"},
        {"table": "2", "set": "b", "steps": "", "score": "", "never": "", "note": 'says "so"'},
    ]
