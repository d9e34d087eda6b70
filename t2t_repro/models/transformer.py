"""The Transformer: section 3 of "Attention Is All You Need" (Vaswani et al. 2017).

From elsewhere come the numerics. `Layer` is a Keras layer without autocasting: `Layer.kernel` makes
a weight matrix with the variance of Glorot and Bengio (2010), `Layer.product` multiplies by it in
the layer's dtype, and all else is float32. `Linear` is such a matrix without a bias, or several of
them side by side. `seeds` counts the calls of `dropout` and gives each of them another mask; it is
None outside training, where dropout does nothing. Parts of later models, such as relative
positions, are in variants.py.

Shapes: B batch, K hypotheses of a sentence, S source length, T target length, t positions decoded
so far, D width, F inner width, H heads, d_k and d_v widths of a head's keys and values, V
vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_repro.layers.base import Layer, Linear, Tensor, float32, outer_shape, split
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.layer_norm import LayerNorm

if TYPE_CHECKING:
    from t2t_repro.hparam import HParams

MASKED = -1e9
"""Mask of a key that a query may not see: if the query sees another key, the weight becomes 0. With
the paper's minus infinity, a row whose keys are all masked would not be a number.
"""
Make = Callable[..., Any]
"""A class or function that makes a part of the model."""


class Sizes(NamedTuple):
    """The sizes of the layers; by default, those of the paper's base model."""

    width: int = 512
    """D: d_model."""
    inner_width: int = 2048
    """F: d_ff."""
    heads: int = 8
    """H: h."""
    key_width: int = 64
    """d_k."""
    value_width: int = 64
    """d_v."""
    dropout: float = 0.1
    """P_drop: rate on outputs of sub-layers, and on sums of embeddings and positions."""
    attention_dropout: float = 0.0
    """Rate on the attention weights. The authors' code has this rate; the paper's models do not."""
    inner_dropout: float = 0.0
    """Rate on the inner activations of feed-forward networks, likewise."""
    gain: float = 1.0
    """Factor of the initial variance of all kernels."""
    epsilon: float = 1e-6
    """Constant added to the variance in layer norms."""


class Sinusoids(Layer):
    """Position vectors (section 3.5): sines and cosines with wavelengths from 2 pi to 10000 * 2 pi.

    The paper alternates sines and cosines, and divides positions by 10000^(2i/d). This layer
    follows the authors' code: all sines come before all cosines, and positions are divided by
    10000^(i/(d/2 - 1)). `width` is even.
    """

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        timescales = width // 2
        exponents = np.arange(timescales) / max(timescales - 1, 1)
        self.frequencies = (1e4**-exponents).astype("float32")

    def call(self, x: Tensor, start: Tensor = 0) -> Tensor:
        """Returns the vectors [1, T, D] of the positions of x [B, T, D], from `start` on."""
        positions = ops.cast(start + ops.arange(ops.shape(x)[1]), "float32")
        angles = positions[:, None] * self.frequencies
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=1)[None]


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor = None,
    rate: float = 0.0,
    seeds: Seeds | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns equation 1, softmax(q k^T / sqrt(d_k)) v, and the softmax: the attention weights.

    The caller has already divided q by sqrt(d_k), see `MultiHeadAttention.queries`.
    q [..., T, d_k], k [..., S, d_k], v [..., S, d_v] -> [..., T, d_v] and float32 [..., T, S].
    `bias` is a mask that broadcasts to the weights. `rate` is the weights' dropout rate; the
    returned weights have no dropout.
    """
    logits = float32(ops.matmul(q, ops.swapaxes(k, -1, -2)))
    if bias is not None:
        logits = logits + float32(bias)
    weights = ops.softmax(logits)
    dropped = ops.cast(dropout(weights, rate, seeds), v.dtype)
    return ops.matmul(dropped, v), weights


def padding_bias(ids: Tensor) -> Tensor:
    """Returns a mask [B, 1, 1, S] that hides the padding (id 0) of ids [B, S]."""
    bias = ops.where(ops.equal(ids, 0), MASKED, 0.0)
    return bias[:, None, None, :]


def causal_bias(length: Tensor) -> Tensor:
    """Returns a mask [1, 1, T, T] that hides later positions from each position (section 3.2.3)."""
    # As floats, because TensorFlow leaves most operations of int32 to the CPU.
    positions = ops.cast(ops.arange(length), "float32")
    is_later = ops.cast(positions[None, :] > positions[:, None], "float32")
    return is_later[None, None] * MASKED


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Splits [B, T, H * d] into heads [B, H, T, d]."""
    width = x.shape[-1] // heads
    if x.shape[1] == 1:  # a step of decoding; without a transpose, it has fewer operations
        return ops.reshape(x, (-1, heads, 1, width))
    x = ops.reshape(x, (*outer_shape(x), heads, width))
    return ops.transpose(x, (0, 2, 1, 3))


def join_heads(x: Tensor) -> Tensor:
    """Concatenates heads [B, H, T, d] to [B, T, H * d]."""
    width = x.shape[1] * x.shape[-1]
    if x.shape[2] == 1:
        return ops.reshape(x, (-1, 1, width))
    x = ops.transpose(x, (0, 2, 1, 3))
    return ops.reshape(x, (*outer_shape(x)[:2], width))


class KeysValues(NamedTuple):
    """The keys [B, H, S, d_k] and values [B, H, S, d_v] of an attention layer."""

    keys: Tensor
    values: Tensor


class MultiHeadAttention(Layer):
    """MultiHead = Concat(head_1, ..., head_h) W^O (section 3.2.2).

    Subclasses project queries, keys and values, each for all heads together. `linear` makes the
    projections.
    """

    def __init__(self, sizes: Sizes, linear: Make = Linear, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sizes = sizes = Sizes(*sizes)
        self.all_keys = sizes.heads * sizes.key_width
        self.all_values = sizes.heads * sizes.value_width
        self.make_linear = partial(linear, self, gain=sizes.gain)
        self.output_projection = self.make_linear("output", self.all_values, sizes.width)

    def split(self, x: Tensor) -> Tensor:
        return split_heads(x, self.sizes.heads)

    def queries(self, x: Tensor) -> Tensor:
        """Splits projected queries x [B, T, H * d_k] into heads, and divides them by sqrt(d_k)."""
        # In this order: if the heads are divided, a search by a model with one layer is empty,
        # because of an error in TensorFlow 2.21's optimizer of graphs (remapping).
        return self.split(x * ops.cast(self.sizes.key_width**-0.5, x.dtype))

    def joined(self, heads: Tensor) -> Tensor:
        """Returns the output, float32 [B, T, D], of the outputs of the heads [B, H, T, d_v]."""
        return float32(self.output_projection(join_heads(heads)))


class SelfAttention(MultiHeadAttention):
    """Attention whose queries, keys and values come from one sequence (section 3.2.3)."""

    def __init__(self, sizes: Sizes, **kwargs: Any) -> None:
        super().__init__(sizes, **kwargs)
        self.widths = (self.all_keys, self.all_keys, self.all_values)
        self.qkv_projection = self.make_linear("qkv", self.sizes.width, self.widths)
        self.attend: Callable[..., tuple[Tensor, Tensor]] = scaled_dot_product_attention

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the queries, keys and values [B, H, T, d] of x [B, T, D]."""
        q, k, v = split(self.qkv_projection(x), self.widths)
        return self.queries(q), self.split(k), self.split(v)

    def call(
        self,
        x: Tensor,
        bias: Tensor = None,
        cache: KeysValues | None = None,
        seeds: Seeds | None = None,
    ) -> tuple[Tensor, Tensor, KeysValues]:
        """Returns the output [B, T, D] for x [B, T, D].

        Also returns the attention weights [B, H, T, T], and the keys and values. `bias` is a mask
        that broadcasts to the weights. With a cache, it returns what `step` returns.
        """
        if cache is not None:
            return self.step(x, cache)
        q, k, v = self.project(x)
        heads, weights = self.attend(q, k, v, bias, self.sizes.attention_dropout, seeds)
        return self.joined(heads), weights, KeysValues(k, v)

    def step(self, x: Tensor, cache: KeysValues) -> tuple[Tensor, Tensor, KeysValues]:
        """Returns the output [B, K, D] at a new position x [B, K, D] of each of K hypotheses.

        Also returns the weights [B * K, H, 1, t + 1], and the keys and values with those of the new
        position. The cache has those of earlier positions, [B * K, H, t, d].
        """
        q, k, v = self.project(ops.reshape(x, (-1, 1, x.shape[-1])))
        keys = ops.concatenate([cache.keys, k], axis=2)
        values = ops.concatenate([cache.values, v], axis=2)
        heads, weights = self.attend(q, keys, values)
        y = self.joined(heads)
        y = ops.reshape(y, (*outer_shape(x), x.shape[-1]))
        return y, weights, KeysValues(keys, values)

    def empty_cache(self, hypotheses: Tensor) -> KeysValues:
        """Returns the cache of `hypotheses` (B * K) hypotheses before the first position."""
        sizes = self.sizes
        keys = ops.zeros((hypotheses, sizes.heads, 0, sizes.key_width), self.compute_dtype)
        values = ops.zeros((hypotheses, sizes.heads, 0, sizes.value_width), self.compute_dtype)
        return KeysValues(keys, values)


class CrossAttention(MultiHeadAttention):
    """Attention from the decoder to the encoder output (section 3.2.3)."""

    def __init__(self, sizes: Sizes, **kwargs: Any) -> None:
        super().__init__(sizes, **kwargs)
        self.widths = (self.all_keys, self.all_values)
        self.q_projection = self.make_linear("q", self.sizes.width, self.all_keys)
        self.kv_projection = self.make_linear("kv", self.sizes.width, self.widths)

    def keys_values(self, encoder_output: Tensor) -> KeysValues:
        """Returns the keys and values of the encoder output [B, S, D]."""
        keys, values = split(self.kv_projection(encoder_output), self.widths)
        return KeysValues(self.split(keys), self.split(values))

    def call(
        self, x: Tensor, keys_values: KeysValues, bias: Tensor = None, seeds: Seeds | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the output [B, T, D] for x [B, T, D], and the attention weights [B, H, T, S]."""
        keys, values = keys_values
        q = self.queries(self.q_projection(x))
        rate = self.sizes.attention_dropout
        heads, weights = scaled_dot_product_attention(q, keys, values, bias, rate, seeds)
        return self.joined(heads), weights


class FeedForward(Layer):
    """The feed-forward network max(0, x W1 + b1) W2 + b2 of each position (equation 2)."""

    activation: Callable[[Tensor], Tensor] = staticmethod(ops.relu)

    def __init__(self, sizes: Sizes, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        sizes = Sizes(*sizes)
        self.rate = sizes.inner_dropout
        self.kernel1 = self.kernel("kernel1", sizes.width, sizes.inner_width, sizes.gain)
        self.bias1 = self.add_weight((sizes.inner_width,), "zeros", name="bias1")
        self.kernel2 = self.kernel("kernel2", sizes.inner_width, sizes.width, sizes.gain)
        # It is added to float32; the first one is added in the layer's dtype.
        self.bias2 = self.add_weight((sizes.width,), "zeros", name="bias2", dtype="float32")

    def call(self, x: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the output [B, T, D] for x [B, T, D]."""
        inner = self.product(x, self.kernel1)
        inner = self.activation(inner + ops.cast(self.bias1, inner.dtype))
        inner = dropout(inner, self.rate, seeds)
        return float32(self.product(inner, self.kernel2)) + self.bias2


class Residual(Layer):
    """The residual connection LayerNorm(x + Dropout(Sublayer(x))) (sections 3.1 and 5.4)."""

    def __init__(self, sizes: Sizes, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        sizes = Sizes(*sizes)
        self.rate = sizes.dropout
        with keras.name_scope(self.name):
            self.norm = LayerNorm(sizes.width, sizes.epsilon, name="norm")

    def sublayer_input(self, x: Tensor) -> Tensor:
        """Returns the input of the sub-layer: x, or in variants with pre-norm LayerNorm(x)."""
        return x

    def call(self, x: Tensor, y: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the result [B, T, D] for x [B, T, D] and the sub-layer's output y [B, T, D]."""
        y = dropout(float32(y), self.rate, seeds)
        return self.norm(float32(x) + y)


class EncoderLayer(Layer):
    """Self-attention and a feed-forward network, each in a residual connection (section 3.1)."""

    def __init__(self, sizes: Sizes, parts: "Parts", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        with keras.name_scope(self.name):
            self.self_attention = parts.encoder_attention(sizes, dtype=dtype, name="self_attention")
            self.feed_forward = parts.feed_forward(sizes, dtype=dtype, name="feed_forward")
            self.residuals = [parts.residual(sizes, name=f"residual_{i}") for i in range(2)]

    def call(
        self, x: Tensor, bias: Tensor = None, seeds: Seeds | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the output [B, S, D] for x [B, S, D], and the attention weights [B, H, S, S].

        `bias` [B, 1, 1, S] masks the padding of the source. The weights have the name "encoder".
        """
        first, second = self.residuals
        y, weights, _ = self.self_attention(first.sublayer_input(x), bias, seeds=seeds)
        x = first(x, y, seeds=seeds)
        y = self.feed_forward(second.sublayer_input(x), seeds=seeds)
        return second(x, y, seeds=seeds), {"encoder": weights}


class DecoderLayer(Layer):
    """Masked self-attention, attention to the encoder output, and a feed-forward network.

    Each is in a residual connection (section 3.1).
    """

    def __init__(self, sizes: Sizes, parts: "Parts", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        with keras.name_scope(self.name):
            self.self_attention = parts.decoder_attention(sizes, dtype=dtype, name="self_attention")
            # Its variables are named after the encoder output, the memory of the decoder.
            self.cross_attention = parts.cross_attention(
                sizes, dtype=dtype, name="memory_attention"
            )
            self.feed_forward = parts.feed_forward(sizes, dtype=dtype, name="feed_forward")
            self.residuals = [parts.residual(sizes, name=f"residual_{i}") for i in range(3)]

    def call(
        self,
        x: Tensor,
        keys_values: KeysValues,
        source_bias: Tensor = None,
        later_bias: Tensor = None,
        cache: KeysValues | None = None,
        seeds: Seeds | None = None,
    ) -> tuple[Tensor, KeysValues, dict[str, Tensor]]:
        """Returns the output [B, T, D], the new cache, and the attention weights.

        The weights are "decoder" [B, H, T, T] for self-attention, and "cross" [B, H, T, S].

        Args:
            x: [B, T, D], or in a step of decoding [B, K, D], a new position of K hypotheses. For
                cross-attention, the hypotheses of a sentence are like K positions of one target.
            keys_values: those of the encoder output, from this layer's `cross_attention`.
            source_bias: mask [B, 1, 1, S] of the source's padding.
            later_bias: mask [1, 1, T, T] of later positions, which also hides the target's padding,
                because it comes last; not used in a step of decoding.
            cache: keys and values of earlier positions in a step of decoding, else None.
        """
        first, second, third = self.residuals
        y = first.sublayer_input(x)
        y, self_weights, new_cache = self.self_attention(y, later_bias, cache, seeds=seeds)
        x = first(x, y, seeds=seeds)
        y = second.sublayer_input(x)
        y, cross_weights = self.cross_attention(y, keys_values, source_bias, seeds=seeds)
        x = second(x, y, seeds=seeds)
        y = self.feed_forward(third.sublayer_input(x), seeds=seeds)
        weights = {"decoder": self_weights, "cross": cross_weights}
        return third(x, y, seeds=seeds), new_cache, weights


class Embedding(Layer):
    """A matrix with a row of width D for each token: an embedding, or the layer before the softmax.

    In the embedding, rows are multiplied by sqrt(D) (section 3.4), or by `factor`. At first, they
    are normal with standard deviation 1 / sqrt(D), or drawn by `make_initializer()`.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        factor: float | None = None,
        make_initializer: Make | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.factor = width**0.5 if factor is None else factor
        normal = partial(keras.initializers.RandomNormal, stddev=width**-0.5)
        initializer = (make_initializer or normal)()
        self.table = self.add_weight((vocab_size, width), initializer, name="table")

    def call(self, ids: Tensor) -> Tensor:
        """Returns the embeddings, float32 [B, T, D], of ids [B, T].

        As in the authors' code, padding (id 0) gives zeros.
        """
        rows = float32(ops.take(self.table, ids, axis=0))
        is_token = ops.cast(ids != 0, "float32")
        return rows * (is_token[..., None] * self.factor)

    def logits(self, x: Tensor) -> Tensor:
        """Returns the logits of all tokens, float32 [..., V], for decoder outputs x [..., D]."""
        table = ops.cast(self.table, self.compute_dtype)
        return float32(self.product(x, ops.transpose(table)))


def shift_right(ids: Tensor) -> Tensor:
    """Returns ids [B, T] moved by one position, so that a position reads the token before it.

    As in the authors' code, the first position reads id 0, whose embedding is zeros, because there
    is no start token.
    """
    first = ops.zeros_like(ids[:, :1])
    return ops.concatenate([first, ids[:, :-1]], axis=1)


class Memory(NamedTuple):
    """The encoder output as the decoder reads it."""

    bias: Tensor
    """Mask [B, 1, 1, S]: 0 for source tokens, `MASKED` for padding."""
    layers: tuple[KeysValues, ...]
    """The keys and values of the encoder output for each decoder layer."""


def no_norm(width: int, epsilon: float, name: str) -> Callable[[Tensor], Tensor]:
    """Returns the identity: the paper's stacks end with the norm of their last sub-layer."""
    return lambda x: x


class Parts(NamedTuple):
    """The classes of a Transformer's parts, by default the paper's."""

    position: Make = Sinusoids
    embedding: Make = Embedding
    encoder_layer: Make = EncoderLayer
    decoder_layer: Make = DecoderLayer
    encoder_attention: Make = SelfAttention
    decoder_attention: Make = SelfAttention
    cross_attention: Make = CrossAttention
    feed_forward: Make = FeedForward
    residual: Make = Residual
    last_norm: Make = no_norm


class Transformer(Layer):
    """The model of figure 1, with the methods of `models.model.DecodingModel`.

    `Parts()` are the parts of the paper's model; `variants.transformer` makes a model with those
    that the hparams name. `source_vocab_size` is 0 if source and target share a vocabulary.
    """

    has_attention = True
    is_normalized = False  # the outputs are logits
    missing_methods: tuple[str, ...] = ()

    def __init__(
        self,
        hparams: "HParams",
        vocab_size: int,
        source_vocab_size: int,
        parts: Parts,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"name": "transformer"} | kwargs)
        self.hparams = hparams
        self.sizes = sizes = Sizes(
            width=hparams.hidden_size,
            inner_width=hparams.filter_size,
            heads=hparams.num_heads,
            key_width=hparams.key_channels // hparams.num_heads,
            value_width=hparams.value_channels // hparams.num_heads,
            dropout=hparams.layer_prepostprocess_dropout,
            attention_dropout=hparams.attention_dropout,
            inner_dropout=hparams.relu_dropout,
            gain=hparams.initializer_gain,
            epsilon=hparams.norm_epsilon,
        )
        policy = self.dtype_policy
        embedding = partial(parts.embedding, width=sizes.width, dtype=policy)
        encoder_layer = partial(parts.encoder_layer, sizes, parts, dtype=policy)
        decoder_layer = partial(parts.decoder_layer, sizes, parts, dtype=policy)
        last_norm = partial(parts.last_norm, sizes.width, sizes.epsilon, name="norm")
        is_tied = hparams.shared_embedding_and_softmax_weights
        with keras.name_scope(self.name):
            self.embedding = embedding(source_vocab_size or vocab_size, name="embedding")
            self.target_embedding = self.embedding
            if not (is_tied or hparams.shared_embedding):
                self.target_embedding = embedding(vocab_size, name="target_embedding")
            self.softmax = self.embedding if is_tied else embedding(vocab_size, name="softmax")
            with keras.name_scope("encoder"):
                layers = range(hparams.encoder_layers)
                self.source_position = parts.position(sizes.width, name="position")
                self.encoder = [encoder_layer(name=f"layer_{i}") for i in layers]
                self.encoder_norm = last_norm()
            with keras.name_scope("decoder"):
                layers = range(hparams.decoder_layers)
                self.target_position = parts.position(sizes.width, name="position")
                self.decoder = [decoder_layer(name=f"layer_{i}") for i in layers]
                self.decoder_norm = last_norm()

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor = None) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given source ids [B, S].

        `seed`, uint32 [B], has the seed of each example's dropout masks; None for no dropout.
        """
        seeds = None if seed is None else Seeds(seed)
        return self.decode(targets, self.encode(inputs, seeds), seeds)

    def encode(
        self, inputs: Tensor, seeds: Seeds | None = None, return_attention: bool = False
    ) -> Any:
        """Returns the memory of source ids [B, S].

        On request, it returns a tuple of the memory and the attention weights of all layers.
        """
        bias = padding_bias(inputs)
        x = self.embedding(inputs)
        x = dropout(x + self.source_position(x), self.sizes.dropout, seeds)
        attention = []
        for layer in self.encoder:
            x, weights = layer(x, bias, seeds=seeds)
            attention.append(weights)
        x = self.encoder_norm(x)
        # The keys and values are computed here, once, and not again in each step of decoding.
        layers = tuple(layer.cross_attention.keys_values(x) for layer in self.decoder)
        memory = Memory(bias, layers)
        return (memory, attention) if return_attention else memory

    def decode(
        self,
        targets: Tensor,
        memory: Memory,
        seeds: Seeds | None = None,
        return_attention: bool = False,
    ) -> Any:
        """Returns the logits [B, T, V] of target ids [B, T].

        On request, it returns a tuple of the logits and the attention weights of all layers. Their
        row t belongs to the prediction of target t, which has read the targets before t.
        """
        x = self.target_embedding(shift_right(targets))
        x = dropout(x + self.target_position(x), self.sizes.dropout, seeds)
        later = causal_bias(ops.shape(x)[1])
        attention = []
        for layer, keys_values in zip(self.decoder, memory.layers, strict=True):
            x, _, weights = layer(x, keys_values, memory.bias, later, seeds=seeds)
            attention.append(weights)
        logits = self.softmax.logits(self.decoder_norm(x))
        return (logits, attention) if return_attention else logits

    # What follows is not in section 3: one position at a time, for the search of section 6.1.

    def start(self, hypotheses: Tensor) -> tuple[KeysValues, ...]:
        """Returns the empty cache of `hypotheses` (B * K) hypotheses, for each decoder layer."""
        return tuple(layer.self_attention.empty_cache(hypotheses) for layer in self.decoder)

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: tuple, memory: Memory, return_attention: bool = False
    ) -> tuple:
        """Returns the logits [B, K, V] at position t, and the new cache.

        `ids` [B, K] are the tokens at position t - 1, or 0 if t is 0. On request, the third result
        are each layer's attention weights: "decoder" [B * K, H, 1, t + 1], "cross" [B, H, K, S].
        """
        x = self.target_embedding(ids)
        x = x + self.target_position(x[:, :1], start=t)  # the same position for all hypotheses
        new_cache = []
        attention = []
        for layer, keys_values, old in zip(self.decoder, memory.layers, cache, strict=True):
            x, new, weights = layer(x, keys_values, memory.bias, cache=old)
            new_cache.append(new)
            attention.append(weights)
        logits = self.softmax.logits(self.decoder_norm(x))
        results = (logits, tuple(new_cache))
        return (*results, attention) if return_attention else results
