"""Tests of the names of precisions."""

from __future__ import annotations

from t2t_repro.decoding.precision import PRECISIONS, check_precision
from user_errors import user_error


def test_an_unknown_precision_is_refused_with_the_nearest_name() -> None:
    for name in PRECISIONS:
        check_precision(name)
    assert "did you mean 'bfloat16'?" in user_error(check_precision, "mixed_bfloat16")
