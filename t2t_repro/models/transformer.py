"""The Transformer in the order of the paper's section 3: encoder layer, decoder layer, model; then decoding by steps.

Shapes: B batch, S source length, T target length, t positions decoded so far, K hypotheses of a sentence, D width,
H heads, V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import CrossAttention, KeysValues, SelfAttention
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.layers.masks import padding_bias
from t2t_repro.layers.position import position_signal
from t2t_repro.layers.residual import LayerNorm, Residual
from t2t_repro.models.model import Cache, Memory
from t2t_repro.problem import SpaceID


class EncoderLayer(Layer):
    """A layer of self-attention and a feed-forward network, with residual connections (section 3.1, "Encoder").

    `feed_forward` is the class of the feed-forward network.
    """

    def __init__(self, hparams: HParams, precision: str, name: str, feed_forward: Callable[..., Any]) -> None:
        super().__init__(precision, name)
        with keras.name_scope(name):
            self.self_attention = SelfAttention(hparams, precision)
            self.feed_forward = feed_forward(hparams, precision)
            self.residuals = [Residual(hparams, name=f"residual_{i}") for i in range(2)]

    def call(self, x: Tensor, bias: Tensor, seeds: Seeds | None) -> Tensor:
        """Returns the layer's output [B, S, D] for the input x [B, S, D]. `bias` [B, 1, 1, S] masks padding."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, bias, seeds), seeds)
        return self.residuals[1](x, lambda y: self.feed_forward(y, seeds), seeds)


class DecoderLayer(Layer):
    """A layer of masked self-attention, cross-attention and a feed-forward network (section 3.1, "Decoder")."""

    def __init__(self, hparams: HParams, precision: str, name: str, feed_forward: Callable[..., Any]) -> None:
        super().__init__(precision, name)
        with keras.name_scope(name):
            self.self_attention = SelfAttention(hparams, precision, is_masked=True)
            self.cross_attention = CrossAttention(hparams, precision)
            self.feed_forward = feed_forward(hparams, precision)
            self.residuals = [Residual(hparams, name=f"residual_{i}") for i in range(3)]

    def call(
        self, x: Tensor, memory: KeysValues, bias: Tensor, seeds: Seeds | None, save_weights_to: list | None = None
    ) -> Tensor:
        """Returns the layer's output [B, T, D] for its input x [B, T, D].

        Args:
            memory: this layer's keys and values of the encoder output.
            bias: mask [B, 1, 1, S] that hides the padding of the source.
            save_weights_to: list to which this method appends the cross-attention weights [B, H, T, S].
        """
        x = self.residuals[0](x, lambda y: self.self_attention(y, None, seeds), seeds)
        x = self.residuals[1](x, lambda y: self.cross_attention(y, memory, bias, seeds, save_weights_to), seeds)
        return self.residuals[2](x, lambda y: self.feed_forward(y, seeds), seeds)

    def step(
        self, x: Tensor, cache: KeysValues, memory: KeysValues, bias: Tensor, save_weights_to: list | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Returns the layer's output [B, K, D] for a new position x [B, K, D], and the cache with this position added.

        Self-attention reads the earlier positions from `cache`. The other arguments are those of `call`.
        """
        longer_cache: list[KeysValues] = []

        def self_attention(y: Tensor) -> Tensor:
            y, keys_values = self.self_attention.step(y, cache)
            longer_cache.append(keys_values)
            return y

        x = self.residuals[0](x, self_attention, None)
        x = self.residuals[1](x, lambda y: self.cross_attention(y, memory, bias, None, save_weights_to), None)
        return self.residuals[2](x, lambda y: self.feed_forward(y, None), None), longer_cache[0]


class Transformer(Layer):
    """The model of figure 1: embeddings, encoder and decoder stacks, and logits.

    Args:
        hparams: layer sizes, dropout rates, and variants of the architecture.
        vocab_size: V, the number of entries in the vocabulary of the targets.
        target_space_id: row of the target-space embedding to add to source embeddings, if the hparams request it.
        precision: dtype of weights and matrix products, see `Layer`.
        source_vocab_size: number of entries in the vocabulary of the sources; 0 if source and target share one.
    """

    has_attention, is_normalized = True, False  # see models.model.DecodingModel
    missing_methods: tuple[str, ...] = ()

    def __init__(
        self,
        hparams: HParams,
        vocab_size: int,
        target_space_id: int = 0,
        precision: str = "float32",
        source_vocab_size: int = 0,
    ) -> None:
        super().__init__(precision, name="transformer")
        self.hparams, self.target_space_id = hparams, target_space_id
        width = hparams.hidden_size
        if hparams.use_target_space_embedding:
            self.target_space = self.add_weight(shape=(SpaceID.COUNT, width), name="target_space_embedding")
        with keras.name_scope("transformer"):
            self.embedding = Embedding(source_vocab_size or vocab_size, width, precision, name="embedding")
            self.target_embedding = self.softmax = self.embedding
            if not hparams.shared_embedding_and_softmax_weights:
                if not hparams.shared_embedding:
                    self.target_embedding = Embedding(vocab_size, width, precision, name="target_embedding")
                self.softmax = Embedding(vocab_size, width, precision, name="softmax")
            # Learned positions have a table for each stack. Sinusoids have no weights.
            with keras.name_scope("encoder"):
                self.source_position = position_signal(hparams)
                self.encoder = [
                    EncoderLayer(hparams, precision, f"layer_{i}", feed_forward)
                    for i, feed_forward in enumerate(self.feed_forward_classes(hparams.encoder_layers))
                ]
                self.encoder_norm = LayerNorm(hparams) if hparams.norm_before else None
            with keras.name_scope("decoder"):
                self.target_position = position_signal(hparams)
                self.decoder = [
                    DecoderLayer(hparams, precision, f"layer_{i}", feed_forward)
                    for i, feed_forward in enumerate(self.feed_forward_classes(hparams.decoder_layers))
                ]
                self.decoder_norm = LayerNorm(hparams) if hparams.norm_before else None

    def feed_forward_classes(self, layers: int) -> list[Callable[..., Any]]:
        """Returns the classes of the feed-forward sub-layers of a stack with this number of layers."""
        return [FeedForward] * layers

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given source ids [B, S].

        The logits of a position depend only on the targets before it.

        Args:
            seed: uint32 [B], for each example the seed of its dropout masks; None outside training, for no dropout.
        """
        seeds = None if seed is None else Seeds(seed)
        return self.decode(targets, self.encode(inputs, seeds), seeds)

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S]: the encoder output as keys and values of each decoder layer."""
        bias = padding_bias(inputs)
        x = self.embedding(inputs)  # rows of the matrix, multiplied by sqrt(D) (section 3.4)
        if self.hparams.use_target_space_embedding:
            x = x + float32(self.target_space[self.target_space_id])
        x = x + self.source_position(0, ops.shape(inputs)[1])
        x = dropout(x, self.hparams.layer_prepostprocess_dropout, seeds)
        for layer in self.encoder:
            x = layer(x, bias, seeds)
        if self.encoder_norm:
            x = self.encoder_norm(x)
        # The keys and values of all decoder layers are computed here, once, and not again in each step of decoding.
        return Memory(bias, tuple(layer.cross_attention.keys_values(x) for layer in self.decoder))

    def decode(
        self, targets: Tensor, memory: Memory, seeds: Seeds | None = None, save_weights_to: list | None = None
    ) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given the memory.

        Args:
            save_weights_to: list to which this method appends the cross-attention weights [B, H, T, S] of each layer.
                Row t shows to which source tokens the layer attends when it predicts target t.
        """
        # Shift the targets right, so that each position reads the previous token. As in the authors' code, the first
        # position reads zeros, the embedding of id 0, because there is no start symbol.
        previous = ops.concatenate([ops.zeros_like(targets[:, :1]), targets[:, :-1]], axis=1)
        x = self.target_embedding(previous)
        x = x + self.target_position(0, ops.shape(targets)[1])
        x = dropout(x, self.hparams.layer_prepostprocess_dropout, seeds)
        for layer, layer_memory in zip(self.decoder, memory.layers, strict=True):
            x = layer(x, layer_memory, memory.bias, seeds, save_weights_to)
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        """Returns the logits [B, T, V] of the decoder output [B, T, D]."""
        return self.softmax.logits(self.decoder_norm(x) if self.decoder_norm else x)

    # The methods below decode step by step. The search calls `decode_step` once for each position of the output. The
    # key/value cache holds the keys and values of earlier positions, so that a step computes only the new position.

    def start(self, hypotheses: Tensor) -> Cache:
        """Returns the empty key/value cache for `hypotheses` (B * K) hypotheses."""
        heads, dtype = self.hparams.num_heads, self.decoder[0].compute_dtype
        keys = ops.zeros((hypotheses, heads, 0, self.hparams.key_channels // heads), dtype=dtype)
        values = ops.zeros((hypotheses, heads, 0, self.hparams.value_channels // heads), dtype=dtype)
        return (KeysValues(keys, values),) * len(self.decoder)

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Cache, memory: Memory, save_weights_to: list | None = None
    ) -> tuple[Tensor, Cache]:
        """Returns the logits [B, K, V] of position t, equal to those of `decode`, and the cache with position t added.

        Cross-attention treats the K hypotheses of a sentence like K positions of one target, so that the hypotheses
        share one copy of the memory.

        Args:
            ids: [B, K], the token of each hypothesis at position t - 1, or 0 if t is 0.
            t: index of the position, from 0.
            save_weights_to: list to which this method appends the cross-attention weights [B, H, K, S] of each layer.
        """
        x = self.target_embedding(ids) + self.target_position(t, 1)
        longer_cache = []
        for layer, layer_cache, layer_memory in zip(self.decoder, cache, memory.layers, strict=True):
            x, layer_cache = layer.step(x, layer_cache, layer_memory, memory.bias, save_weights_to)
            longer_cache.append(layer_cache)
        return self._logits(x), tuple(longer_cache)
