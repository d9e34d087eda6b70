"""Relative position representations (Shaw et al. 2018): learned vectors for the distance from a
query to a key.

Shapes: T queries, S keys, H heads, d channels of a head, k the largest distance with a vector of
its own.
"""

from typing import Any

from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor


class RelativePositions(Layer):
    """A table of 2 k + 1 vectors, one for each distance from -k to k. All heads of a layer share
    the table.

    Larger distances count as k, and smaller ones as -k. `channels` is H * d.
    """

    def __init__(self, hparams: HParams, channels: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_distance = hparams.max_relative_position
        rows, width = 2 * self.max_distance + 1, channels // hparams.num_heads
        self.table = self.kernel("table", rows, width, hparams.initializer_gain)

    def call(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns the vectors a_ij (equation 5) [T, S, d] of queries i, [B, H, T, d], and keys j,
        [B, H, S, d].

        The last query is at the position of the last key.
        """
        count, end = ops.shape(queries)[2], ops.shape(keys)[2]
        distances = ops.arange(end)[None, :] - ops.arange(end - count, end)[:, None]
        rows = ops.clip(distances, -self.max_distance, self.max_distance) + self.max_distance
        return ops.cast(ops.take(self.table, rows, axis=0), self.compute_dtype)
