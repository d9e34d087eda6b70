"""Text of repeated measurements, for the tables that the other benchmarks print."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def spread(values: Sequence[float] | np.ndarray, digits: int = 1) -> str:
    """Returns median (lowest to highest) of `values`, each with `digits` decimal places."""
    return (
        f"{np.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
    )
