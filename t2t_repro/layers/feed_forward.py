"""The position-wise feed-forward network (section 3.3, equation 2)."""

from typing import Any

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout

ACTIVATIONS = {"relu": ops.relu, "swish": ops.silu, "gelu": keras.activations.gelu}


class FeedForward(Layer):
    """The feed-forward network max(0, x W1 + b1) W2 + b2, with the same weights at each position.

    hparams.activation names another function instead of the maximum.
    """

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        width, inner_width = hparams.hidden_size, hparams.filter_size
        self.rate, self.activation = hparams.relu_dropout, ACTIVATIONS[hparams.activation]
        self.kernel1 = self.kernel("kernel1", width, inner_width, hparams.initializer_gain)
        self.bias1 = self.add_weight((inner_width,), "zeros", name="bias1")
        self.kernel2 = self.kernel("kernel2", inner_width, width, hparams.initializer_gain)
        self.bias2 = self.add_weight((width,), "zeros", name="bias2", dtype="float32")

    def call(self, x: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the output [B, T, D] for x [B, T, D], with dropout on the inner activations [B,
        T, d_ff].
        """
        inner = self.product(x, self.kernel1)
        inner = dropout(
            self.activation(inner + ops.cast(self.bias1, inner.dtype)), self.rate, seeds
        )
        return float32(self.product(inner, self.kernel2)) + self.bias2
