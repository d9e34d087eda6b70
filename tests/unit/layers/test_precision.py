"""Tests of the names of precisions."""

from __future__ import annotations

import pytest

from t2t_repro.errors import UserError
from t2t_repro.layers.precision import check_precision


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bf16", "unknown precision 'bf16'; did you mean 'bfloat16'?"),
        ("mixed_bfloat16", "unknown precision 'mixed_bfloat16'; did you mean 'bfloat16'?"),
        ("fp32", "unknown precision 'fp32'; did you mean 'float32'?"),
        ("int8", "unknown precision 'int8'; there are: bfloat16, float32"),
    ],
)
def test_an_unknown_precision_is_refused_with_the_nearest_name(name: str, message: str) -> None:
    for known in ("float32", "bfloat16"):
        check_precision(known)
    with pytest.raises(UserError) as error:
        check_precision(name)
    assert str(error.value) == message
