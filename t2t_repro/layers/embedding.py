"""The embedding, which turns token ids into vectors, and decoder outputs into logits (section 3.4)."""  # noqa: E501

from typing import Any

import keras
from keras import ops

from t2t_repro.layers.base import Layer, Tensor, float32


class Embedding(Layer):
    """The embedding matrix, with one row of width D for each token. Its transpose is the layer
    before the softmax.

    As in the Transformer, the initial standard deviation is 1 / sqrt(D), and the embeddings are the
    rows multiplied by sqrt(D). With another standard deviation `stddev`, they are the rows.
    """

    def __init__(
        self, vocab_size: int, width: int, stddev: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.factor = width**0.5 if stddev is None else 1.0
        initializer = keras.initializers.RandomNormal(
            stddev=width**-0.5 if stddev is None else stddev
        )
        self.table = self.add_weight(
            shape=(vocab_size, width), initializer=initializer, name="table"
        )
        self.transposed: Any = None

    def call(self, ids: Tensor) -> Tensor:
        """Returns the embeddings [B, T, D] of ids [B, T]. Padding (id 0) gives zeros."""
        rows = float32(ops.take(self.table, ids, axis=0))
        return rows * (ops.cast(ids != 0, "float32")[..., None] * self.factor)

    def logits(self, x: Tensor) -> Tensor:
        """Returns the logits of all V tokens, float32 [..., V], for decoder outputs x [..., D]."""
        if self.transposed is not None:
            return float32(self.product(x, self.transposed))
        return float32(self.product(x, ops.transpose(ops.cast(self.table, self.compute_dtype))))

    def store_transposed(self) -> None:
        """Stores the transposed table in a second variable, which ends training. Greedy search
        takes 8% less time.
        """
        shape, dtype = self.table.shape[::-1], self.table.dtype
        self.transposed = self.add_weight(
            shape=shape, initializer="zeros", dtype=dtype, trainable=False, name="copy"
        )
        self.transposed.assign(ops.transpose(self.table))
