"""The Transformer in the order of the paper's section 3: encoder layer, decoder layer, model.

`EncoderDecoder` embeds the tokens, shifts the targets right, and calls `decoder_logits` for all
positions or for one.

Shapes: B batch, S source length, T target length, t positions decoded so far, K hypotheses of a
sentence, D width, H heads, V vocabulary.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import CrossAttention, KeysValues, SelfAttention
from t2t_repro.layers.base import Caches, Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.layers.masks import padding_bias
from t2t_repro.layers.position import position_signal
from t2t_repro.layers.residual import LayerNorm, Residual
from t2t_repro.models.encoder_decoder import EncoderDecoder
from t2t_repro.problem import SpaceID
from t2t_repro.registry import snake_case


class EncoderLayer(Layer):
    """Self-attention and a network of class `feed_forward`, with residual connections (section 3.1,
    "Encoder").
    """

    def __init__(
        self, hparams: HParams, feed_forward: type[Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        dtype, network = self.dtype_policy, feed_forward or FeedForward
        with keras.name_scope(self.name):
            self.self_attention = SelfAttention(hparams, dtype=dtype, name="self_attention")
            self.feed_forward = network(hparams, dtype=dtype, name=snake_case(network.__name__))
            self.residuals = [Residual(hparams, name=f"residual_{i}") for i in range(2)]

    def call(self, x: Tensor, bias: Tensor | None = None, seeds: Seeds | None = None) -> Tensor:
        """Returns the layer's output [B, S, D] for the input x [B, S, D]. `bias` [B, 1, 1, S] masks
        padding.
        """
        first, second = self.residuals
        x = first(x, self.self_attention(first.sublayer_input(x), bias, seeds=seeds), seeds=seeds)
        return second(x, self.feed_forward(second.sublayer_input(x), seeds=seeds), seeds=seeds)


class DecoderLayer(Layer):
    """Masked self-attention, attention to the encoder output, and a feed-forward network (section
    3.1, "Decoder").
    """

    def __init__(
        self, hparams: HParams, feed_forward: type[Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        dtype, network = self.dtype_policy, feed_forward or FeedForward
        with keras.name_scope(self.name):
            self.self_attention = SelfAttention(
                hparams, is_masked=True, dtype=dtype, name="self_attention"
            )
            self.cross_attention = CrossAttention(hparams, dtype=dtype, name="memory_attention")
            self.feed_forward = network(hparams, dtype=dtype, name=snake_case(network.__name__))
            self.residuals = [Residual(hparams, name=f"residual_{i}") for i in range(3)]

    def call(
        self,
        x: Tensor,
        memory: KeysValues,
        bias: Tensor = None,
        seeds: Seeds | None = None,
        caches: Caches | None = None,
    ) -> Tensor:
        """Returns the output [B, T, D] for x [B, T, D] and this layer's keys and values of the
        encoder output.

        `bias` [B, 1, 1, S] masks the padding of the source. With `caches`, T is K; see
        `SelfAttention.call`.
        """
        first, second, third = self.residuals
        x = first(
            x, self.self_attention(first.sublayer_input(x), seeds=seeds, caches=caches), seeds=seeds
        )
        x = second(
            x,
            self.cross_attention(second.sublayer_input(x), memory, bias, seeds=seeds),
            seeds=seeds,
        )
        return third(x, self.feed_forward(third.sublayer_input(x), seeds=seeds), seeds=seeds)


class Memory(NamedTuple):
    """The encoder output as the decoder reads it."""

    bias: Tensor
    """Mask [B, 1, 1, S] to add to attention logits: 0 for source tokens, masks.ILLEGAL for padding.
    """
    layers: tuple[KeysValues, ...]
    """For each decoder layer, the encoder output as keys [B, H, S, d_k] and values [B, H, S, d_v].
    """


class Transformer(EncoderDecoder):
    """The model of figure 1: embeddings, encoder and decoder stacks, and logits."""

    model_name = "transformer"

    def add_layers(self) -> None:
        hparams, width = self.hparams, self.hparams.hidden_size
        if hparams.use_target_space_embedding:
            self.target_space = self.add_weight(
                shape=(SpaceID.COUNT, width), name="target_space_embedding"
            )
        self.add_embeddings(
            width, None if hparams.multiply_embedding_mode == "sqrt_depth" else width**-0.5
        )
        self.add_softmax(width)
        if hparams.use_softmax_bias:
            self.softmax_bias = self.add_weight(
                (self.vocab_size,), "zeros", name="softmax_bias", dtype="float32"
            )
        # Learned positions have a table for each stack. Sinusoids have no weights.
        with keras.name_scope("encoder"):
            self.source_position = position_signal(hparams)
            self.encoder = self._stack(EncoderLayer, hparams.encoder_layers)
            self.encoder_norm = LayerNorm(hparams, name="norm") if hparams.norm_before else None
        with keras.name_scope("decoder"):
            self.target_position = position_signal(hparams)
            self.decoder = self._stack(DecoderLayer, hparams.decoder_layers)
            self.decoder_norm = LayerNorm(hparams, name="norm") if hparams.norm_before else None

    def _stack(self, layer_class: type[Any], layers: int) -> list[Any]:
        classes = enumerate(self.feed_forward_classes(layers))
        return [
            layer_class(self.hparams, kind, dtype=self.dtype_policy, name=f"layer_{i}")
            for i, kind in classes
        ]

    def feed_forward_classes(self, layers: int) -> list[type[Any]]:
        """Returns the classes of the feed-forward sub-layers of a stack with this number of layers."""  # noqa: E501
        return [FeedForward] * layers

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S]: the encoder output as keys and values of each
        decoder layer.
        """
        bias = padding_bias(inputs)
        x = self.embedding(inputs)  # rows of the matrix, multiplied by sqrt(D) (section 3.4)
        if self.hparams.use_target_space_embedding:
            x = x + float32(self.target_space[self.target_space_id])
        x = dropout(x + self.source_position(x), self.rate, seeds)
        for layer in self.encoder:
            x = layer(x, bias, seeds=seeds)
        if self.encoder_norm:
            x = self.encoder_norm(x)
        # The keys and values of all decoder layers are computed here, once, and not again in each
        # step of decoding.
        return Memory(bias, tuple(layer.cross_attention.keys_values(x) for layer in self.decoder))

    def decoder_logits(
        self, x: Tensor, start: Tensor, memory: Memory, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        x = dropout(
            x + self.target_position(x[:, None, 0] if caches else x, start=start), self.rate, seeds
        )
        for layer, keys_values in zip(self.decoder, memory.layers, strict=True):
            x = layer(x, keys_values, memory.bias, seeds=seeds, caches=caches)
        logits = self.softmax.logits(self.decoder_norm(x) if self.decoder_norm else x)
        return logits + self.softmax_bias if self.hparams.use_softmax_bias else logits

    def start(self, hypotheses: Tensor) -> tuple[KeysValues, ...]:
        """Returns the empty cache of `hypotheses` (B * K) hypotheses: no keys and values for each
        decoder layer.
        """
        heads, dtype = self.hparams.num_heads, self.decoder[0].compute_dtype
        keys = ops.zeros((hypotheses, heads, 0, self.hparams.key_channels // heads), dtype=dtype)
        values = ops.zeros(
            (hypotheses, heads, 0, self.hparams.value_channels // heads), dtype=dtype
        )
        return (KeysValues(keys, values),) * len(self.decoder)
