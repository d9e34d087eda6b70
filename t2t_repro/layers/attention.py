"""Scaled dot-product attention and multi-head attention (section 3.2).

Shapes: B batch, K hypotheses of a sentence, H heads, T queries, S keys, t positions decoded so far,
D width, d_k key channels and d_v value channels of a head.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Caches, Collector, Layer, Tensor, float32, outer_shape, parts
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.masks import causal_bias
from t2t_repro.layers.neighborhood import Blocks
from t2t_repro.layers.relative import RelativePositions


class KeysValues(NamedTuple):
    """The keys [B, H, S, d_k] and values [B, H, S, d_v] of one attention layer."""

    keys: Tensor
    values: Tensor


save_self_weights, save_cross_weights = Collector("self-attention"), Collector("cross-attention")
"""Collect the weights [B, H, T, S] of self-attention and cross-attention before dropout, in the
order of the layers.
"""


class MultiHeadAttention(Layer):
    """The base class of multi-head attention, Concat(head_1, ..., head_h) W^O (section 3.2.2).

    Subclasses have the projections of queries, keys and values, with biases if
    hparams.use_attention_biases is true.
    """

    collector: ClassVar[Collector]

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads, self.rate = hparams.num_heads, hparams.attention_dropout
        self.key_channels, self.value_channels = hparams.key_channels, hparams.value_channels
        self.gain, self.has_biases = hparams.initializer_gain, hparams.use_attention_biases
        self.output_kernel = self.kernel(
            "output", self.value_channels, hparams.hidden_size, self.gain
        )
        self.output_bias = self.bias("output", hparams.hidden_size)

    def bias(self, name: str, width: int) -> Any:
        """Returns a new weight [width], the bias of the projection `name`; None if projections have
        no biases.
        """
        return self.add_weight((width,), "zeros", name=f"{name}_bias") if self.has_biases else None

    def split(self, x: Tensor) -> Tensor:
        """Splits x into heads: [B, T, H * d] -> [B, H, T, d]."""
        channels = x.shape[-1] // self.num_heads
        if x.shape[1] == 1:  # a step of decoding; without a transpose, it has fewer operations
            return ops.reshape(x, (-1, self.num_heads, 1, channels))
        return ops.transpose(
            ops.reshape(x, (*outer_shape(x), self.num_heads, channels)), (0, 2, 1, 3)
        )

    def queries(self, x: Tensor) -> Tensor:
        """Splits projected queries into heads and divides them by sqrt(d_k): [B, T, H * d_k] -> [B,
        H, T, d_k].
        """
        return self.split(x * ops.cast((self.key_channels // self.num_heads) ** -0.5, x.dtype))

    def attention_weights(self, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """Returns the attention weights softmax(q k^T / sqrt(d_k) + bias), float32 [B, H, T, S].

        `queries` has already divided q [B, H, T, d_k] by sqrt(d_k). The mask `bias` broadcasts to
        [B, H, T, S].
        """
        logits = float32(ops.matmul(q, ops.swapaxes(k, -1, -2)))
        weights = ops.softmax(logits if bias is None else logits + float32(bias))
        self.collector.add(weights)
        return weights

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, seeds: Seeds | None
    ) -> Tensor:
        """Returns softmax(q k^T / sqrt(d_k) + bias) v (equation 1), with dropout on the weights:
        [B, H, T, d_v].
        """
        weights = dropout(self.attention_weights(q, k, bias), self.rate, seeds)
        return ops.matmul(ops.cast(weights, v.dtype), v)

    def concatenate(self, heads: Tensor) -> Tensor:
        """Concatenates the heads [B, H, T, d_v] and multiplies them by W^O: [B, T, D] in float32."""  # noqa: E501
        if heads.shape[2] == 1:  # a step of decoding; without a transpose, it has fewer operations
            return self._output(ops.reshape(heads, (-1, 1, self.value_channels)))
        heads = ops.transpose(heads, (0, 2, 1, 3))
        return self._output(ops.reshape(heads, (*outer_shape(heads)[:2], self.value_channels)))

    def _output(self, concatenated: Tensor) -> Tensor:
        return float32(self.product(concatenated, self.output_kernel, self.output_bias))


class SelfAttention(MultiHeadAttention):
    """Attention whose queries, keys and values come from one sequence.

    If `is_masked`, no position attends to later positions, as in the decoder (section 3.2.3).
    """

    collector = save_self_weights

    def __init__(self, hparams: HParams, is_masked: bool = False, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.is_masked, self.neighborhood = is_masked, hparams.self_attention_neighborhood
        channels = (self.key_channels, self.key_channels, self.value_channels)
        self.qkv_kernel = self.kernel("qkv", hparams.hidden_size, channels, self.gain)
        self.qkv_bias = self.bias("qkv", sum(channels))
        self.is_relative = hparams.self_attention_type == "dot_product_relative"
        if self.is_relative:
            table = partial(RelativePositions, hparams, dtype=self.dtype_policy)
            with keras.name_scope(self.name):
                self.relative_keys = table(self.key_channels, name="relative_keys")
                self.relative_values = table(self.value_channels, name="relative_values")

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the queries [B, H, T, d_k], keys [B, H, T, d_k] and values [B, H, T, d_v] of x
        [B, T, D].
        """
        channels = self.key_channels, self.key_channels, self.value_channels
        q, k, v = parts(self.product(x, self.qkv_kernel, self.qkv_bias), channels)
        return self.queries(q), self.split(k), self.split(v)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, seeds: Seeds | None
    ) -> Tensor:
        """Returns the outputs of the heads [B, H, T, d_v], as the base class does.

        With relative positions, the vector a_ij of the distance from query i to key j is added to
        key j (Shaw et al. 2018, equation 4), and another one to value j (equation 3).
        """
        if not self.is_relative:
            return super().attend(q, k, v, bias, seeds)
        distance_logits = float32(ops.einsum("bhtd,tsd->bhts", q, self.relative_keys(q, k)))
        bias = distance_logits if bias is None else distance_logits + bias
        weights = ops.cast(dropout(self.attention_weights(q, k, bias), self.rate, seeds), v.dtype)
        return ops.matmul(weights, v) + ops.einsum(
            "bhts,tsd->bhtd", weights, self.relative_values(q, k)
        )

    def call(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        seeds: Seeds | None = None,
        caches: Caches | None = None,
    ) -> Tensor:
        """Returns the output [B, T, D] of attention from each position of x [B, T, D] to the
        positions of x.

        `bias` is a mask [B, 1, 1, T]; None if attention may see padding. `caches` is None, except
        in a step of decoding, in which x [B, K, D] is the new position of K hypotheses.
        """
        if caches:
            y, keys_values = self.step(x, caches.old.pop(0))
            caches.new.append(keys_values)
            return y
        q, k, v = self._project(x)
        if self.neighborhood:
            blocks = Blocks(ops.shape(x)[1], self.neighborhood, self.is_masked)
            heads = self.attend(
                blocks.cut(q), blocks.around(k), blocks.around(v), blocks.bias(bias), seeds
            )
            # Pictures show all positions. A graph for any length, such as a served model's, uses
            # only cross-attention.
            saved = self.collector.tensors
            if saved and isinstance(blocks.length, int):
                saved.append(blocks.all_positions(saved.pop()))
            return self.concatenate(blocks.join(heads))
        if self.is_masked:
            causal = causal_bias(ops.shape(x)[1])
            bias = causal if bias is None else float32(bias) + causal
        return self.concatenate(self.attend(q, k, v, bias, seeds))

    def step(self, x: Tensor, cache: KeysValues) -> tuple[Tensor, KeysValues]:
        """Returns the output [B, K, D] for a new position x [B, K, D] of each hypothesis, and the
        longer cache.

        The cache has the earlier positions' keys [B * K, H, t, d_k] and values. Restricted
        attention keeps only some.
        """
        q, k, v = self._project(ops.reshape(x, (-1, 1, x.shape[-1])))
        k, v = ops.concatenate([cache.keys, k], axis=2), ops.concatenate([cache.values, v], axis=2)
        if self.neighborhood:
            visible = self.neighborhood // 2 + 1
            k, v = k[:, :, -visible:], v[:, :, -visible:]
        y = self.concatenate(self.attend(q, k, v, None, None))
        return ops.reshape(y, (*outer_shape(x), x.shape[-1])), KeysValues(k, v)


class CrossAttention(MultiHeadAttention):
    """Attention whose queries come from the decoder, and whose keys and values come from the
    encoder output.
    """

    collector = save_cross_weights

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.q_kernel = self.kernel("q", hparams.hidden_size, self.key_channels, self.gain)
        channels = (self.key_channels, self.value_channels)
        self.kv_kernel = self.kernel("kv", hparams.hidden_size, channels, self.gain)
        self.q_bias, self.kv_bias = (
            self.bias("q", self.key_channels),
            self.bias("kv", sum(channels)),
        )

    def keys_values(self, encoder_output: Tensor) -> KeysValues:
        """Returns the keys [B, H, S, d_k] and values [B, H, S, d_v] of the encoder output [B, S,
        D].
        """
        product = self.product(encoder_output, self.kv_kernel, self.kv_bias)
        k, v = parts(product, (self.key_channels, self.value_channels))
        return KeysValues(self.split(k), self.split(v))

    def call(
        self, x: Tensor, memory: KeysValues, bias: Tensor | None = None, seeds: Seeds | None = None
    ) -> Tensor:
        """Returns the output [B, T, D] for x [B, T, D] and what `keys_values` returned. `bias` [B,
        1, 1, S]: a mask.
        """
        keys, values = memory  # a plain tuple in a model from a .keras file
        q = self.queries(self.product(x, self.q_kernel, self.q_bias))
        return self.concatenate(self.attend(q, keys, values, bias, seeds))
