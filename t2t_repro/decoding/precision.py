"""The precisions in which models decode, and the check of their names."""

from __future__ import annotations

from t2t_repro.errors import unknown

PRECISIONS = ("float32", "bfloat16")
"""Dtypes of the weights and of matrix products. (Training has other precisions, with all weights in float32.)"""


def check_precision(precision: str) -> None:
    """Raises UserError if a model cannot decode in `precision`."""
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
