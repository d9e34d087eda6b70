"""Layer normalization (Ba et al. 2016)."""

from typing import Any

from keras import ops

from t2t_repro.layers.base import Layer, Tensor, float32


class LayerNorm(Layer):
    """Gives each vector of this width mean 0 and variance 1, then scales and shifts its elements.

    `epsilon` is added to the variance.
    """

    def __init__(self, width: int, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.scale = self.add_weight((width,), "ones", name="scale", dtype="float32")
        self.bias = self.add_weight((width,), "zeros", name="bias", dtype="float32")

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
