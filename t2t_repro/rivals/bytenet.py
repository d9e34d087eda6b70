"""ByteNet in the order of section 3 of its paper (Kalchbrenner et al. 2016): dilated convolutions
without attention.

The encoder's output has a position for each target position, and the decoder reads the two side by
side. The paper does not say how the decoder's input joins them; here it is their sum. It also
leaves the initial weights open.

Shapes: B batch, S source length, U unfolded length, T target length, K hypotheses of a sentence, N
= B * K, d inner width, k kernel width, V vocabulary. Ids are 0 for padding, 1 for the end of a
text.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
from keras import ops

from t2t_repro.hparam import LAYERS, RATE, HParams, hparam, training_hparam, transformer_only
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.layer_norm import LayerNorm
from t2t_repro.models.transformer import Embedding, shift_right
from t2t_repro.rivals.convolution import convolution, convolution_step
from t2t_repro.rivals.embeddings import make_embeddings

DILATIONS = (1, 2, 4, 8, 16)
"""Dilations of five consecutive blocks, which repeat."""


@dataclass(frozen=True)
class ByteNetHParams(HParams):
    """ByteNet's hparams. `hidden_size` is d. Embeddings and the residual path have width 2 d."""

    model: str = "bytenet"
    kernel_height: int = hparam(3, LAYERS)
    """k: kernel width of the convolutions, in positions."""
    last_activation: str = hparam("relu", ["relu", "linear"], affects="outputs")
    """Function of the vectors before the pre-softmax projection: "relu", as in the publication, or
    "linear" for none, with which small models that share all embeddings learn better
    (docs/rivals.md).
    """
    embedding_dropout: float = training_hparam(0.0, RATE)
    """Dropout rate on the embeddings."""

    unused = transformer_only("norm_epsilon")


def unfolded_length(length: Any) -> Any:
    """Returns the number of encoder positions for sources of a length, an int or an integer tensor.

    It is the length times 1.2, rounded up: equation 2 with a = 1.2 and b = 0, the paper's choice
    for EN-DE.
    """
    return (6 * length + 4) // 5


class Linear(Layer):
    """A linear layer, which is a convolution of kernel width 1."""

    def __init__(self, width_in: int, width_out: int, gain: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weight = self.kernel("kernel", width_in, width_out, gain)
        self.bias = self.add_weight((width_out,), "zeros", name="bias", dtype="float32")

    def call(self, x: Tensor) -> Tensor:
        """Returns the linear map of x, float32."""
        return float32(self.product(x, self.weight)) + self.bias


class ResidualBlock(Layer):
    """A residual block with ReLUs (figure 3, left; section 3.6), on a residual path of width 2 d.

    A layer norm and a ReLU come before each of the three layers: a linear map to width d, a
    convolution with this dilation, and a linear map to width 2 d.

    Args:
        width, kernel_width: d and k.
        is_masked: true in the decoder, whose convolutions do not read later positions (section
            3.4).
        rate: dropout rate of the output before the sum.
        gain: factor of the initial variance of the kernels.
        epsilon: that of the layer norms.
    """

    def __init__(
        self,
        width: int,
        kernel_width: int,
        dilation: int,
        is_masked: bool,
        rate: float,
        gain: float,
        epsilon: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.is_masked = is_masked
        self.dilation = dilation
        self.shape = (kernel_width, width, width)
        linear = partial(Linear, gain=gain, dtype=self.dtype_policy)
        with keras.name_scope(self.name):
            self.norms = [
                LayerNorm(norm_width, epsilon, name=f"norm_{i}")
                for i, norm_width in enumerate((2 * width, width, width))
            ]
            self.reduce = linear(2 * width, width, name="reduce")
            self.convolution = linear(kernel_width * width, width, name="convolution")
            self.expand = linear(width, 2 * width, name="expand")

    def call(
        self, x: Tensor, mask: Tensor = None, cache: Tensor = None, seeds: Seeds | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the output [B, T, 2 d] of the block and its residual connection, and the cache.

        Args:
            x: [B, T, 2 d].
            mask: [B, T, 1], 0 for positions that the convolution must not read, else 1.
            cache: None, or in a step of decoding, in which T is K, that of `convolution_step`.
        """
        y = self.reduce(ops.relu(self.norms[0](x)))
        y = ops.cast(ops.relu(self.norms[1](y)), self.compute_dtype)
        if mask is not None:
            y = y * ops.cast(mask, y.dtype)
        kernel = ops.cast(ops.reshape(self.convolution.weight, self.shape), self.compute_dtype)
        if cache is None:
            y = convolution(y, kernel, self.dilation, self.is_masked)
        else:
            y, cache = convolution_step(y, cache, kernel, self.dilation)
        y = self.norms[2](float32(y) + self.convolution.bias)
        return x + dropout(self.expand(ops.relu(y)), self.rate, seeds), cache


class ByteNet(Layer):
    """The model of figure 1: the decoder is stacked on the encoder (section 3.1).

    Dynamic unfolding (section 3.2): the encoder computes `unfolded_length` positions for a source.
    Decoder position t reads position t of the encoder's output, and zeros after its end. As for all
    models, the search ends an output at the source's length plus extra_length.
    """

    hparams_class = ByteNetHParams
    has_attention = False
    is_normalized = False
    missing_methods: tuple[str, ...] = ()

    def __init__(
        self,
        hparams: ByteNetHParams,
        vocab_size: int,
        target_space_id: int = 0,
        dtype: Any = None,
        source_vocab_size: int = 0,
    ) -> None:
        super().__init__(dtype=dtype, name=hparams.model)
        self.hparams = hparams
        self.rate = hparams.layer_prepostprocess_dropout
        self.embedding_rate = hparams.embedding_dropout
        self.activation = keras.activations.get(hparams.last_activation)
        policy = self.dtype_policy
        gain = hparams.initializer_gain
        width = 2 * hparams.hidden_size
        make_block = partial(
            ResidualBlock,
            hparams.hidden_size,
            hparams.kernel_height,
            rate=self.rate,
            gain=gain,
            epsilon=hparams.norm_epsilon,
            dtype=policy,
        )
        table = partial(Embedding, width=width, dtype=policy)
        norm = partial(LayerNorm, width, hparams.norm_epsilon, name="norm")
        with keras.name_scope(self.name, caller=self):
            tables = make_embeddings(hparams, table, vocab_size, source_vocab_size)
            self.embedding, self.target_embedding = tables
            self.softmax = self.embedding
            if not hparams.shared_embedding_and_softmax_weights:
                self.softmax = table(vocab_size, name="softmax")
            self.softmax_bias = self.add_weight(
                (vocab_size,), "zeros", name="softmax_bias", dtype="float32"
            )
            with keras.name_scope("encoder"):
                self.encoder = [
                    make_block(dilation=dilation(i), is_masked=False, name=f"block_{i}")
                    for i in range(hparams.encoder_layers)
                ]
                self.encoder_norm = norm()
            with keras.name_scope("decoder"):
                self.decoder = [
                    make_block(dilation=dilation(i), is_masked=True, name=f"block_{i}")
                    for i in range(hparams.decoder_layers)
                ]
                self.decoder_norm = norm()
                self.last = Linear(width, width, gain, dtype=policy, name="last")

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor = None) -> Tensor:
        """Returns the logits [B, T, V]; see `models.model.Model`."""
        seeds = None if seed is None else Seeds(seed)
        return self.decode(targets, self.encode(inputs, seeds), seeds)

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the memory of source ids [B, S]: the encoder's output [B, U, 2 d].

        U is the unfolded length of S. For shorter sources, the positions after their own unfolded
        length are zeros.
        """
        length = ops.shape(inputs)[1]
        unfolded = unfolded_length(length)
        lengths = unfolded_length(ops.sum(ops.cast(inputs != 0, "int32"), axis=1))
        positions = ops.arange(unfolded, dtype="int32")
        mask = ops.cast(positions[None] < lengths[:, None], "float32")[..., None]
        x = dropout(self.embedding(inputs), self.embedding_rate, seeds)
        x = ops.pad(x, ((0, 0), (0, unfolded - length), (0, 0)))
        for block in self.encoder:
            x, _ = block(x, mask, seeds=seeds)
        return self.encoder_norm(x) * mask

    def decode(self, targets: Tensor, memory: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T]; see `models.model.DecodingModel`."""
        x = dropout(self.target_embedding(shift_right(targets)), self.embedding_rate, seeds)
        x = x + encoded_positions(memory, ops.arange(ops.shape(x)[1]))
        for block in self.decoder:
            x, _ = block(x, seeds=seeds)
        return self.logits(x, seeds)

    def start(self, hypotheses: Tensor) -> tuple[Tensor, ...]:
        """Returns the cache of N hypotheses: zeros [N, (k - 1) * dilation, d] for each block."""
        size, width, _ = self.decoder[0].shape
        lengths = [(size - 1) * block.dilation for block in self.decoder]
        dtype = self.compute_dtype
        return tuple(ops.zeros((hypotheses, length, width), dtype) for length in lengths)

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: tuple[Tensor, ...], memory: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Returns the logits [B, K, V] and the new cache; see `models.model.DecodingModel`."""
        x = self.target_embedding(ids) + encoded_positions(memory, t + ops.arange(1))
        new_cache = []
        for block, old in zip(self.decoder, cache, strict=True):
            x, new = block(x, cache=old)
            new_cache.append(new)
        return self.logits(x), tuple(new_cache)

    def logits(self, x: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the logits [B, T, V] of the last block's output x [B, T, 2 d].

        The paper has one more convolution and ReLU, and a last convolution (section 3.6). We take
        both to have kernel width 1. Dropout after the ReLU is that of the paper's language model.
        """
        x = self.activation(self.last(ops.relu(self.decoder_norm(x))))
        return self.softmax.logits(dropout(x, self.rate, seeds)) + self.softmax_bias


def dilation(index: int) -> int:
    """Returns the dilation of the block with this index in a stack."""
    return DILATIONS[index % len(DILATIONS)]


def encoded_positions(memory: Tensor, positions: Tensor) -> Tensor:
    """Returns the encoder's output [B, U, 2 d] at target positions [T]: [B, T, 2 d].

    After its end, there are zeros.
    """
    last = ops.shape(memory)[1] - 1
    encoded = ops.take(memory, ops.minimum(positions, last), axis=1)
    return encoded * ops.cast(positions <= last, memory.dtype)[:, None]
