"""Parts of a Transformer that are not in the paper, and the model that has those of its hparams.

Each variant is a class or a function that takes the place of a part of transformer.py.

Shapes: B batch, H heads, T queries, S keys, d channels of a head, D width, V vocabulary.
"""

from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Linear, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.layer_norm import LayerNorm
from t2t_repro.models.neighborhood import Blocks
from t2t_repro.models.transformer import (
    CrossAttention,
    Embedding,
    FeedForward,
    KeysValues,
    Parts,
    Residual,
    SelfAttention,
    Sinusoids,
    Sizes,
    Transformer,
    no_norm,
    scaled_dot_product_attention,
)
from t2t_repro.problem import SpaceID


class MarianSinusoids(Sinusoids):
    """Sinusoids as in Marian: with the paper's divisors 10000^(2i/d), but all sines first."""

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(width, **kwargs)
        timescales = width // 2
        exponents = np.arange(timescales) / timescales
        self.frequencies = (1e4**-exponents).astype("float32")


class LearnedPositions(Layer):
    """A learned vector for each of `max_length` positions (Table 3, row E). Others get zeros."""

    def __init__(
        self, width: int, max_length: int, stddev: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        initializer = keras.initializers.RandomNormal(
            stddev=width**-0.5 if stddev is None else stddev
        )
        self.table = self.add_weight(
            (max_length, width), initializer, name="table", dtype="float32"
        )

    def call(self, x: Tensor, start: Tensor = 0) -> Tensor:
        """Returns the vectors [1, T, D] of the positions of x [B, T, D], from `start` on."""
        positions = ops.cast(start + ops.arange(ops.shape(x)[1]), "int64")
        count = self.table.shape[0]
        vectors = ops.take(self.table, ops.minimum(positions, count - 1), axis=0)
        return (vectors * ops.cast(positions < count, "float32")[:, None])[None]


def no_positions(x: Tensor, start: Tensor = 0) -> float:
    """Returns 0, for a model whose self-attention has relative positions."""
    return 0.0


class RelativePositions(Layer):
    """A learned vector for each distance from a query to a key (Shaw et al. 2018).

    The table has 2 k + 1 rows for the distances from -k to k, the `max_distance`. Larger distances
    count as k, and smaller ones as -k. All heads of a layer share the table.
    """

    def __init__(self, max_distance: int, width: int, gain: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_distance = max_distance
        self.table = self.kernel("table", 2 * max_distance + 1, width, gain)

    def call(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns the vectors a_ij (equation 5) [T, S, d] of queries i, [B, H, T, d], and keys j.

        The keys are [B, H, S, d]. The last query is at the position of the last key.
        """
        end = ops.shape(keys)[2]
        first = end - ops.shape(queries)[2]
        distances = ops.arange(end)[None, :] - ops.arange(first, end)[:, None]
        rows = ops.clip(distances, -self.max_distance, self.max_distance) + self.max_distance
        return ops.cast(ops.take(self.table, rows, axis=0), self.compute_dtype)


class RelativeSelfAttention(SelfAttention):
    """Self-attention with relative positions, for the distances up to `max_distance`.

    The vector a_ij of the distance from query i to key j is added to key j (Shaw et al. 2018,
    equation 4), and another one to value j (equation 3).
    """

    def __init__(self, sizes: Sizes, max_distance: int, **kwargs: Any) -> None:
        super().__init__(sizes, **kwargs)
        gain = self.sizes.gain
        table = partial(RelativePositions, max_distance, gain=gain, dtype=self.dtype_policy)
        with keras.name_scope(self.name):
            self.relative_keys = table(width=self.sizes.key_width, name="relative_keys")
            self.relative_values = table(width=self.sizes.value_width, name="relative_values")
        self.attend = self.relative_attention

    def relative_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor = None,
        rate: float = 0.0,
        seeds: Seeds | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the outputs and weights, like `scaled_dot_product_attention`."""
        logits = float32(ops.matmul(q, ops.swapaxes(k, -1, -2)))
        distance_logits = float32(ops.einsum("bhtd,tsd->bhts", q, self.relative_keys(q, k)))
        bias = distance_logits if bias is None else distance_logits + bias
        weights = ops.softmax(logits + bias)
        dropped = ops.cast(dropout(weights, rate, seeds), v.dtype)
        distance_values = ops.einsum("bhts,tsd->bhtd", dropped, self.relative_values(q, k))
        return ops.matmul(dropped, v) + distance_values, weights


class RestrictedSelfAttention(SelfAttention):
    """Self-attention to the `neighborhood` r of each position, from i - r // 2 to i + r // 2.

    It is the restricted self-attention of section 4. If `is_masked`, as in the decoder, no position
    attends to later positions.
    """

    def __init__(
        self, sizes: Sizes, neighborhood: int, is_masked: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(sizes, **kwargs)
        self.neighborhood = neighborhood
        self.is_masked = is_masked
        self.attend = self.restricted_attention

    def restricted_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor = None,
        rate: float = 0.0,
        seeds: Seeds | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the outputs and weights, like `scaled_dot_product_attention`.

        `bias` is a mask [B, 1, 1, T] of padding; if the layer is masked, it is ignored.
        """
        if q.shape[2] == 1:  # a step of decoding, whose cache has only positions within reach
            return scaled_dot_product_attention(q, k, v, None, rate, seeds)
        blocks = Blocks(ops.shape(q)[2], self.neighborhood, self.is_masked)
        mask = blocks.bias(None if self.is_masked else bias)
        heads, weights = scaled_dot_product_attention(
            blocks.cut(q), blocks.around(k), blocks.around(v), mask, rate, seeds
        )
        # Only pictures need the weights of all positions. Graphs without pictures omit them.
        return blocks.join(heads), blocks.all_positions(weights)

    def step(self, x: Tensor, cache: KeysValues) -> tuple[Tensor, Tensor, KeysValues]:
        """Returns what `SelfAttention.step` returns. The cache has only positions within reach."""
        reach = self.neighborhood // 2
        within_reach = slice(-reach, None) if reach else slice(0)
        keys = cache.keys[:, :, within_reach]
        values = cache.values[:, :, within_reach]
        return super().step(x, KeysValues(keys, values))


class BiasedLinear(Linear):
    """The map x W + b of a layer, as the projections of Marian's attention have it."""

    def __init__(
        self, layer: Layer, name: str, width_in: int, widths_out: Any, gain: float = 1.0
    ) -> None:
        super().__init__(layer, name, width_in, widths_out, gain)
        self.bias = layer.add_weight((self.kernel.shape[1],), "zeros", name=f"{name}_bias")

    def __call__(self, x: Tensor) -> Tensor:
        y = super().__call__(x)
        return y + ops.cast(self.bias, y.dtype)


class PreNormResidual(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))), as in tensor2tensor's later models."""

    def sublayer_input(self, x: Tensor) -> Tensor:
        """Returns LayerNorm(x)."""
        return self.norm(x)

    def call(self, x: Tensor, y: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the sum [B, T, D] of x [B, T, D] and the sub-layer's output y [B, T, D]."""
        return float32(x) + dropout(float32(y), self.rate, seeds)


class SwishFeedForward(FeedForward):
    """A feed-forward network with the activation x sigmoid(x)."""

    activation = staticmethod(ops.silu)


class GeluFeedForward(FeedForward):
    """A feed-forward network with the activation x Phi(x)."""

    activation = staticmethod(keras.activations.gelu)


class BiasedSoftmax(Layer):
    """The projection before the softmax with a learned bias [V], as in Marian."""

    def __init__(self, softmax: Embedding, bias: Any) -> None:
        super().__init__()
        self.softmax = softmax
        self.bias = bias

    @property
    def table(self) -> Any:
        """The matrix [V, D]."""
        return self.softmax.table

    def logits(self, x: Tensor) -> Tensor:
        """Returns the logits [..., V] of decoder outputs x [..., D]."""
        return self.softmax.logits(x) + self.bias


FEED_FORWARD = {"relu": FeedForward, "swish": SwishFeedForward, "gelu": GeluFeedForward}
"""The classes of feed-forward networks by the hparam `activation`."""


def parts_of(hparams: HParams) -> Parts:
    """Returns the parts that the hparams name."""
    linear: dict[str, Any] = {"linear": BiasedLinear} if hparams.use_attention_biases else {}
    encoder_attention = decoder_attention = partial(SelfAttention, **linear)
    if hparams.self_attention_type == "dot_product_relative":
        distance = hparams.max_relative_position
        relative = partial(RelativeSelfAttention, max_distance=distance, **linear)
        encoder_attention = decoder_attention = relative
    if neighborhood := hparams.self_attention_neighborhood:
        restricted = partial(RestrictedSelfAttention, neighborhood=neighborhood, **linear)
        encoder_attention = restricted
        decoder_attention = partial(restricted, is_masked=True)
    positions: dict[str, Any] = {
        "timing": Sinusoids,
        "marian": MarianSinusoids,
        "emb": partial(LearnedPositions, max_length=hparams.max_length),
        "none": lambda width, name: no_positions,
    }
    factor = None if hparams.multiply_embedding_mode == "sqrt_depth" else 1.0
    return Parts(
        position=positions[hparams.pos],
        embedding=partial(Embedding, factor=factor),
        encoder_attention=encoder_attention,
        decoder_attention=decoder_attention,
        cross_attention=partial(CrossAttention, **linear),
        feed_forward=FEED_FORWARD[hparams.activation],
        residual=PreNormResidual if hparams.norm_before else Residual,
        last_norm=LayerNorm if hparams.norm_before else no_norm,
    )


class WithTargetSpace:
    """Positions, to which the learned vector of a target language is added, as in tensor2tensor.

    `table` [SpaceID.COUNT, D] has the vectors of all languages.
    """

    def __init__(self, position: Any, table: Any, target_space_id: int) -> None:
        self.position = position
        self.table = table
        self.target_space_id = target_space_id

    def __call__(self, x: Tensor, start: Tensor = 0) -> Tensor:
        """Returns vectors that are added to x [B, S, D], of which the first is at `start`."""
        return self.position(x, start=start) + float32(self.table[self.target_space_id])


def add_weights(model: Transformer, vocab_size: int, target_space_id: int) -> None:
    """Adds to a model the weights that its hparams name and the paper's model does not have."""
    hparams = model.hparams
    if hparams.use_target_space_embedding:
        shape = (SpaceID.COUNT, hparams.hidden_size)
        table = model.add_weight(shape, name="target_space_embedding")
        model.source_position = WithTargetSpace(model.source_position, table, target_space_id)
    if hparams.use_softmax_bias:
        bias = model.add_weight((vocab_size,), "zeros", name="softmax_bias", dtype="float32")
        model.softmax = BiasedSoftmax(model.softmax, bias)


def transformer(
    hparams: HParams,
    vocab_size: int,
    target_space_id: int = 0,
    dtype: Any = None,
    source_vocab_size: int = 0,
) -> Transformer:
    """Returns the Transformer that the hparams describe; the registered model "transformer".

    Args:
        vocab_size: size of the vocabulary of the targets.
        target_space_id: the target language, see `SpaceID`, for use_target_space_embedding.
        dtype: Keras's dtype or dtype policy, e.g. "mixed_bfloat16".
        source_vocab_size: size of the vocabulary of the sources, if it is another one.
    """
    model = Transformer(hparams, vocab_size, source_vocab_size, parts_of(hparams), dtype=dtype)
    add_weights(model, vocab_size, target_space_id)
    return model
