"""The error for a name that does not exist."""

from __future__ import annotations

import pytest

from t2t_repro.errors import UserError, unknown


def test_a_slip_of_the_pen_is_offered_the_nearest_name() -> None:
    error = unknown("problem", "text_flies", ["numbers_ende", "text_files"])
    assert str(error) == "unknown problem 'text_flies'; did you mean 'text_files'?"


def test_a_name_like_no_other_is_shown_all_names_in_order() -> None:
    error = unknown("problem", "xyz", ["text_files", "numbers_ende"])
    assert str(error) == "unknown problem 'xyz'; there are: numbers_ende, text_files"


def test_where_there_are_no_names_it_says_so() -> None:
    assert str(unknown("model", "transformer", [])) == "unknown model 'transformer'; there are: none"


def test_names_may_come_as_an_iterator_and_the_error_can_be_raised() -> None:
    with pytest.raises(UserError, match="did you mean 'beta'"):
        raise unknown("name", "betta", iter(["alpha", "beta"]))
