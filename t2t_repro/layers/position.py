"""Position signals, which are added to embeddings (section 3.5): sinusoids, learned vectors, or
none.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor


def position_signal(hparams: HParams) -> Callable[..., Tensor]:
    """Returns the layer for hparams.pos, or for "none" a function whose result is 0."""
    if hparams.pos == "emb":
        return LearnedPositions(hparams.hidden_size, hparams.max_length, name="position")
    if hparams.pos == "none":
        return lambda x, start=0: 0.0
    return Sinusoids(hparams.hidden_size, hparams.pos == "marian", name="position")


class Sinusoids(Layer):
    """Sines and cosines whose wavelengths grow geometrically from 2 pi to 10000 * 2 pi.

    The paper alternates sines and cosines, and divides positions by 10000^(2i/d). This layer
    follows the authors' code: all sines come before all cosines, and positions are divided by
    10000^(i/(d/2 - 1)). Marian has the authors' order and the paper's divisors.
    """

    def __init__(self, width: int, is_marian: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        timescales = width // 2
        exponents = np.arange(timescales) / max(timescales - (not is_marian), 1)
        self.rates = (1e4**-exponents).astype("float32")

    def call(self, x: Tensor, start: Tensor = 0) -> Tensor:
        """Returns the signals [1, T, D], float32, of the positions of x [B, T, D]. `start` is the
        first position.
        """
        angles = ops.cast(start + ops.arange(ops.shape(x)[1]), "float32")[:, None] * self.rates
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=1)[None]


class LearnedPositions(Layer):
    """A learned vector for each of `max_length` positions (Table 3, row E). Later positions get
    zeros.
    """

    def __init__(
        self, width: int, max_length: int, stddev: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        initializer = keras.initializers.RandomNormal(
            stddev=width**-0.5 if stddev is None else stddev
        )
        self.table = self.add_weight(
            (max_length, width), initializer, name="table", dtype="float32"
        )

    def call(self, x: Tensor, start: Tensor = 0) -> Tensor:
        """Returns the vectors [1, T, D], float32, of the positions of x [B, T, D]. `start` is the
        first position.
        """
        positions, count = (
            ops.cast(start + ops.arange(ops.shape(x)[1]), "int64"),
            self.table.shape[0],
        )
        vectors = ops.take(self.table, ops.minimum(positions, count - 1), axis=0)
        return (vectors * ops.cast(positions < count, "float32")[:, None])[None]
