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
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.models.transformer import Embedding, padding_bias, shift_right
from t2t_repro.models.variants import LearnedPositions
from t2t_repro.rivals.convolution import convolution, convolution_step
from t2t_repro.rivals.embeddings import make_embeddings

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
    """Mask [B, 1, S] to add to attention logits: 0 for source tokens, `MASKED` for padding."""
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
    """A convolution with a gated linear unit (section 3.2).

    Args:
        width_in, width, size: C, D and k.
        rate: dropout rate of the input.
        gain: factor of the initial variance.
    """

    def __init__(
        self, width_in: int, width: int, size: int, rate: float, gain: float, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.shape = (size, width_in, 2 * width)
        linear = partial(NormalizedLinear, dtype=self.dtype_policy)
        with keras.name_scope(self.name):
            gain_in = GATED * (1 - rate) * gain
            self.linear = linear(size * width_in, 2 * width, gain_in, name="convolution")
            self.projection: NormalizedLinear | None = None
            if width_in != width:  # the residual connection then needs a linear map
                self.projection = linear(width_in, width, gain, name="projection")

    def kernel_and_input(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the convolution's kernel and x in the compute_dtype."""
        kernel = ops.reshape(self.linear.weight(), self.shape)
        return kernel, ops.cast(x, self.compute_dtype)

    def gate(self, y: Tensor) -> Tensor:
        """Returns the gated linear unit A * sigmoid(B), float32, of the convolution y = [A B]."""
        a, b = ops.split(float32(y) + self.linear.b, 2, axis=-1)
        return a * ops.sigmoid(b)

    def residual(self, x: Tensor) -> Tensor:
        """Returns the residual connection [..., D] of the block's input x [..., C]."""
        return x if self.projection is None else self.projection(x)


class EncoderLayer(ConvolutionBlock):
    """A convolution over the position and its neighbors on both sides (section 3.2)."""

    def call(self, x: Tensor, is_token: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the output [B, S, D] for x [B, S, C]. `is_token` [B, S, 1] is 0 for padding."""
        # Without the mask, the tokens near the end of a source would depend on the padding of the
        # batch.
        kernel, y = self.kernel_and_input(dropout(x, self.rate, seeds) * is_token)
        return normalized_sum(self.gate(convolution(y, kernel)), self.residual(x))


class DecoderLayer(ConvolutionBlock):
    """A convolution over the position and the k - 1 positions before it, then attention.

    Sections 3.2 and 3.3. `embedding_width` is F.
    """

    def __init__(
        self,
        width_in: int,
        width: int,
        size: int,
        rate: float,
        gain: float,
        embedding_width: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(width_in, width, size, rate, gain, **kwargs)
        linear = partial(NormalizedLinear, gain=gain, dtype=self.dtype_policy)
        with keras.name_scope(self.name), keras.name_scope("attention"):
            self.query = linear(width, embedding_width, name="query")
            self.attention_output = linear(embedding_width, width, name="output")

    def call(
        self,
        x: Tensor,
        g: Tensor,
        memory: Memory,
        cache: Tensor = None,
        seeds: Seeds | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the output [B, T, D], the cache, and the attention weights [B, 1, T, S].

        Args:
            x: [B, T, C].
            g: the embeddings [B, T, F] of the previous targets.
            cache: None, or in a step of decoding, in which T is K, that of `convolution_step`.
        """
        kernel, y = self.kernel_and_input(dropout(x, self.rate, seeds))
        if cache is None:
            y = convolution(y, kernel, is_masked=True)
        else:
            y, cache = convolution_step(y, cache, kernel)
        h = self.gate(y)
        query = ops.cast(normalized_sum(self.query(h), g), self.compute_dtype)  # equation 1
        logits = float32(ops.matmul(query, ops.swapaxes(memory.keys, 1, 2)))
        a = ops.softmax(logits + memory.bias)
        context = ops.matmul(ops.cast(a, memory.values.dtype), memory.values)  # equation 2
        y = normalized_sum(h, self.attention_output(context))
        return normalized_sum(y, self.residual(x)), cache, a[:, None]


class ConvS2S(Layer):
    """The model of figure 1: embeddings, encoder, decoder with attention in each layer, and logits.

    The gradient of the encoder output is divided by 2 L for L decoder layers, as in the authors'
    code: each layer's attention reads the output twice, as keys and in values. Section 3.4 divides
    it by the number of attention mechanisms. The gradients of the source embeddings in the values
    are not divided. (Adam hardly depends on the scale of a weight's gradient. So with Adam, this
    matters only for the source embeddings, whose gradient is a sum of both.)
    """

    hparams_class = ConvS2SHParams
    has_attention = True
    is_normalized = False
    missing_methods: tuple[str, ...] = ()

    def __init__(
        self,
        hparams: ConvS2SHParams,
        vocab_size: int,
        target_space_id: int = 0,
        dtype: Any = None,
        source_vocab_size: int = 0,
    ) -> None:
        super().__init__(dtype=dtype, name=hparams.model)
        self.hparams = hparams
        width = hparams.hidden_size
        self.rate = hparams.layer_prepostprocess_dropout
        gain = hparams.initializer_gain
        encoder_layers = hparams.layers[: hparams.encoder_layers]
        decoder_layers = hparams.layers[: hparams.decoder_layers]
        output_width = hparams.output_embedding_size or width
        policy = self.dtype_policy
        linear = partial(NormalizedLinear, dtype=policy)
        gain_in = gain * (1 - self.rate)  # if the input has dropout
        position = partial(LearnedPositions, width, hparams.max_length, EMBEDDING_STDDEV)
        layer_options = {"rate": self.rate, "gain": gain, "dtype": policy}
        normal = partial(keras.initializers.RandomNormal, stddev=EMBEDDING_STDDEV)
        table = partial(Embedding, width=width, factor=1.0, make_initializer=normal, dtype=policy)
        with keras.name_scope(self.name, caller=self):
            tables = make_embeddings(hparams, table, vocab_size, source_vocab_size)
            self.embedding, self.target_embedding = tables
            with keras.name_scope("encoder"):
                self.source_position = position(name="position")
                self.encoder = stack(partial(EncoderLayer, **layer_options), encoder_layers)
                self.encoder_in = linear(width, encoder_layers[0].width, gain_in, name="in")
                self.encoder_out = linear(encoder_layers[-1].width, width, gain, name="out")
            with keras.name_scope("decoder"):
                self.target_position = position(name="position")
                make_layer = partial(DecoderLayer, embedding_width=width, **layer_options)
                self.decoder = stack(make_layer, decoder_layers)
                self.decoder_in = linear(width, decoder_layers[0].width, gain_in, name="in")
                self.decoder_out = linear(decoder_layers[-1].width, output_width, gain, name="out")
            self.softmax: NormalizedLinear | Embedding = self.embedding
            # A lookup table has no weight normalization (section 4.2).
            if hparams.shared_embedding_and_softmax_weights:
                self.softmax_bias = self.add_weight(
                    (vocab_size,), "zeros", name="softmax_bias", dtype="float32"
                )
            else:
                self.softmax = linear(output_width, vocab_size, gain_in, name="softmax")

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor = None) -> Tensor:
        """Returns the logits [B, T, V]; see `models.model.Model`."""
        seeds = None if seed is None else Seeds(seed)
        return self.decode(targets, self.encode(inputs, seeds), seeds)

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S], which the decoder's attention reads."""
        is_token = ops.cast(inputs != 0, "float32")[..., None]
        e = self.embedding(inputs)
        e = dropout(e + self.source_position(e), self.rate, seeds)  # section 3.1
        x = self.encoder_in(e)
        for layer in self.encoder:
            x = layer(x, is_token, seeds=seeds)
        z = scale_gradient(self.encoder_out(x), 1 / (2 * len(self.decoder)))
        # Attention's weighted mean of m values is multiplied by m * sqrt(1 / m) = sqrt(m)
        # (section 3.4).
        values = normalized_sum(z, e) * ops.sqrt(ops.sum(is_token, axis=1, keepdims=True))
        keys = ops.cast(z, self.compute_dtype)
        return Memory(padding_bias(inputs)[:, 0], keys, ops.cast(values, self.compute_dtype))

    def decode(
        self,
        targets: Tensor,
        memory: Memory,
        seeds: Seeds | None = None,
        return_attention: bool = False,
    ) -> Any:
        """Returns the logits [B, T, V] of target ids [B, T]; see `models.model.DecodingModel`."""
        x = self.target_embedding(shift_right(targets))
        g = dropout(x + self.target_position(x), self.rate, seeds)
        h = self.decoder_in(g)
        attention = []
        for layer in self.decoder:
            h, _, weights = layer(h, g, memory, seeds=seeds)
            attention.append({"cross": weights})
        logits = self.logits(dropout(self.decoder_out(h), self.rate, seeds))
        return (logits, attention) if return_attention else logits

    def start(self, hypotheses: Tensor) -> tuple[Tensor, ...]:
        """Returns the cache of N hypotheses: zeros [N, k - 1, C] for each decoder layer."""
        shapes = [layer.shape for layer in self.decoder]
        dtype = self.compute_dtype
        return tuple(ops.zeros((hypotheses, size - 1, width), dtype) for size, width, _ in shapes)

    def decode_step(
        self,
        ids: Tensor,
        t: Tensor,
        cache: tuple[Tensor, ...],
        memory: Memory,
        return_attention: bool = False,
    ) -> tuple:
        """Returns the logits [B, K, V] and the new cache; see `models.model.DecodingModel`."""
        x = self.target_embedding(ids)
        g = x + self.target_position(x[:, :1], start=t)
        h = self.decoder_in(g)
        new_cache = []
        attention = []
        for layer, old in zip(self.decoder, cache, strict=True):
            h, new, weights = layer(h, g, memory, cache=old)
            new_cache.append(new)
            attention.append({"cross": weights})
        results = self.logits(self.decoder_out(h)), tuple(new_cache)
        return (*results, attention) if return_attention else results

    def logits(self, h: Tensor) -> Tensor:
        """Returns the logits [..., V] of vectors h [..., output_embedding_size]."""
        if isinstance(self.softmax, NormalizedLinear):
            return self.softmax(h)
        return self.softmax.logits(h) + self.softmax_bias


def stack(make: Any, layers: tuple[ConvolutionLayer, ...]) -> list[Any]:
    """Returns new layers of a stack. The first layer's input has the width of its output."""
    widths_in = [layers[0].width, *(layer.width for layer in layers[:-1])]
    return [
        make(width_in, layer.width, layer.kernel, name=f"layer_{i}")
        for i, (width_in, layer) in enumerate(zip(widths_in, layers, strict=True))
    ]
