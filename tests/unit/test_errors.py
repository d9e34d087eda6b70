"""Tests of the error message for an unknown name."""

from __future__ import annotations

import pytest

from t2t_repro.errors import UserError, unknown


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
