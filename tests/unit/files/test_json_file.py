"""Tests of dataclasses as JSON files, and of JSON lines, whose floats are rounded to eight
digits.
"""

import json
from dataclasses import dataclass

import pytest

from t2t_repro.files.json_file import from_json, rounded, to_json, to_json_line
from user_errors import user_error


@dataclass(frozen=True)
class WithoutDefault:
    """A dataclass with a field that has no default."""

    count: int
    ratio: float = 0.5


def test_json_may_omit_fields_and_write_a_float_as_a_whole_number() -> None:
    assert from_json(WithoutDefault, '{"count": 2, "ratio": 1}', "f.json") == WithoutDefault(2, 1.0)
    assert from_json(WithoutDefault, '{"count": 2}', "f.json") == WithoutDefault(2)
    values = WithoutDefault(3, 1 / 3)
    assert from_json(WithoutDefault, to_json(values), "f.json") == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"count": 256,\n', "f.json:3: not JSON"),
        ("[1]", "f.json: not a JSON object"),
        ('{"a": NaN}', "f.json: NaN is not a finite number"),
        ('{"a": 1e400}', "f.json: 1e400 is not a finite number"),
        ('{"a": ' + "9" * 30 + "}", "f.json: a number has 30 digits"),
        ("[" * 100_000, "f.json: nested too deeply"),
        (r'{"a": "\ud800"}', "f.json: a string has half a surrogate pair"),
        (
            '{"cuont": 256}',
            "f.json: unknown field of WithoutDefault 'cuont'; did you mean 'count'?",
        ),
        ('{"count": "256"}', "f.json: count='256' must be of type int"),
        ('{"count": 256.0}', "f.json: count=256.0 must be of type int"),
        ('{"count": true}', "f.json: count=True must be of type int"),
        ('{"count": 1, "ratio": true}', "f.json: ratio=True must be of type float"),
        ('{"ratio": 1.5}', "missing 1 required positional argument: 'count'"),
    ],
)
def test_invalid_json_is_an_error_that_names_the_file(text: str, message: str) -> None:
    assert message in user_error(from_json, WithoutDefault, text, "f.json")


def test_only_floats_are_rounded_at_any_depth() -> None:
    fields = {
        "text": "0.1234567891",
        "count": 1234567891,
        "scores": [(0.1234567891, [1 / 3])],
        "is": True,
    }
    expected = {
        "text": "0.1234567891",
        "count": 1234567891,
        "scores": [[0.12345679, [0.33333333]]],
        "is": True,
    }
    assert rounded(fields) == expected
    assert json.loads(to_json_line(fields)) == expected
    assert "\n" not in to_json_line({"text": "a\u2028b\n\u0085"}) and "\u2028" not in to_json_line(
        {"text": "a\u2028b"}
    )
