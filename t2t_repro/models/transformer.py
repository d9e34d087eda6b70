"""The Transformer (Vaswani et al. 2017, section 3), top to bottom as the paper has it.

Shapes: B batch, S source length, T target length, t positions decoded so far, D width, H heads, V vocabulary. Ids are
0 for padding, 1 for the end of a text.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import MemoryAttention, SelfAttention, padding_bias
from t2t_repro.layers.base import Layer
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.layers.position import LearnedPositions, Sinusoids
from t2t_repro.layers.residual import LayerNorm, Residual
from t2t_repro.models.model import Cache, KeysValues, Memory
from t2t_repro.models.size import TARGET_SPACES

Tensor = Any


class EncoderLayer(Layer):
    """Self-attention and a feed-forward network, each in its residual path (section 3.1, "Encoder")."""

    def __init__(self, hparams: HParams, precision: str, name: str) -> None:
        super().__init__(precision, name)
        with keras.name_scope(name):
            self.self_attention = self_attention(hparams, precision, masked=False)
            self.feed_forward = FeedForward(*feed_forward_sizes(hparams), precision, name="feed_forward")
            self.residuals = [Residual(*residual_sizes(hparams), name=f"residual_{i}") for i in range(2)]

    def call(self, x: Tensor, bias: Tensor, seeds: Seeds | None) -> Tensor:
        """x [B, S, D], bias [B, 1, 1, S] -> [B, S, D]."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, bias, seeds), seeds)
        return self.residuals[1](x, lambda y: self.feed_forward(y, seeds), seeds)


class DecoderLayer(Layer):
    """Masked self-attention, attention over the memory, and a feed-forward network (section 3.1, "Decoder")."""

    def __init__(self, hparams: HParams, precision: str, name: str) -> None:
        super().__init__(precision, name)
        with keras.name_scope(name):
            self.self_attention = self_attention(hparams, precision, masked=True)
            self.memory_attention = MemoryAttention(*attention_sizes(hparams), precision, name="memory_attention")
            self.feed_forward = FeedForward(*feed_forward_sizes(hparams), precision, name="feed_forward")
            self.residuals = [Residual(*residual_sizes(hparams), name=f"residual_{i}") for i in range(3)]

    def call(
        self, x: Tensor, k: Tensor, v: Tensor, bias: Tensor, seeds: Seeds | None, save_weights_to: list | None = None
    ) -> Tensor:
        """x [B, T, D] over itself and over the memory's k, v and bias [B, 1, 1, S] -> [B, T, D]."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, None, seeds), seeds)
        x = self.residuals[1](x, lambda y: self.memory_attention(y, k, v, bias, seeds, save_weights_to), seeds)
        return self.residuals[2](x, lambda y: self.feed_forward(y, seeds), seeds)

    def step(
        self,
        x: Tensor,
        past: KeysValues,
        k: Tensor,
        v: Tensor,
        memory_bias: Tensor,
        save_weights_to: list | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """One position of K hypotheses x [B, K, D] after those of `past` -> [B, K, D] and the longer past."""
        attended, *longer = self.self_attention.step(self.residuals[0].input(x), *past)
        x = self.residuals[0].output(x, attended, None)
        x = self.residuals[1](x, lambda y: self.memory_attention(y, k, v, memory_bias, None, save_weights_to), None)
        return self.residuals[2](x, lambda y: self.feed_forward(y, None), None), KeysValues(*longer)


class Transformer(Layer):
    """Source ids to the logits of target ids.

    Args:
        hparams: sizes and rates.
        vocab_size: V, of the vocabulary that source and target share.
        target_space_id: row of the target-space embedding, where hparams ask for one.
        precision: "float32", or "mixed_bfloat16" for matrix products in bfloat16.
    """

    has_attention, is_normalized = True, False
    missing_methods: tuple[str, ...] = ()

    def __init__(self, hparams: HParams, vocab_size: int, target_space_id: int = 0, precision: str = "float32") -> None:
        super().__init__(precision, name="transformer")
        self.hparams, self.target_space_id = hparams, target_space_id
        width = hparams.hidden_size
        if hparams.use_target_space_embedding:
            self.target_space = self.add_weight(shape=(TARGET_SPACES, width), name="target_space_embedding")
        with keras.name_scope("transformer"):
            self.embedding = Embedding(vocab_size, width, precision, name="embedding")
            if hparams.shared_embedding_and_softmax_weights:
                self.target_embedding = self.softmax = self.embedding
            else:
                self.target_embedding = Embedding(vocab_size, width, precision, name="target_embedding")
                self.softmax = Embedding(vocab_size, width, precision, name="softmax")
            with keras.name_scope("encoder"):
                self.source_position = position(hparams)
                self.encoder = [
                    EncoderLayer(hparams, precision, f"layer_{i}") for i in range(hparams.num_hidden_layers)
                ]
                self.encoder_norm = LayerNorm(width, hparams.norm_epsilon, "norm") if hparams.norm_before else None
            with keras.name_scope("decoder"):
                self.target_position = position(hparams)
                self.decoder = [
                    DecoderLayer(hparams, precision, f"layer_{i}") for i in range(hparams.num_hidden_layers)
                ]
                self.decoder_norm = LayerNorm(width, hparams.norm_epsilon, "norm") if hparams.norm_before else None

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Source ids [B, S] and target ids [B, T] -> logits [B, T, V], each position seeing the targets before it.

        Args:
            seed: int32 [2] that decides all dropout; None is inference, without any.
        """
        seeds = None if seed is None else Seeds(seed)
        return self.decode(targets, self.encode(inputs, seeds), seeds)

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Source ids [B, S] -> what the decoder sees of them."""
        bias = padding_bias(inputs)
        x = self.embedding(inputs)
        if self.hparams.use_target_space_embedding:
            x = x + self.target_space[self.target_space_id]
        x = x + self.source_position(0, ops.shape(inputs)[1])
        x = dropout(x, self.hparams.layer_prepostprocess_dropout, seeds)
        for layer in self.encoder:
            x = layer(x, bias, seeds)
        if self.encoder_norm:
            x = self.encoder_norm(x)
        return Memory(bias, tuple(KeysValues(*layer.memory_attention.keys_values(x)) for layer in self.decoder))

    def decode(
        self, targets: Tensor, memory: Memory, seeds: Seeds | None = None, save_weights_to: list | None = None
    ) -> Tensor:
        """Target ids [B, T] -> logits [B, T, V].

        Args:
            save_weights_to: takes the weights of the attention over the memory too, [B, H, T, S] of each layer; row t
                is where the layer looks to predict target t.
        """
        # Shifted right by one. There is no start symbol: as in the authors' code, the first position sees zeros.
        x = ops.pad(self.target_embedding(targets), ((0, 0), (1, 0), (0, 0)))[:, :-1]
        length = ops.shape(targets)[1]
        x = dropout(x + self.target_position(0, length), self.hparams.layer_prepostprocess_dropout, seeds)
        for layer, (k, v) in zip(self.decoder, memory.layers, strict=True):
            x = layer(x, k, v, memory.bias, seeds, save_weights_to)
        return self._logits(x)

    def start(self, hypotheses: Tensor) -> Cache:
        """The empty past of so many hypotheses."""
        heads, hparams = self.hparams.num_heads, self.hparams
        sizes = hparams.key_channels // heads, hparams.value_channels // heads
        dtype = self.decoder[0].compute_dtype
        return tuple(
            KeysValues(*(ops.zeros((hypotheses, heads, 0, size), dtype=dtype) for size in sizes)) for _ in self.decoder
        )

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Cache, memory: Memory, save_weights_to: list | None = None
    ) -> tuple[Tensor, Cache]:
        """The logits of position `t`, as `decode` has them, from the tokens before it.

        The memory is not repeated for the hypotheses of a sentence: they look at it side by side, as the positions of
        a target do in training.

        Args:
            ids: [B, K], the tokens at position t - 1 of K hypotheses of each sentence; 0 where t is 0.
            t: how many positions came before.
            save_weights_to: takes the weights of the attention over the memory too, [B, H, K, S] of each layer.

        Returns:
            Logits [B, K, V] and the cache with one more position.
        """
        x = self.target_embedding(ids) + self.target_position(t, 1)
        longer = []
        for layer, past, (k, v) in zip(self.decoder, cache, memory.layers, strict=True):
            x, past = layer.step(x, past, k, v, memory.bias, save_weights_to)
            longer.append(past)
        return self._logits(x), tuple(longer)

    def _logits(self, x: Tensor) -> Tensor:
        """Decoder output [B, T, D] -> [B, T, V]."""
        return self.softmax.logits(self.decoder_norm(x) if self.decoder_norm else x)


def attention_sizes(hparams: HParams) -> tuple[int, int, int, int, float]:
    """Width, h * d_k, h * d_v, h and dropout rate of an attention sub-layer."""
    return (
        hparams.hidden_size,
        hparams.key_channels,
        hparams.value_channels,
        hparams.num_heads,
        hparams.attention_dropout,
    )


def self_attention(hparams: HParams, precision: str, masked: bool) -> SelfAttention:
    """Over all positions, or over a neighbourhood where hparams name one; `masked`: over none that come after."""
    return SelfAttention(
        *attention_sizes(hparams),
        precision,
        name="self_attention",
        masked=masked,
        neighborhood=hparams.self_attention_neighborhood,
    )


def feed_forward_sizes(hparams: HParams) -> tuple[int, int, float]:
    """Width, inner width and dropout rate of a feed-forward sub-layer."""
    return hparams.hidden_size, hparams.filter_size, hparams.relu_dropout


def residual_sizes(hparams: HParams) -> tuple[int, float, bool, float]:
    """Width, norm epsilon, place of the norm and dropout rate of a residual path."""
    return hparams.hidden_size, hparams.norm_epsilon, hparams.norm_before, hparams.layer_prepostprocess_dropout


def position(hparams: HParams) -> Layer:
    """The position signal that hparams name."""
    if hparams.pos == "emb":
        return LearnedPositions(hparams.hidden_size, hparams.max_length, name="position")
    return Sinusoids(hparams.hidden_size, name="position")
