"""Tests that two small tables are formatted as text, Markdown and CSV."""

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
        {"set": "long name", "note": "x | z"},
    ],
    ["One.", "Two."],
)
SECOND = Table("2", "Second", [{"set": "b", "note": 'says "so"'}])


def test_text_aligns_the_columns_and_omits_empty_ones() -> None:
    assert to_text([FIRST, SECOND], COLUMNS, 80) == (
        "First\n\nset        steps  score  a note\na          1,000    0.0\nlong name             "
        "   x | z\n\nOne.\n\nTwo.\n\n\n"
        'Second\n\nset  a note\nb    says "so"\n'
    )
    assert to_text([FIRST], COLUMNS, 22) == (
        "First\n\nset        steps\na          1,000\nlong name\n\nset        score\na            "
        "0.0\n\nset        a note\nlong name  x | z\n\nOne.\n\nTwo.\n"
    )


def test_markdown_escapes_bars() -> None:
    assert to_markdown([FIRST, SECOND], COLUMNS) == (
        "### First\n\n| set | steps | score | a note |\n| --- | ---: | ---: | --- |\n| a | 1,000 "
        "| 0.0 |  |\n| long name |  |  | x \\| z |\n\nOne.\n\nTwo.\n\n"
        '### Second\n\n| set | a note |\n| --- | --- |\n| b | says "so" |\n'
    )


def test_csv_has_unformatted_values() -> None:
    assert to_csv([FIRST, SECOND], COLUMNS) == (
        "table,set,steps,score,never,note\n1,a,1000,0.0,,\n1,long name,,,,x | z\n2,b,,,,"
        '"says ""so"""\n'
    )
