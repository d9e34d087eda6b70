"""The residual path around each sub-layer, and the layer norm on it (section 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from t2t_repro.layers.base import Layer
from t2t_repro.layers.dropout import Seeds, dropout

Tensor = Any


class LayerNorm(Layer):
    """Each vector to mean 0 and variance 1, then scaled and shifted (Ba et al. 2016)."""

    def __init__(self, width: int, epsilon: float, name: str) -> None:
        super().__init__("float32", name)
        self.epsilon = epsilon
        self.scale = self.add_weight(shape=(width,), initializer="ones", name="scale")
        self.bias = self.add_weight(shape=(width,), initializer="zeros", name="bias")

    def call(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., D]."""
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        return centred * (ops.rsqrt(variance + self.epsilon) * self.scale) + self.bias


class Residual(Layer):
    """LayerNorm(x + Dropout(Sublayer(x))), or x + Dropout(Sublayer(LayerNorm(x))) where the norm comes before."""

    def __init__(self, width: int, epsilon: float, norm_before: bool, rate: float, name: str) -> None:
        super().__init__("float32", name)
        self.norm_before, self.rate = norm_before, rate
        with keras.name_scope(name):
            self.norm = LayerNorm(width, epsilon, name="norm")

    def call(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], seeds: Seeds | None) -> Tensor:
        """x [B, T, D] -> [B, T, D]."""
        return self.output(x, sublayer(self.input(x)), seeds)

    def input(self, x: Tensor) -> Tensor:
        """Returns what the sub-layer reads."""
        return self.norm(x) if self.norm_before else x

    def output(self, x: Tensor, y: Tensor, seeds: Seeds | None) -> Tensor:
        """Returns the sum of `x` and the sub-layer's output `y`, each [B, T, D]."""
        x = x + dropout(y, self.rate, seeds)
        return x if self.norm_before else self.norm(x)
