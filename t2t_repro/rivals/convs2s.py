"""ConvS2S in the order of section 3 of its paper (Gehring et al. 2017): convolutions instead of self-attention.

The sums of two terms follow section 3.4: each is multiplied by sqrt(0.5), which keeps the variance. The paper says so
for residual sums. As in the authors' code, this model also does so in equations 1 and 2.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, N = B * K, F width of the embeddings,
C and D widths of a layer's input and output, k kernel width, V vocabulary. Ids are 0 for padding, 1 for the end of a
text.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.convolution_layers import ConvolutionLayer, convolution_layers
from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.masks import padding_bias
from t2t_repro.layers.position import LearnedPositions
from t2t_repro.rivals.convolution import convolution, convolution_step, empty_cache
from t2t_repro.rivals.encoder_decoder import EncoderDecoder
from t2t_repro.rivals.weight_normalization import NormalizedLinear

EMBEDDING_STDDEV = 0.1
"""Initial standard deviation of all embeddings (section 3.5)."""
GATED = 4.0
"""Factor of the initial variance of a convolution's outputs. A gated linear unit divides the variance by about 4
(section 3.5)."""


class Memory(NamedTuple):
    """The encoded source, which the attention of all decoder layers reads."""

    bias: Tensor
    """Mask [B, 1, S] to add to attention logits: 0 for source tokens, masks.ILLEGAL for padding."""
    keys: Tensor
    """The encoder output z [B, S, F]."""
    values: Tensor
    """(z + e) [B, S, F], the encoder output and the embeddings, multiplied by the factors of section 3.4."""


def normalized_sum(x: Tensor, y: Tensor) -> Tensor:
    """Returns (x + y) * sqrt(0.5), which has the variance of x and y if they are independent (section 3.4)."""
    return (x + y) * 0.5**0.5


def scale_gradient(x: Tensor, scale: float) -> Tensor:
    """Returns x. In the backward pass, its gradient is multiplied by `scale`."""
    scaled = x * scale
    return ops.stop_gradient(x - scaled) + scaled


class ConvolutionBlock(Layer):
    """A convolution with a gated linear unit (section 3.2).

    Args:
        width_in: C.
        shape: D and k.
        hparams: dropout rate and gain of the initial weights.
    """

    def __init__(self, width_in: int, shape: ConvolutionLayer, hparams: HParams, precision: str, name: str) -> None:
        super().__init__(precision, name)
        self.rate, self.shape = hparams.layer_prepostprocess_dropout, (shape.kernel, width_in, 2 * shape.width)
        gain = hparams.initializer_gain
        with keras.name_scope(name):
            inputs, retained = shape.kernel * width_in, 1 - self.rate
            self.linear = NormalizedLinear(inputs, 2 * shape.width, GATED * retained * gain, precision, "convolution")
            # The residual connection needs a linear map if the width changes.
            is_same_width = width_in == shape.width
            self.projection = (
                None if is_same_width else NormalizedLinear(width_in, shape.width, gain, precision, "projection")
            )

    def kernel_weight(self) -> Tensor:
        """Returns the kernel [k, C, 2 D] in the layer's compute_dtype."""
        return ops.reshape(self.linear.weight(), self.shape)

    def gated(self, y: Tensor) -> Tensor:
        """Returns the gated linear unit A * sigmoid(B), float32 [..., D], of y + b = [A B] [..., 2 D]."""
        a, b = ops.split(float32(y) + self.linear.b, 2, axis=-1)
        return a * ops.sigmoid(b)

    def residual(self, x: Tensor) -> Tensor:
        """Returns the residual connection [..., D] of the block's input x [..., C]."""
        return x if self.projection is None else self.projection(x)


class EncoderLayer(ConvolutionBlock):
    """A convolution over the position and its neighbors on both sides (section 3.2)."""

    def call(self, x: Tensor, is_token: Tensor, seeds: Seeds | None) -> Tensor:
        """Returns the layer's output [B, S, D] for x [B, S, C]. `is_token` [B, S, 1] is 0 for padding, else 1."""
        # Without the mask, the tokens near the end of a source would depend on the padding of the batch.
        inputs = ops.cast(dropout(x, self.rate, seeds) * is_token, self.compute_dtype)
        return normalized_sum(self.gated(convolution(inputs, self.kernel_weight())), self.residual(x))


class Attention(Layer):
    """Attention from a decoder layer to the source (section 3.3)."""

    def __init__(self, width: int, hparams: HParams, precision: str, name: str) -> None:
        super().__init__(precision, name)
        embedding_width, gain = hparams.hidden_size, hparams.initializer_gain
        with keras.name_scope(name):
            self.query = NormalizedLinear(width, embedding_width, gain, precision, "query")
            self.output_projection = NormalizedLinear(embedding_width, width, gain, precision, "output")

    def call(self, h: Tensor, g: Tensor, memory: Memory, save_weights_to: list | None) -> Tensor:
        """Returns the sum [B, T, D] of the decoder states h [B, T, D] and their attention.

        Args:
            g: embeddings of the previous targets [B, T, F].
            memory: the encoded source.
            save_weights_to: list to which this method appends the attention weights [B, 1, T, S].
        """
        query = ops.cast(normalized_sum(self.query(h), g), self.compute_dtype)  # equation 1
        logits = float32(ops.matmul(query, ops.swapaxes(memory.keys, 1, 2)))
        weights = ops.softmax(logits + memory.bias)
        if save_weights_to is not None:
            save_weights_to.append(weights[:, None])
        context = ops.matmul(ops.cast(weights, memory.values.dtype), memory.values)  # equation 2
        return normalized_sum(h, self.output_projection(context))


class DecoderLayer(ConvolutionBlock):
    """A convolution over the position and the k - 1 positions before it, then attention (sections 3.2 and 3.3)."""

    def __init__(self, width_in: int, shape: ConvolutionLayer, hparams: HParams, precision: str, name: str) -> None:
        super().__init__(width_in, shape, hparams, precision, name)
        with keras.name_scope(name):
            self.attention = Attention(shape.width, hparams, precision, "attention")

    def call(
        self, x: Tensor, g: Tensor, memory: Memory, seeds: Seeds | None, save_weights_to: list | None = None
    ) -> Tensor:
        """Returns the layer's output [B, T, D] for x [B, T, C]; other arguments are those of `Attention.call`."""
        inputs = ops.cast(dropout(x, self.rate, seeds), self.compute_dtype)
        h = self.gated(convolution(inputs, self.kernel_weight(), is_masked=True))
        return normalized_sum(self.attention(h, g, memory, save_weights_to), self.residual(x))

    def step(
        self, x: Tensor, g: Tensor, memory: Memory, cache: Tensor, save_weights_to: list | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the output [B, K, D] at a new position of each hypothesis, and the new cache [N, k - 1, C].

        Args:
            x: the layer's input [B, K, C] at the new position.
            g: embeddings of the previous targets [B, K, F].
            cache: the inputs [N, k - 1, C] of the earlier positions.
        """
        inputs = ops.reshape(ops.cast(x, self.compute_dtype), (-1, x.shape[-1]))
        y, cache = convolution_step(inputs, cache, self.kernel_weight())
        h = self.gated(ops.reshape(y, (*ops.shape(x)[:2], y.shape[-1])))
        return normalized_sum(self.attention(h, g, memory, save_weights_to), self.residual(x)), cache


class ConvS2S(EncoderDecoder):
    """The model of figure 1: embeddings, encoder, decoder with attention in each layer, and logits.

    The gradient of the encoder output is divided by 2 L for L decoder layers, as in the authors' code: each layer's
    attention reads the output twice, as keys and in values. Section 3.4 divides it by the number of attention
    mechanisms. The gradients of the source embeddings in the values are not divided. (Adam hardly depends on the scale
    of a weight's gradient. So with Adam, this matters only for the source embeddings, whose gradient is a sum of both.)

    Args:
        hparams: layer sizes and dropout rate; hparams.hidden_size is F.
        vocab_size: V, the number of entries in the vocabulary of the targets.
        target_space_id: ignored.
        precision: dtype of weights and products, see `Layer`.
        source_vocab_size: number of entries in the vocabulary of the sources; 0 if source and target share one.
    """

    has_attention = True

    def __init__(
        self,
        hparams: HParams,
        vocab_size: int,
        target_space_id: int = 0,
        precision: str = "float32",
        source_vocab_size: int = 0,
    ) -> None:
        super().__init__(hparams, precision, name="convs2s")
        self.rate, layers = hparams.layer_prepostprocess_dropout, convolution_layers(hparams)
        with keras.name_scope("convs2s"):
            self.add_embeddings(vocab_size, source_vocab_size, hparams.hidden_size, EMBEDDING_STDDEV)
            with keras.name_scope("encoder"):
                self.source_position = LearnedPositions(hparams.hidden_size, hparams.max_length, EMBEDDING_STDDEV)
                self.encoder = self._stack(EncoderLayer, layers[: hparams.encoder_layers])
                self.encoder_in = self._linear(hparams.hidden_size, layers[0].width, True, "in")
                width = layers[hparams.encoder_layers - 1].width
                self.encoder_out = self._linear(width, hparams.hidden_size, False, "out")
            with keras.name_scope("decoder"):
                self.target_position = LearnedPositions(hparams.hidden_size, hparams.max_length, EMBEDDING_STDDEV)
                self.decoder = self._stack(DecoderLayer, layers[: hparams.decoder_layers])
                self.decoder_in = self._linear(hparams.hidden_size, layers[0].width, True, "in")
                width = layers[hparams.decoder_layers - 1].width
                output_width = hparams.output_embedding_size or hparams.hidden_size
                self.decoder_out = self._linear(width, output_width, False, "out")
            self.softmax: NormalizedLinear | Embedding = self.embedding
            if not hparams.shared_embedding_and_softmax_weights:
                self.softmax = self._linear(output_width, vocab_size, True, "softmax")
        if hparams.shared_embedding_and_softmax_weights:  # a lookup table has no weight normalization (section 4.2)
            self.softmax_bias = self.add_weight(
                shape=(vocab_size,), initializer="zeros", name="softmax_bias", dtype="float32"
            )

    def _linear(self, width_in: int, width_out: int, has_dropout: bool, name: str) -> NormalizedLinear:
        """Returns a new linear layer. `has_dropout` says whether its input has dropout."""
        gain = self.hparams.initializer_gain * (1 - self.rate if has_dropout else 1)
        return NormalizedLinear(width_in, width_out, gain, self.dtype_policy.name, name)

    def _stack(self, kind: type[ConvolutionBlock], layers: tuple[ConvolutionLayer, ...]) -> list:
        """Returns new layers of a class. The first layer's input has the width of its output."""
        widths_in = [layers[0].width, *(layer.width for layer in layers)]
        arguments = enumerate(zip(widths_in, layers, strict=False))
        return [kind(*shapes, self.hparams, self.dtype_policy.name, f"layer_{i}") for i, shapes in arguments]

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S], which the decoder's attention reads."""
        is_token = ops.cast(inputs != 0, "float32")[..., None]
        e = self.embedding(inputs) + self.source_position(0, ops.shape(inputs)[1])  # section 3.1
        e = dropout(e, self.rate, seeds)
        x = self.encoder_in(e)
        for layer in self.encoder:
            x = layer(x, is_token, seeds)
        z = scale_gradient(self.encoder_out(x), 1 / (2 * len(self.decoder)))
        # Attention's weighted mean of m values is multiplied by m * sqrt(1 / m) = sqrt(m) (section 3.4).
        values = normalized_sum(z, e) * ops.sqrt(ops.sum(is_token, axis=1, keepdims=True))
        z, values = ops.cast(z, self.compute_dtype), ops.cast(values, self.compute_dtype)
        return Memory(padding_bias(inputs)[:, 0], z, values)

    def decode(
        self, targets: Tensor, memory: Memory, seeds: Seeds | None = None, save_weights_to: list | None = None
    ) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given the memory.

        Args:
            save_weights_to: list to which this method appends the attention weights [B, 1, T, S] of each layer.
        """
        g = self.previous_embeddings(targets) + self.target_position(0, ops.shape(targets)[1])
        g = dropout(g, self.rate, seeds)
        h = self.decoder_in(g)
        for layer in self.decoder:
            h = layer(h, g, memory, seeds, save_weights_to)
        return self._logits(h, seeds)

    def _logits(self, h: Tensor, seeds: Seeds | None) -> Tensor:
        """Returns the logits [B, T, V] of the last layer's output h [B, T, D]."""
        h = dropout(self.decoder_out(h), self.rate, seeds)
        if isinstance(self.softmax, Embedding):
            return self.softmax.logits(h) + self.softmax_bias
        return self.softmax(h)

    def start(self, hypotheses: Tensor) -> tuple[Tensor, ...]:
        """Returns the cache of `hypotheses` (N) hypotheses: zeros [N, k - 1, C] for each decoder layer."""
        return tuple(empty_cache(hypotheses, layer.shape, self.compute_dtype) for layer in self.decoder)

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: tuple[Tensor, ...], memory: Memory, save_weights_to: list | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Returns the logits [B, K, V] of position t, equal to those of `decode`, and the cache with position t added.

        The cache holds the last k - 1 inputs [N, k - 1, C] of each decoder layer.

        Args:
            ids: [B, K], the token of each hypothesis at position t - 1, or 0 if t is 0.
            t: index of the position, from 0.
            save_weights_to: list to which this method appends the attention weights [B, 1, K, S] of each layer.
        """
        g = self.target_embedding(ids) + self.target_position(t, 1)
        h = self.decoder_in(g)
        new_cache = []
        for layer, layer_cache in zip(self.decoder, cache, strict=True):
            h, layer_cache = layer.step(h, g, memory, layer_cache, save_weights_to)
            new_cache.append(layer_cache)
        return self._logits(h, None), tuple(new_cache)
