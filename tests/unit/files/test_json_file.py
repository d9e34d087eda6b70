"""Tests of dataclasses as JSON files."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import pytest

from t2t_repro.errors import UserError
from t2t_repro.files.json_file import from_json, to_json
from t2t_repro.hparam import DecodeHParams, HParams


@dataclass(frozen=True)
class WithoutDefault:
    """A dataclass with a field that has no default."""

    count: int
    ratio: float = 0.5


@pytest.mark.parametrize(
    "values",
    [HParams(), HParams(norm_before=True, pos="emb", norm_epsilon=1 / 3, hidden_size=1024), DecodeHParams(alpha=0.1)],
)
def test_json_restores_the_values(values: HParams | DecodeHParams) -> None:
    assert from_json(type(values), to_json(values), "f.json") == values


def test_json_has_one_field_per_line_in_the_order_of_definition() -> None:
    text = to_json(HParams())
    assert list(json.loads(text)) == [field.name for field in dataclasses.fields(HParams)]
    assert len(text.splitlines()) == len(dataclasses.fields(HParams)) + 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"hidden_size": 256,\n', "f.json:3: not JSON"),
        ("", "f.json:1: not JSON"),
        ("[1]", "f.json: not a JSON object"),
        ('{"hiden_size": 256}', "f.json: unknown field of HParams 'hiden_size'; did you mean 'hidden_size'?"),
        ('{"hidden_size": "256"}', "f.json: hidden_size='256' must be of type int"),
        ('{"hidden_size": 256.0}', "f.json: hidden_size=256.0 must be of type int"),
        ('{"hidden_size": true}', "f.json: hidden_size=True must be of type int"),
        ('{"norm_before": 1}', "f.json: norm_before=1 must be of type bool"),
        ('{"norm_epsilon": true}', "f.json: norm_epsilon=True must be of type float"),
        ('{"pos": null}', "f.json: pos=None must be of type str"),
        ('{"hidden_size": 0}', "f.json: hidden_size=0 must be 1 or more"),
    ],
)
def test_invalid_json_is_an_error_that_names_the_file(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        from_json(HParams, text, "f.json")
    assert message in str(error.value)


def test_json_may_omit_fields_and_write_a_float_as_a_whole_number() -> None:
    assert from_json(HParams, '{"hidden_size": 256, "norm_epsilon": 1}', "f.json") == HParams(
        hidden_size=256, norm_epsilon=1.0
    )


def test_a_missing_field_without_default_is_named() -> None:
    with pytest.raises(UserError) as error:
        from_json(WithoutDefault, '{"ratio": 1.5}', "f.json")
    assert "f.json" in str(error.value) and "count" in str(error.value)
