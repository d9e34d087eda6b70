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
from t2t_repro.layers.base import Caches, Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.residual import LayerNorm
from t2t_repro.models.encoder_decoder import EncoderDecoder
from t2t_repro.rivals.convolution import convolution

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
    convolution whose dilation depends on the block's index in the stack, and a linear map to width
    2 d. `is_masked` is true in the decoder, whose convolutions do not read later positions (section
    3.4).
    """

    def __init__(self, index: int, hparams: ByteNetHParams, is_masked: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        width, gain = hparams.hidden_size, hparams.initializer_gain
        self.rate, self.is_masked = hparams.layer_prepostprocess_dropout, is_masked
        self.dilation = DILATIONS[index % len(DILATIONS)]
        with keras.name_scope(self.name):
            widths = (2 * width, width, width)
            self.norms = [
                LayerNorm(hparams, norm_width, name=f"norm_{i}")
                for i, norm_width in enumerate(widths)
            ]
            self.reduce = Linear(2 * width, width, gain, dtype=dtype, name="reduce")
            self.convolution = Linear(
                hparams.kernel_height * width, width, gain, dtype=dtype, name="convolution"
            )
            self.expand = Linear(width, 2 * width, gain, dtype=dtype, name="expand")
        self.shape = (hparams.kernel_height, width, width)

    def call(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        seeds: Seeds | None = None,
        caches: Caches | None = None,
    ) -> Tensor:
        """Returns the output [B, T, 2 d] of the block and its residual connection for x [B, T, 2
        d].

        `mask` [B, T, 1] is 0 for positions that the convolution must not read, else 1. With
        `caches`, T is K; see `convolution`.
        """
        y = self.reduce(ops.relu(self.norms[0](x)))
        y = ops.cast(ops.relu(self.norms[1](y)), self.compute_dtype)
        if mask is not None:
            y = y * ops.cast(mask, y.dtype)
        kernel = ops.cast(ops.reshape(self.convolution.weight, self.shape), self.compute_dtype)
        y = convolution(y, kernel, self.dilation, self.is_masked, caches)
        y = self.norms[2](float32(y) + self.convolution.bias)
        return x + dropout(self.expand(ops.relu(y)), self.rate, seeds)


class ByteNet(EncoderDecoder):
    """The model of figure 1: the decoder is stacked on the encoder (section 3.1).

    Dynamic unfolding (section 3.2): the encoder computes `unfolded_length` positions for a source.
    Decoder position t reads position t of the encoder's output, and zeros after its end. As for all
    models, the search ends an output at the source's length plus extra_length.
    """

    model_name, hparams_class, has_attention = "bytenet", ByteNetHParams, False

    def add_layers(self) -> None:
        hparams, width = self.hparams, 2 * self.hparams.hidden_size
        self.activation = keras.activations.get(hparams.last_activation)
        block = partial(ResidualBlock, hparams=hparams, dtype=self.dtype_policy)
        self.add_embeddings(width)
        self.add_softmax(width)
        self.softmax_bias = self.add_weight(
            (self.vocab_size,), "zeros", name="softmax_bias", dtype="float32"
        )
        with keras.name_scope("encoder"):
            self.encoder = [
                block(i, name=f"block_{i}", is_masked=False) for i in range(hparams.encoder_layers)
            ]
            self.encoder_norm = LayerNorm(hparams, width, name="norm")
        with keras.name_scope("decoder"):
            self.decoder = [
                block(i, name=f"block_{i}", is_masked=True) for i in range(hparams.decoder_layers)
            ]
            self.decoder_norm = LayerNorm(hparams, width, name="norm")
            self.last = Linear(
                width, width, hparams.initializer_gain, dtype=self.dtype_policy, name="last"
            )

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the memory of source ids [B, S]: the encoder's output [B, U, 2 d].

        U is the unfolded length of S. For shorter sources, the positions after their own unfolded
        length are zeros.
        """
        length = ops.shape(inputs)[1]
        unfolded = unfolded_length(length)
        lengths = unfolded_length(ops.sum(ops.cast(inputs != 0, "int32"), axis=1))
        mask = ops.cast(ops.arange(unfolded, dtype="int32")[None] < lengths[:, None], "float32")[
            ..., None
        ]
        x = dropout(self.embedding(inputs), self.hparams.embedding_dropout, seeds)
        x = ops.pad(x, ((0, 0), (0, unfolded - length), (0, 0)))
        for block in self.encoder:
            x = block(x, mask, seeds=seeds)
        return self.encoder_norm(x) * mask

    def start(self, hypotheses: Tensor) -> tuple[Tensor, ...]:
        """Returns the cache of `hypotheses` (N) hypotheses: zeros [N, (k - 1) * dilation, d] for
        each decoder block.
        """
        (size, width, _), dtype = self.decoder[0].shape, self.compute_dtype
        return tuple(
            ops.zeros((hypotheses, (size - 1) * block.dilation, width), dtype)
            for block in self.decoder
        )

    def decoder_logits(
        self, x: Tensor, start: Tensor, memory: Tensor, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        """Returns the logits [B, T, V] for embeddings x [B, T, 2 d] and the memory [B, U, 2 d]; see
        the base class.

        The paper has one more convolution and ReLU, and a last convolution (section 3.6). We take
        both to have kernel width 1. Dropout after the ReLU is that of the paper's language model.
        """
        indices, last = (
            start + ops.arange(1 if caches else ops.shape(x)[1]),
            ops.shape(memory)[1] - 1,
        )
        encoded = ops.take(memory, ops.minimum(indices, last), axis=1)
        x = dropout(x, self.hparams.embedding_dropout, seeds)
        x = x + encoded * ops.cast(indices <= last, memory.dtype)[:, None]
        for block in self.decoder:
            x = block(x, seeds=seeds, caches=caches)
        x = self.activation(self.last(ops.relu(self.decoder_norm(x))))
        return self.softmax.logits(dropout(x, self.rate, seeds)) + self.softmax_bias
