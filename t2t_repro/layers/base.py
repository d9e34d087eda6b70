"""What every layer shares: its weights in float32, its matrix products in the chosen precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

Tensor = Any


class Layer(keras.layers.Layer):
    """A layer that makes its weights when it is made, and casts where it says so and nowhere else.

    Args:
        precision: "float32", or "mixed_bfloat16": matrix products in bfloat16, all else in float32.
    """

    def __init__(self, precision: str, name: str) -> None:
        # Keras's automatic casts would take attention biases of -1e9 and layer norms to bfloat16 too.
        super().__init__(name=name, dtype=precision, autocast=False)
        self.built = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The same as `call`."""
        # Keras's own would cast weights by the precision, and refuse arguments that are no tensors.
        return self.call(*args, **kwargs)

    def product(self, x: Tensor, kernel: Tensor) -> Tensor:
        """`x @ kernel` for x [..., D] and kernel [D, E]: [..., E] in compute_dtype."""
        # One flat product: broadcasting the kernel over a batch is several times slower.
        flat = ops.reshape(ops.cast(x, self.compute_dtype), (-1, kernel.shape[0]))
        flat = ops.matmul(flat, ops.cast(kernel, self.compute_dtype))
        return ops.reshape(flat, (*ops.shape(x)[:-1], kernel.shape[1]))

    def kernel(self, name: str, width_in: int, widths_out: int | Sequence[int]) -> Any:
        """A weight [width_in, sum(widths_out)]: kernels side by side, each drawn as Glorot and Bengio (2010) do."""
        widths = [widths_out] if isinstance(widths_out, int) else list(widths_out)

        def draw(shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
            uniform = [keras.initializers.GlorotUniform()((width_in, width), dtype=dtype) for width in widths]
            return ops.concatenate(uniform, axis=1)

        return self.add_weight(shape=(width_in, sum(widths)), initializer=draw, name=name)


def float32(x: Tensor) -> Tensor:
    """`x` as float32, for what bfloat16's 8 bits are too few for: sums, norms, softmax."""
    return ops.cast(x, "float32")
