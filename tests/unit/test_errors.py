"""Tests of the error message for an unknown name, and of the first line of TensorFlow's errors."""

from __future__ import annotations

import pytest

from t2t_repro.errors import UserError, first_line, unknown


@pytest.mark.parametrize(
    ("name", "names", "message"),
    [
        ("text_flies", ["numbers_ende", "text_files"], "unknown problem 'text_flies'; did you mean 'text_files'?"),
        ("xyz", ["text_files", "numbers_ende"], "unknown problem 'xyz'; there are: numbers_ende, text_files"),
        ("betta", iter(["alpha", "beta"]), "unknown problem 'betta'; did you mean 'beta'?"),
        ("text_files", [], "unknown problem 'text_files'; there are: none"),
    ],
)
def test_the_nearest_name_is_offered_or_all_are_listed(name: str, names: list[str], message: str) -> None:
    error = unknown("problem", name, names)
    assert isinstance(error, UserError)
    assert str(error) == message


def test_the_first_line_has_no_names_of_graph_nodes() -> None:
    text = "{{function_node __wrapped__SaveV2_device_/job:x/device:CPU:0}} a/b; No space left [Op:SaveV2] name: \nmore"
    assert first_line(ValueError(text)) == "a/b; No space left"
    assert first_line(ValueError(" ")) == "ValueError"
