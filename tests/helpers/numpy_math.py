"""Functions of logits, in numpy."""

from typing import Any

import numpy as np


def softmax(logits: Any) -> np.ndarray:
    """Returns the softmax over the last axis."""
    odds = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=-1, keepdims=True))


def log_softmax(logits: Any) -> np.ndarray:
    """Returns the logarithm of the softmax over the last axis, computed in float64."""
    values = np.asarray(logits, np.float64)
    return np.asarray(values - np.log(np.exp(values).sum(axis=-1, keepdims=True)))
