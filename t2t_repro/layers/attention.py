"""Scaled dot-product and multi-head attention (section 3.2), over all positions or a neighbourhood (section 4).

Shapes: B batch, H heads, T queries, S keys, D width, d_k and d_v a head's channels, r neighbourhood.
"""

from __future__ import annotations

from typing import Any

from keras import ops

from t2t_repro.layers.base import Layer, float32
from t2t_repro.layers.dropout import Seeds, dropout

Tensor = Any

ILLEGAL = -1e9
"""Added to the logits of illegal connections; after the softmax they weigh nothing."""

LEAST_BLOCK = 16
"""Positions of a block in `neighborhood_attention`, where r // 2 is less: yet smaller products are no faster."""


def padding_bias(ids: Tensor) -> Tensor:
    """[B, 1, 1, S]: 0 where ids [B, S] hold a token, ILLEGAL where they hold padding (0)."""
    return ops.cast(ids == 0, "float32")[:, None, None, :] * ILLEGAL


def causal_bias(length: Tensor) -> Tensor:
    """[1, 1, T, T]: 0 where a query may see a key, at its own position or before, ILLEGAL elsewhere."""
    positions = ops.arange(length, dtype="float32")
    return ops.cast(positions[None, :] > positions[:, None], "float32")[None, None] * ILLEGAL


def attention_weights(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(d_k) + bias): [B, H, T, S] in float32, how much each query takes of each value.

    Arguments: see `scaled_dot_product_attention`.
    """
    logits = float32(ops.matmul(q, ops.swapaxes(k, -1, -2)))
    return ops.softmax(logits if bias is None else logits + bias)


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, rate: float, seeds: Seeds | None
) -> Tensor:
    """softmax(q k^T / sqrt(d_k) + bias) v (equation 1).

    Args:
        q: [B, H, T, d_k], scaled by 1 / sqrt(d_k) already.
        k: [B, H, S, d_k].
        v: [B, H, S, d_v].
        bias: broadcasts to [B, H, T, S]; 0 or ILLEGAL.
        rate: dropout on the weights.

    Returns:
        [B, H, T, d_v].
    """
    weights = dropout(attention_weights(q, k, bias), rate, seeds)
    return ops.matmul(ops.cast(weights, v.dtype), v)


def neighborhood_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, r: int, masked: bool, rate: float, seeds: Seeds | None
) -> Tensor:
    """Attention of each position i to those from i - r // 2 to i + r // 2 alone (section 4, "restricted").

    The sequence is cut into N blocks of L positions, L no less than r // 2. So a block and the two beside it hold all
    that its queries may see, and time and memory grow with T * r: there is no [T, T].

    Args:
        q, k, v: as for `scaled_dot_product_attention`, with as many keys as queries.
        bias: [B, 1, 1, T], 0 or ILLEGAL, which keys none may see; None where there are no such keys.
        r: size of the neighbourhood, at least 1; an even r reaches as far as r + 1.
        masked: no position sees those after it.

    Returns:
        [B, H, T, d_v].
    """
    reach, length = r // 2, ops.shape(q)[2]
    size = ops.minimum(ops.maximum(length, 1), max(reach, LEAST_BLOCK))
    count = (length + size - 1) // size
    seen = 2 if masked else 3

    def blocks(x: Tensor, fill: float = 0.0) -> Tensor:
        """[B, H, T, d] -> [B, H, N, L, d]."""
        x = ops.pad(x, ((0, 0), (0, 0), (0, count * size - length), (0, 0)), constant_values=fill)
        return ops.reshape(x, (*ops.shape(x)[:2], count, size, x.shape[-1]))

    def neighbors(x: Tensor, fill: float = 0.0) -> Tensor:
        """[B, H, T, d] -> [B, H, N, 3 L, d], or 2 L: the block before, the block and, unless `masked`, that after."""
        x = ops.pad(blocks(x, fill), ((0, 0), (0, 0), (1, seen - 2), (0, 0), (0, 0)), constant_values=fill)
        return ops.concatenate([x[:, :, start : start + count] for start in range(seen)], axis=3)

    distance = ops.arange(seen * size)[None, :] - size - ops.arange(size)[:, None]  # [L, 3 L], from query to key
    outside = (distance < -reach) | (distance > (0 if masked else reach))
    keys = ops.zeros((1, 1, 1, length)) if bias is None else bias
    keys = neighbors(ops.swapaxes(keys, 2, 3), fill=ILLEGAL)  # [B, 1, N, 3 L, 1]
    bias = ops.swapaxes(keys, 3, 4) + ops.cast(outside, "float32") * ILLEGAL
    heads = scaled_dot_product_attention(blocks(q), neighbors(k), neighbors(v), bias, rate, seeds)
    return ops.reshape(heads, (*ops.shape(heads)[:2], count * size, heads.shape[-1]))[:, :, :length]


class MultiHeadAttention(Layer):
    """Concat(head_1, ..., head_h) W^O, each head attending with projections of its own (section 3.2.2).

    There are no biases, as in tensor2tensor. What the heads attend to is for the subclasses to say.
    """

    def __init__(
        self, width: int, key_channels: int, value_channels: int, num_heads: int, rate: float, precision: str, name: str
    ) -> None:
        super().__init__(precision, name)
        self.num_heads, self.rate = num_heads, rate
        self.key_channels, self.value_channels = key_channels, value_channels
        self.output_kernel = self.kernel("output", value_channels, width)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H * d] -> [B, H, T, d]."""
        x = ops.reshape(x, (*ops.shape(x)[:2], self.num_heads, x.shape[-1] // self.num_heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def queries(self, x: Tensor) -> Tensor:
        """Projected queries [B, T, H * d_k] -> [B, H, T, d_k], scaled by 1 / sqrt(d_k)."""
        return self.split(x * ops.cast((self.key_channels // self.num_heads) ** -0.5, x.dtype))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, seeds: Seeds | None = None) -> Tensor:
        """Attention of all heads, concatenated and projected: [B, T, D], in float32."""
        return self.concatenate(scaled_dot_product_attention(q, k, v, bias, self.rate, seeds))

    def concatenate(self, heads: Tensor) -> Tensor:
        """Heads [B, H, T, d_v], concatenated and projected: [B, T, D], in float32."""
        heads = ops.transpose(heads, (0, 2, 1, 3))
        concatenated = ops.reshape(heads, (*ops.shape(heads)[:2], self.value_channels))
        return float32(self.product(concatenated, self.output_kernel))


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values from one sequence.

    Args:
        masked: no position sees those after it, as in the decoder (section 3.2.3).
        neighborhood: r, see `neighborhood_attention`; 0 is all positions.
    """

    def __init__(self, width: int, *args: Any, masked: bool = False, neighborhood: int = 0, **kwargs: Any) -> None:
        super().__init__(width, *args, **kwargs)
        self.masked, self.neighborhood = masked, neighborhood
        self.qkv_kernel = self.kernel("qkv", width, (self.key_channels, self.key_channels, self.value_channels))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cuts = (self.key_channels, 2 * self.key_channels)
        q, k, v = ops.split(self.product(x, self.qkv_kernel), cuts, axis=-1)
        return self.queries(q), self.split(k), self.split(v)

    def call(self, x: Tensor, bias: Tensor | None, seeds: Seeds | None) -> Tensor:
        """x [B, T, D] -> [B, T, D].

        Args:
            bias: [B, 1, 1, T], 0 or ILLEGAL, which positions none may see; None where there are no such positions.
        """
        q, k, v = self._project(x)
        if self.neighborhood:
            heads = neighborhood_attention(q, k, v, bias, self.neighborhood, self.masked, self.rate, seeds)
            return self.concatenate(heads)
        if self.masked:
            causal = causal_bias(ops.shape(x)[1])
            bias = causal if bias is None else bias + causal
        return self.attend(q, k, v, bias, seeds)

    def step(self, x: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One more position of K hypotheses of each sentence, after those in their caches.

        Args:
            x: [B, K, D].
            k: [B * K, H, t, d_k].
            v: [B * K, H, t, d_v].

        Returns:
            [B, K, D], and k and v with one more position, without those that a neighbourhood leaves behind.
        """
        q, new_k, new_v = self._project(ops.reshape(x, (-1, 1, x.shape[-1])))
        k, v = ops.concatenate([k, new_k], axis=2), ops.concatenate([v, new_v], axis=2)
        if self.neighborhood:
            seen = self.neighborhood // 2 + 1
            k, v = k[:, :, -seen:], v[:, :, -seen:]
        return ops.reshape(self.attend(q, k, v, None), ops.shape(x)), k, v


class MemoryAttention(MultiHeadAttention):
    """Queries from the decoder, keys and values from the encoder's output."""

    def __init__(self, width: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(width, *args, **kwargs)
        self.q_kernel = self.kernel("q", width, self.key_channels)
        self.kv_kernel = self.kernel("kv", width, (self.key_channels, self.value_channels))

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """memory [B, S, D] -> keys [B, H, S, d_k] and values [B, H, S, d_v]."""
        k, v = ops.split(self.product(memory, self.kv_kernel), (self.key_channels,), axis=-1)
        return self.split(k), self.split(v)

    def call(
        self, x: Tensor, k: Tensor, v: Tensor, bias: Tensor, seeds: Seeds | None, save_weights_to: list | None = None
    ) -> Tensor:
        """x [B, T, D] over keys and values of the memory -> [B, T, D].

        Args:
            save_weights_to: takes the attention's weights too, [B, H, T, S].
        """
        q = self.queries(self.product(x, self.q_kernel))
        if save_weights_to is not None:
            save_weights_to.append(attention_weights(q, k, bias))
        return self.attend(q, k, v, bias, seeds)
