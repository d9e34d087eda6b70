"""Linear layers with weight normalization (Salimans and Kingma 2016).

Shapes: n inputs and m outputs of a neuron layer.
"""

from __future__ import annotations

import keras
from keras import ops

from t2t_repro.layers.base import Layer, Tensor, float32


class NormalizedLinear(Layer):
    """A linear layer x W + b, whose weight W = g v / ||v|| has the norm g[j] in column j (equation 2).

    At first, W = v. The elements of v are drawn from a normal distribution with variance gain / n, and b is 0.

    Args:
        width_in: n, the number of inputs.
        width_out: m, the number of outputs.
        gain: variance of the outputs at the start of training, for independent inputs of variance 1.
        precision: dtype of the matrix product, see `Layer`.
        name: name of the layer.
    """

    def __init__(self, width_in: int, width_out: int, gain: float, precision: str, name: str) -> None:
        super().__init__(precision, name)
        normal = keras.initializers.RandomNormal(stddev=(gain / width_in) ** 0.5)
        self.v = self.add_weight(shape=(width_in, width_out), initializer=normal, name="v")
        self.g = self.add_weight(shape=(width_out,), initializer=self._initial_norms, name="g")
        # The bias stays in float32 in every precision, because it is added to a float32 sum.
        self.b = self.add_weight(shape=(width_out,), initializer="zeros", name="b", dtype="float32")
        self.is_folded = False

    def _initial_norms(self, shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
        """Returns the norms of the columns of v, [m]."""
        return ops.cast(ops.sqrt(ops.sum(ops.square(float32(self.v)), axis=0)), dtype)

    def weight(self) -> Tensor:
        """Returns W [n, m] in the layer's compute_dtype."""
        if self.is_folded:
            return ops.cast(self.v, self.compute_dtype)
        v = float32(self.v)
        norms = ops.sqrt(ops.sum(ops.square(v), axis=0))
        return ops.cast(v * (float32(self.g) / norms), self.compute_dtype)

    def fold_weights(self) -> None:
        """Replaces the values of v by W; see `Layer.fold_weights`."""
        self.v.assign(self.weight())
        self.is_folded = True

    def call(self, x: Tensor) -> Tensor:
        """Returns x W + b, float32 [..., m], for x [..., n]."""
        return float32(self.product(x, self.weight())) + self.b
