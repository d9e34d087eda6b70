"""Additive attention (Bahdanau et al. 2015, section A.1.2): a feed-forward network compares queries with keys.

The network has one hidden layer. Query q and key k have the attention logit v . tanh(q W_q + k W_k).

Shapes: B batch, Q queries, S keys, D width of the queries, M width of the memory, A width of the hidden layer.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.layers.base import Layer, Tensor, float32


class Memory(NamedTuple):
    """The encoder output, to which the decoder attends."""

    bias: Tensor
    """Mask [B, S] to add to attention logits: 0 for source tokens, masks.ILLEGAL for padding."""
    keys: Tensor
    """k W_k [B, S, A], float32."""
    values: Tensor
    """The vectors [B, S, M] that attention averages, in the dtype of the products."""


class AdditiveAttention(Layer):
    """Attention with a single head, whose hidden layer is as wide as the queries.

    Args:
        width: D and A.
        memory_width: M.
        gain: factor of the variance of the kernels, see `Layer.kernel`.
        precision: dtype of weights and products, see `Layer`.
    """

    def __init__(self, width: int, memory_width: int, gain: float, precision: str) -> None:
        super().__init__(precision, name="attention")
        self.query_kernel = self.kernel("query_kernel", width, width, gain)
        self.key_kernel = self.kernel("key_kernel", memory_width, width, gain)
        draw = keras.initializers.VarianceScaling(gain, "fan_avg", "uniform")
        # v stays in float32 in every precision, because it is multiplied by float32.
        self.vector = self.add_weight(
            shape=(width,),
            initializer=lambda shape, dtype=None: ops.reshape(draw((*shape, 1), dtype), shape),
            name="vector",
            dtype="float32",
        )

    def memory(self, encoder_output: Tensor, bias: Tensor) -> Memory:
        """Returns the memory of the encoder output [B, S, M] and the mask [B, S]."""
        keys = float32(self.product(encoder_output, self.key_kernel))
        return Memory(bias, keys, ops.cast(encoder_output, self.compute_dtype))

    def call(self, queries: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Returns the contexts [B, Q, M] and the weights [B, Q, S] of queries [B, Q, D], float32."""
        queries = float32(self.product(queries, self.query_kernel))
        hidden = ops.tanh(queries[:, :, None] + memory.keys[:, None])
        weights = ops.softmax(ops.sum(hidden * self.vector, axis=-1) + memory.bias[:, None])
        return float32(ops.matmul(ops.cast(weights, memory.values.dtype), memory.values)), weights
