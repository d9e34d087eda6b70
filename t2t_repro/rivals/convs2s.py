"""ConvS2S in the order of section 3 of its paper (Gehring et al. 2017): convolutions instead of
self-attention.

The sums of two terms follow section 3.4: each is multiplied by sqrt(0.5), which keeps the variance.
The paper says so for residual sums. As in the authors' code, this model also does so in equations 1
and 2.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, N = B * K, F width of
the embeddings, C and D widths of a layer's input and output, k kernel width, V vocabulary. Ids are
0 for padding, 1 for the end of a text.
"""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.errors import UserError, counted
from t2t_repro.hparam import COUNT, LAYERS, OPTIONAL_WIDTH, WIDTH, HParams, hparam, transformer_only
from t2t_repro.layers.attention import save_cross_weights
from t2t_repro.layers.base import Caches, Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.masks import padding_bias
from t2t_repro.layers.position import LearnedPositions
from t2t_repro.models.encoder_decoder import EncoderDecoder
from t2t_repro.rivals.convolution import convolution

EMBEDDING_STDDEV = 0.1
"""Initial standard deviation of all embeddings (section 3.5)."""
GATED = 4.0
"""Factor of the initial variance of a convolution's outputs. A gated linear unit divides the
variance by about 4 (section 3.5).
"""
GROUP = re.compile(r"(\d+)x(\d+)(?:\*(\d+))?", re.ASCII)
"""Layers of equal shape: width, "x", kernel width and, unless it is one layer, "*" and the number
of layers.
"""


class ConvolutionLayer(NamedTuple):
    """The shape of a layer: the number of channels of its output, and the kernel width in
    positions.
    """

    width: int
    kernel: int


@dataclass(frozen=True)
class ConvS2SHParams(HParams):
    """ConvS2S's hparams. `hidden_size` is F, the width of the embeddings."""

    model: str = "convs2s"
    convolutions: str = ""
    """The layers, from the first to the last: "512x3*9+1024x1*2" are 9 layers of width 512 and
    kernel width 3, then 2 layers of width 1,024 and kernel width 1. Empty: all have hidden_size and
    kernel_height.
    """
    kernel_height: int = hparam(3, LAYERS, needs={"convolutions": ['""']})
    """k: kernel width of the convolutions, in positions."""
    output_embedding_size: int = hparam(0, OPTIONAL_WIDTH)
    """Width of the vectors before the pre-softmax projection; 0 means hidden_size."""
    max_length: int = hparam(256, COUNT)
    """Maximum length of a source or target in training, in tokens, counting the end token, and
    number of learned position vectors.
    """

    unused = transformer_only()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shared_width("output_embedding_size")
        count = max(self.encoder_layers, self.decoder_layers)
        if len(self.layers) != count:
            raise UserError(
                f"convolutions={self.convolutions} describes "
                f"{counted(len(self.layers), 'layer')}, but the larger stack has {count}; change "
                "one of them"
            )

    @property
    def layers(self) -> tuple[ConvolutionLayer, ...]:
        """The layers of the larger of the two stacks. The other stack has the first of them."""
        if not self.convolutions:
            layer = ConvolutionLayer(self.hidden_size, self.kernel_height)
            return (layer,) * max(self.encoder_layers, self.decoder_layers)
        layers: list[ConvolutionLayer] = []
        for group in self.convolutions.split("+"):
            match = GROUP.fullmatch(group)
            width, kernel, count = (
                (int(number or 1) for number in match.groups()) if match else (0, 0, 0)
            )
            if not (0 < width <= WIDTH[1] and 0 < kernel <= LAYERS[1] and 0 < count <= LAYERS[1]):
                raise UserError(
                    f"convolutions={self.convolutions}: {group!r} must be WIDTHxKERNEL or "
                    f"WIDTHxKERNEL*LAYERS, e.g. 512x3*9, with a width of at most {WIDTH[1]} and "
                    f"other numbers of at most {LAYERS[1]}"
                )
            layers += [ConvolutionLayer(width, kernel)] * count
        return tuple(layers)


class NormalizedLinear(Layer):
    """A linear layer x W + b with weight normalization (Salimans and Kingma 2016).

    The weight W = g v / ||v|| [n, m] has the norm g[j] in column j. At first, W = v. The elements
    of v are drawn from a normal distribution with variance gain / n, and b is 0. So `gain` is the
    initial variance of the outputs, for independent inputs of variance 1.
    """

    def __init__(self, width_in: int, width_out: int, gain: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        normal = keras.initializers.RandomNormal(stddev=(gain / width_in) ** 0.5)
        self.v = self.add_weight(shape=(width_in, width_out), initializer=normal, name="v")
        self.g = self.add_weight(shape=(width_out,), initializer=self._norms, name="g")
        self.b = self.add_weight((width_out,), "zeros", name="b", dtype="float32")
        self.is_folded = False

    def _norms(self, shape: tuple[int, ...] = (), dtype: str = "float32") -> Tensor:
        """Returns the norms of the columns of v, [m]. `shape` is not used, but initializers have
        it.
        """
        return ops.cast(ops.sqrt(ops.sum(ops.square(float32(self.v)), axis=0)), dtype)

    def weight(self) -> Tensor:
        """Returns W [n, m] in the layer's compute_dtype."""
        if self.is_folded:
            return ops.cast(self.v, self.compute_dtype)
        return ops.cast(float32(self.v) * (float32(self.g) / self._norms()), self.compute_dtype)

    def fold_weights(self) -> None:
        """Replaces the values of v by W; see `Layer.fold_weights`."""
        self.v.assign(self.weight())
        self.is_folded = True

    def call(self, x: Tensor) -> Tensor:
        """Returns x W + b, float32 [..., m], for x [..., n]."""
        return float32(self.product(x, self.weight())) + self.b


class Memory(NamedTuple):
    """The encoded source, which the attention of all decoder layers reads."""

    bias: Tensor
    """Mask [B, 1, S] to add to attention logits: 0 for source tokens, masks.ILLEGAL for padding."""
    keys: Tensor
    """The encoder output z [B, S, F]."""
    values: Tensor
    """(z + e) [B, S, F], the encoder output and the embeddings, multiplied by the factors of
    section 3.4.
    """


def normalized_sum(x: Tensor, y: Tensor) -> Tensor:
    """Returns (x + y) * sqrt(0.5), which has the variance of x and y if they are independent
    (section 3.4).
    """
    return (x + y) * 0.5**0.5


def scale_gradient(x: Tensor, scale: float) -> Tensor:
    """Returns x. In the backward pass, its gradient is multiplied by `scale`."""
    scaled = x * scale
    return ops.stop_gradient(x - scaled) + scaled


class ConvolutionBlock(Layer):
    """A convolution with a gated linear unit (section 3.2). `width_in` is C, `width` is D and
    `size` is k.
    """

    def __init__(
        self, width_in: int, width: int, size: int, hparams: HParams, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rate, self.shape = hparams.layer_prepostprocess_dropout, (size, width_in, 2 * width)
        gain, dtype = hparams.initializer_gain, self.dtype_policy
        with keras.name_scope(self.name):
            gain_in = GATED * (1 - self.rate) * gain
            self.linear = NormalizedLinear(
                size * width_in, 2 * width, gain_in, dtype=dtype, name="convolution"
            )
            self.projection: NormalizedLinear | None = None
            if width_in != width:  # the residual connection then needs a linear map
                self.projection = NormalizedLinear(
                    width_in, width, gain, dtype=dtype, name="projection"
                )

    def gated(self, x: Tensor, **options: Any) -> Tensor:
        """Returns the gated linear unit A * sigmoid(B), float32 [B, T, D], of the convolution [A B]
        of x [B, T, C].
        """
        kernel = ops.reshape(self.linear.weight(), self.shape)
        y = convolution(ops.cast(x, self.compute_dtype), kernel, **options)
        a, b = ops.split(float32(y) + self.linear.b, 2, axis=-1)
        return a * ops.sigmoid(b)

    def residual(self, x: Tensor) -> Tensor:
        """Returns the residual connection [..., D] of the block's input x [..., C]."""
        return x if self.projection is None else self.projection(x)


class EncoderLayer(ConvolutionBlock):
    """A convolution over the position and its neighbors on both sides (section 3.2)."""

    def call(self, x: Tensor, is_token: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the layer's output [B, S, D] for x [B, S, C]. `is_token` [B, S, 1] is 0 for
        padding, else 1.
        """
        # Without the mask, the tokens near the end of a source would depend on the padding of the
        # batch.
        return normalized_sum(self.gated(dropout(x, self.rate, seeds) * is_token), self.residual(x))


class DecoderLayer(ConvolutionBlock):
    """A convolution over the position and the k - 1 positions before it, then attention (sections
    3.2 and 3.3).
    """

    def __init__(
        self, width_in: int, width: int, size: int, hparams: HParams, **kwargs: Any
    ) -> None:
        super().__init__(width_in, width, size, hparams, **kwargs)
        embedding_width, gain, dtype = (
            hparams.hidden_size,
            hparams.initializer_gain,
            self.dtype_policy,
        )
        with keras.name_scope(self.name), keras.name_scope("attention"):
            self.query = NormalizedLinear(width, embedding_width, gain, dtype=dtype, name="query")
            self.attention_output = NormalizedLinear(
                embedding_width, width, gain, dtype=dtype, name="output"
            )

    def call(
        self,
        x: Tensor,
        g: Tensor,
        memory: Memory,
        seeds: Seeds | None = None,
        caches: Caches | None = None,
    ) -> Tensor:
        """Returns the layer's output [B, T, D] for x [B, T, C], and saves the attention weights [B,
        1, T, S].

        g [B, T, F] are the embeddings of the previous targets. With `caches`, T is K; see
        `convolution`.
        """
        bias, keys, values = memory  # a plain tuple in a model from a .keras file
        h = self.gated(dropout(x, self.rate, seeds), is_masked=True, caches=caches)
        query = ops.cast(normalized_sum(self.query(h), g), self.compute_dtype)  # equation 1
        a = ops.softmax(float32(ops.matmul(query, ops.swapaxes(keys, 1, 2))) + bias)
        save_cross_weights.add(a[:, None])
        context = ops.matmul(ops.cast(a, values.dtype), values)  # equation 2
        return normalized_sum(normalized_sum(h, self.attention_output(context)), self.residual(x))


class ConvS2S(EncoderDecoder):
    """The model of figure 1: embeddings, encoder, decoder with attention in each layer, and logits.

    The gradient of the encoder output is divided by 2 L for L decoder layers, as in the authors'
    code: each layer's attention reads the output twice, as keys and in values. Section 3.4 divides
    it by the number of attention mechanisms. The gradients of the source embeddings in the values
    are not divided. (Adam hardly depends on the scale of a weight's gradient. So with Adam, this
    matters only for the source embeddings, whose gradient is a sum of both.)
    """

    model_name, hparams_class = "convs2s", ConvS2SHParams

    def add_layers(self) -> None:
        hparams, width, layers = self.hparams, self.hparams.hidden_size, self.hparams.layers
        output_width = hparams.output_embedding_size or width
        encoder_layers, decoder_layers = (
            layers[: hparams.encoder_layers],
            layers[: hparams.decoder_layers],
        )
        self.add_embeddings(width, EMBEDDING_STDDEV)
        with keras.name_scope("encoder"):
            self.source_position = LearnedPositions(
                width, hparams.max_length, EMBEDDING_STDDEV, name="position"
            )
            self.encoder = self._stack(EncoderLayer, encoder_layers)
            self.encoder_in = self._linear(width, encoder_layers[0].width, True, "in")
            self.encoder_out = self._linear(encoder_layers[-1].width, width, False, "out")
        with keras.name_scope("decoder"):
            self.target_position = LearnedPositions(
                width, hparams.max_length, EMBEDDING_STDDEV, name="position"
            )
            self.decoder = self._stack(DecoderLayer, decoder_layers)
            self.decoder_in = self._linear(width, decoder_layers[0].width, True, "in")
            self.decoder_out = self._linear(decoder_layers[-1].width, output_width, False, "out")
        self.softmax: NormalizedLinear | Embedding = self.embedding
        if (
            hparams.shared_embedding_and_softmax_weights
        ):  # a lookup table has no weight normalization (section 4.2)
            self.softmax_bias = self.add_weight(
                (self.vocab_size,), "zeros", name="softmax_bias", dtype="float32"
            )
        else:
            self.softmax = self._linear(output_width, self.vocab_size, True, "softmax")

    def _linear(
        self, width_in: int, width_out: int, has_dropout: bool, name: str
    ) -> NormalizedLinear:
        """Returns a new linear layer. `has_dropout` says whether its input has dropout."""
        gain = self.hparams.initializer_gain * (1 - self.rate if has_dropout else 1)
        return NormalizedLinear(width_in, width_out, gain, dtype=self.dtype_policy, name=name)

    def _stack(self, kind: type[ConvolutionBlock], layers: tuple[ConvolutionLayer, ...]) -> list:
        """Returns new layers of a class. The first layer's input has the width of its output."""
        widths_in = [layers[0].width, *(layer.width for layer in layers)]
        shapes = enumerate(zip(widths_in, layers, strict=False))
        make = partial(kind, hparams=self.hparams, dtype=self.dtype_policy)
        return [make(width_in, *layer, name=f"layer_{i}") for i, (width_in, layer) in shapes]

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S], which the decoder's attention reads."""
        is_token = ops.cast(inputs != 0, "float32")[..., None]
        e = self.embedding(inputs)
        e = dropout(e + self.source_position(e), self.rate, seeds)  # section 3.1
        x = self.encoder_in(e)
        for layer in self.encoder:
            x = layer(x, is_token, seeds=seeds)
        z = scale_gradient(self.encoder_out(x), 1 / (2 * len(self.decoder)))
        # Attention's weighted mean of m values is multiplied by m * sqrt(1 / m) = sqrt(m) (section
        # 3.4).
        values = normalized_sum(z, e) * ops.sqrt(ops.sum(is_token, axis=1, keepdims=True))
        z, values = ops.cast(z, self.compute_dtype), ops.cast(values, self.compute_dtype)
        return Memory(padding_bias(inputs)[:, 0], z, values)

    def start(self, hypotheses: Tensor) -> tuple[Tensor, ...]:
        """Returns the cache of `hypotheses` (N) hypotheses: zeros [N, k - 1, C] for each decoder
        layer.
        """
        shapes = [layer.shape for layer in self.decoder]
        return tuple(
            ops.zeros((hypotheses, size - 1, width), self.compute_dtype)
            for size, width, _ in shapes
        )

    def decoder_logits(
        self, x: Tensor, start: Tensor, memory: Memory, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        g = dropout(
            x + self.target_position(x[:, None, 0] if caches else x, start=start), self.rate, seeds
        )
        h = self.decoder_in(g)
        for layer in self.decoder:
            h = layer(h, g, memory, seeds=seeds, caches=caches)
        h = dropout(self.decoder_out(h), self.rate, seeds)
        if isinstance(self.softmax, Embedding):
            return self.softmax.logits(h) + self.softmax_bias
        return self.softmax(h)
