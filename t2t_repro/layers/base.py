"""The base class of all layers: weights, and matrix products in the precision of the layer."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

# A search begins with one position, which attends only to itself. Keras warns of its softmax.
warnings.filterwarnings("ignore", "You are using a softmax over axis")

Tensor = Any
"""A tensor of the Keras backend, or a numpy array."""


class Layer(keras.layers.Layer):
    """The base class of all layers. A layer creates its weights in its constructor.

    `kwargs` are those of Keras layers: name, dtype, trainable. With the dtype "mixed_bfloat16" or
    "mixed_float16", matrix products are computed in 16 bits. "bfloat16", which is only for
    decoding, also stores the weights in 16 bits.
    """

    def __init__(self, **kwargs: Any) -> None:
        # With autocast, Keras would cast all inputs to 16 bits. But float16 cannot hold the -1e9 of
        # masks, and residual sums need float32.
        super().__init__(autocast=False, **kwargs)
        self.built = True

    def add_weight(self, shape: Any = None, initializer: Any = None, **options: Any) -> Any:
        """Returns a new weight; the arguments are those of `keras.layers.Layer.add_weight`."""
        # `product` casts kernels. All other weights are added to float32 or multiplied by it.
        return super().add_weight(shape, initializer, **{"autocast": False} | options)

    def kernel(
        self,
        name: str,
        width_in: int,
        widths_out: int | Sequence[int],
        gain: float = 1.0,
        limit: float | None = None,
    ) -> Any:
        """Returns a new weight [width_in, sum(widths_out)]: a kernel for each output, side by side.

        Each kernel [m, n] is drawn uniformly with variance gain * 2 / (m + n) (Glorot and Bengio
        2010). With `limit`, it is drawn uniformly from -limit to limit instead.
        """
        widths = [widths_out] if isinstance(widths_out, int) else list(widths_out)

        def draw(width: int, dtype: str | None) -> Tensor:
            if limit is None:
                initializer = keras.initializers.VarianceScaling(gain, "fan_avg", "uniform")
            else:
                initializer = keras.initializers.RandomUniform(-limit, limit)
            return initializer((width_in, width), dtype=dtype)

        def initialize(shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
            return ops.concatenate([draw(width, dtype) for width in widths], axis=1)

        return self.add_weight((width_in, sum(widths)), initialize, name=name)

    def product(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Returns x @ kernel [..., E] in the compute_dtype, for x [..., D] and a kernel [D, E]."""
        # x becomes a matrix, because broadcasting the kernel over a batch is several times slower.
        matrix = ops.reshape(ops.cast(x, self.compute_dtype), (-1, kernel.shape[0]))
        matrix = ops.matmul(matrix, ops.cast(kernel, self.compute_dtype))
        return ops.reshape(matrix, (*outer_shape(x), kernel.shape[1]))

    def fold_weights(self) -> None:
        """Replaces weights by values that each step of decoding would compute from them.

        This ends training. A layer with such weights extends this method.
        """
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if isinstance(layer, Layer):
                layer.fold_weights()


class Linear:
    """The linear map x W of a layer. Its kernel [D, E] is a weight of `layer` with this name.

    `widths_out` are the widths of several maps side by side, whose sum is E.
    """

    bias: Any = None
    """A subclass may have a bias [E], which it adds."""

    def __init__(
        self,
        layer: Layer,
        name: str,
        width_in: int,
        widths_out: int | Sequence[int],
        gain: float = 1.0,
    ) -> None:
        self.layer = layer
        self.kernel = layer.kernel(name, width_in, widths_out, gain)

    def __call__(self, x: Tensor) -> Tensor:
        """Returns x W [..., E] for x [..., D], in the compute_dtype of the layer."""
        return self.layer.product(x, self.kernel)


def outer_shape(x: Tensor) -> tuple:
    """Returns the shape of x [B, ..., D] without D, for `ops.reshape`; -1 stands for B.

    If also another length is unknown, all are tensors.
    """
    # In TensorFlow, a shape with -1 is a constant. Each length that is read from a tensor costs
    # operations.
    lengths = tuple(x.shape[1:-1])
    return tuple(ops.shape(x)[:-1]) if None in lengths else (-1, *lengths)


def split(x: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Splits the last dimension of x into parts of the given widths."""
    # For a number of equal parts, Keras makes two operations. For positions, it makes 24, which
    # compute the widths.
    if len(set(widths)) == 1:
        return list(ops.split(x, len(widths), axis=-1))
    return list(ops.split(x, np.cumsum(widths)[:-1].tolist(), axis=-1))


def float32(x: Tensor) -> Tensor:
    """Returns x as float32, because 16 bits are too few for sums, norms and softmaxes."""
    return ops.cast(x, "float32")
