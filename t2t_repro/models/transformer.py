"""The Transformer in the order of the paper's section 3: encoder layer, decoder layer, model.

Shapes: B batch, S source length, T target length, t positions decoded so far, K hypotheses of a sentence, D width,
H heads, V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import CrossAttention, KeysValues, SelfAttention, save_weights
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.layers.masks import padding_bias
from t2t_repro.layers.position import position_signal
from t2t_repro.layers.residual import LayerNorm, Residual
from t2t_repro.problem import SpaceID


class EncoderLayer(Layer):
    """Self-attention and a feed-forward network, each with a residual connection (section 3.1, "Encoder").

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
    """Masked self-attention, attention to the encoder output, and a feed-forward network (section 3.1, "Decoder")."""

    def __init__(self, hparams: HParams, precision: str, name: str, feed_forward: Callable[..., Any]) -> None:
        super().__init__(precision, name)
        with keras.name_scope(name):
            self.self_attention = SelfAttention(hparams, precision, is_masked=True)
            self.cross_attention = CrossAttention(hparams, precision)
            self.feed_forward = feed_forward(hparams, precision)
            self.residuals = [Residual(hparams, name=f"residual_{i}") for i in range(3)]

    def call(
        self, x: Tensor, memory: KeysValues, bias: Tensor, seeds: Seeds | None, cache: list[KeysValues] | None = None
    ) -> Tensor:
        """Returns the layer's output [B, T, D] for its input x [B, T, D].

        Args:
            memory: this layer's keys and values of the encoder output.
            bias: mask [B, 1, 1, S] that hides the padding of the source.
            cache: None, or the caches for a step of decoding, in which T is K; see `SelfAttention.call`.
        """
        x = self.residuals[0](x, lambda y: self.self_attention(y, None, seeds, cache), seeds)
        x = self.residuals[1](x, lambda y: self.cross_attention(y, memory, bias, seeds), seeds)
        return self.residuals[2](x, lambda y: self.feed_forward(y, seeds), seeds)


class Memory(NamedTuple):
    """The encoder output as the decoder reads it."""

    bias: Tensor
    """Mask [B, 1, 1, S] to add to attention logits: 0 for source tokens, masks.ILLEGAL for padding."""
    layers: tuple[KeysValues, ...]
    """For each decoder layer, the encoder output as keys [B, H, S, d_k] and values [B, H, S, d_v]."""


Cache = tuple[KeysValues, ...]
"""For each decoder layer, keys [B * K, H, t, d_k] and values [B * K, H, t, d_v] of the t positions decoded so far.
Restricted self-attention keeps only positions that the next position may see."""


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
                self.encoder = self._stack(EncoderLayer, hparams.encoder_layers)
                self.encoder_norm = LayerNorm(hparams) if hparams.norm_before else None
            with keras.name_scope("decoder"):
                self.target_position = position_signal(hparams)
                self.decoder = self._stack(DecoderLayer, hparams.decoder_layers)
                self.decoder_norm = LayerNorm(hparams) if hparams.norm_before else None

    def _stack(self, layer_class: Callable[..., Any], layers: int) -> list[Any]:
        classes = enumerate(self.feed_forward_classes(layers))
        return [layer_class(self.hparams, self.dtype_policy.name, f"layer_{i}", kind) for i, kind in classes]

    def feed_forward_classes(self, layers: int) -> list[Callable[..., Any]]:
        """Returns the classes of the feed-forward sub-layers of a stack with this number of layers."""
        return [FeedForward] * layers

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given source ids [B, S]; see `models.model.Model`."""
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
        return self._logits(x, memory, seeds, save_weights_to)

    def start(self, hypotheses: Tensor) -> Cache:
        """Returns the empty cache of `hypotheses` (B * K) hypotheses."""
        heads, dtype = self.hparams.num_heads, self.decoder[0].compute_dtype
        keys = ops.zeros((hypotheses, heads, 0, self.hparams.key_channels // heads), dtype=dtype)
        values = ops.zeros((hypotheses, heads, 0, self.hparams.value_channels // heads), dtype=dtype)
        return (KeysValues(keys, values),) * len(self.decoder)

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Cache, memory: Memory, save_weights_to: list | None = None
    ) -> tuple[Tensor, Cache]:
        """Returns the logits [B, K, V] of position t, equal to those of `decode`, and the cache with position t added.

        The layers compute only position t, and read the keys and values of earlier positions from the cache. The K
        hypotheses of a sentence share its memory: for cross-attention, they are like K positions of one target.

        Args:
            ids: [B, K], the token of each hypothesis at position t - 1, or 0 if t is 0.
            t: index of the position, from 0.
            save_weights_to: list to which this method appends the cross-attention weights [B, H, K, S] of each layer.
        """
        caches = list(cache)
        x = self.target_embedding(ids) + self.target_position(t, 1)
        return self._logits(x, memory, None, save_weights_to, caches), tuple(caches)

    def _logits(
        self,
        x: Tensor,
        memory: Memory,
        seeds: Seeds | None,
        save_weights_to: list | None,
        cache: list[KeysValues] | None = None,
    ) -> Tensor:
        """Returns the logits [B, T, V] for the decoder's input x [B, T, D], or [B, K, V] if there is a cache."""
        with save_weights(save_weights_to is not None) as saved:
            for layer, keys_values in zip(self.decoder, memory.layers, strict=True):
                x = layer(x, keys_values, memory.bias, seeds, cache)
        if save_weights_to is not None:
            save_weights_to += saved[1::2]  # each layer has self-attention first, then cross-attention
        return self.softmax.logits(self.decoder_norm(x) if self.decoder_norm else x)
