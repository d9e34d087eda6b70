"""Tests of reading JSON from others. test_hostile_folder.py has the tests of whole files."""

from __future__ import annotations

import pytest

from t2t_repro.files.untrusted import _dict_without_repetition


def test_the_time_to_find_a_repeated_key_grows_like_the_number_of_keys() -> None:
    comparisons = 0

    class Key(str):
        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    keys = [Key(number) for number in (*range(1000), 999)]
    with pytest.raises(ValueError, match="'999' is given twice"):
        _dict_without_repetition([(key, 0) for key in keys])
    assert comparisons < 5000
