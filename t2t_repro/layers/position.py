"""Where in the sequence a token stands (section 3.5): sinusoids, or a learned row for each position."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_repro.layers.base import Layer

Tensor = Any


class Sinusoids(Layer):
    """Sines and cosines whose wavelengths grow geometrically from 2 pi to 10000 * 2 pi.

    The paper interleaves them, with exponent 2i/d; its authors' code, followed here, puts all sines before all
    cosines, with exponent i/(d/2 - 1).
    """

    def __init__(self, width: int, name: str) -> None:
        super().__init__("float32", name)
        timescales = width // 2
        exponents = np.arange(timescales) / max(timescales - 1, 1)
        self.rates = (1e4**-exponents).astype("float32")

    def call(self, start: Tensor, length: Tensor) -> Tensor:
        """[1, length, D]: the signals of positions start, start + 1, ..."""
        angles = ops.cast(start + ops.arange(length), "float32")[:, None] * self.rates
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=1)[None]


class LearnedPositions(Layer):
    """A learned vector for each of the first `max_length` positions; later ones take the last (Table 3, row E)."""

    def __init__(self, width: int, max_length: int, name: str) -> None:
        super().__init__("float32", name)
        initializer = keras.initializers.RandomNormal(stddev=width**-0.5)
        self.table = self.add_weight(shape=(max_length, width), initializer=initializer, name="table")

    def call(self, start: Tensor, length: Tensor) -> Tensor:
        """[1, length, D]: the vectors of positions start, start + 1, ..."""
        positions = ops.minimum(start + ops.arange(length), self.table.shape[0] - 1)
        return ops.take(self.table, positions, axis=0)[None]
