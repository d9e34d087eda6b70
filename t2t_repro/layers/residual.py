"""The residual connection around each sub-layer, and its layer norm (section 3.1)."""

from collections.abc import Callable

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor
from t2t_repro.layers.dropout import Seeds, dropout


class LayerNorm(Layer):
    """Layer normalization: gives each vector mean 0 and variance 1, then scales and shifts it (Ba et al. 2016).

    The vectors have `width` elements, by default hparams.hidden_size.
    """

    def __init__(self, hparams: HParams, name: str = "norm", width: int = 0) -> None:
        super().__init__("float32", name)
        self.epsilon = hparams.norm_epsilon
        shape = (width or hparams.hidden_size,)
        self.scale = self.add_weight(shape=shape, initializer="ones", name="scale")
        self.bias = self.add_weight(shape=shape, initializer="zeros", name="bias")

    def call(self, x: Tensor) -> Tensor:
        """Returns x [..., D], normalized over its last dimension."""
        centered = x - mean(x)
        variance = mean(ops.square(centered))
        return centered * (ops.rsqrt(variance + self.epsilon) * self.scale) + self.bias


def mean(x: Tensor) -> Tensor:
    """Returns the mean of each vector of x [..., D], [..., 1]."""
    # The gradient of ops.mean would compute D from a shape, in six operations.
    return ops.sum(x, axis=-1, keepdims=True) / x.shape[-1]


class Residual(Layer):
    """LayerNorm(x + Dropout(Sublayer(x))). If hparams.norm_before is true: x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(self, hparams: HParams, name: str) -> None:
        super().__init__("float32", name)
        self.norm_before, self.rate = hparams.norm_before, hparams.layer_prepostprocess_dropout
        with keras.name_scope(name):
            self.norm = LayerNorm(hparams)

    def call(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], seeds: Seeds | None) -> Tensor:
        """Returns the output [B, T, D] of `sublayer` with its residual connection, for x [B, T, D]."""
        y = sublayer(self.norm(x) if self.norm_before else x)
        x = x + dropout(y, self.rate, seeds)
        return x if self.norm_before else self.norm(x)
