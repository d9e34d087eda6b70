"""The residual connection around each sub-layer, and its layer norm (section 3.1)."""

from typing import Any

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout


class LayerNorm(Layer):
    """Layer normalization: gives each vector mean 0 and variance 1, then scales and shifts it (Ba
    et al. 2016).

    The vectors have `width` elements, by default hparams.hidden_size.
    """

    def __init__(self, hparams: HParams, width: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = hparams.norm_epsilon
        shape = (width or hparams.hidden_size,)
        self.scale = self.add_weight(shape, "ones", name="scale", dtype="float32")
        self.bias = self.add_weight(shape, "zeros", name="bias", dtype="float32")

    def call(self, x: Tensor) -> Tensor:
        """Returns x [..., D], normalized over its last dimension, in float32."""
        x = float32(x)
        centered = x - mean(x)
        variance = mean(ops.square(centered))
        return centered * (ops.rsqrt(variance + self.epsilon) * self.scale) + self.bias


def mean(x: Tensor) -> Tensor:
    """Returns the mean of each vector of x [..., D], [..., 1]."""
    # The gradient of ops.mean would compute D from a shape, in six operations.
    return ops.sum(x, axis=-1, keepdims=True) / x.shape[-1]


class Residual(Layer):
    """LayerNorm(x + Dropout(Sublayer(x))). If hparams.norm_before is true: x +
    Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.norm_before, self.rate = hparams.norm_before, hparams.layer_prepostprocess_dropout
        with keras.name_scope(self.name):
            self.norm = LayerNorm(hparams, name="norm")

    def sublayer_input(self, x: Tensor) -> Tensor:
        """Returns the input [B, T, D] of the sub-layer, for x [B, T, D]."""
        return self.norm(x) if self.norm_before else x

    def call(self, x: Tensor, y: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the sum [B, T, D] of x [B, T, D] and the sub-layer's output y [B, T, D], with
        dropout and norm.
        """
        x = float32(x) + dropout(float32(y), self.rate, seeds)
        return x if self.norm_before else self.norm(x)
