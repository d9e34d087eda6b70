"""Dropout (section 5.4) whose masks depend only on the step's seed, so that a resumed run draws the same masks."""

from __future__ import annotations

import keras
from keras import ops

from t2t_repro.layers.base import Tensor


class Seeds(keras.random.SeedGenerator):
    """A sequence of seeds: the model's first dropout takes the first seed, the next dropout the next.

    Args:
        seed: int32 [2] that decides the sequence; different for each micro-batch of each step.
    """

    def __init__(self, seed: Tensor) -> None:
        # Keras's own generator counts in a variable, which checkpoints would have to store and replicas would share.
        # This generator counts in Python while the graph is traced; then only `seed` changes from step to step.
        self._seed = seed
        self._count = 0

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the next seed [2]."""
        self._count += 1
        seed = self._seed + ops.convert_to_tensor([0, self._count], dtype="int32")
        return ops.cast(seed, "uint32") if keras.backend.backend() == "jax" else seed  # JAX requires uint32


def dropout(x: Tensor, rate: float, seeds: Seeds | None) -> Tensor:
    """Sets each element to 0 with probability `rate`, and divides the others by 1 - rate.

    Args:
        x: floats of any shape.
        seeds: None outside training; `x` is returned unchanged.
    """
    if seeds is None or rate == 0.0:
        return x
    # One 32-bit random number decides three elements: shifted left by 0, 8 and 16 bits, it is compared with the rate.
    # It would be slow to draw more: after matrix products, random numbers cost most of a step's time. With the 16 bits
    # that are left after the last shift, rates are exact to 1 in 65,536.
    size = ops.size(x)
    bits = keras.random.randint(((size + 2) // 3,), -(2**31), 2**31 - 1, dtype="int32", seed=seeds)
    # Compared as floats, because TensorFlow compares int32 on the CPU even if the model is on a GPU.
    threshold = rate * 2.0**32 - 2.0**31
    is_kept = ops.concatenate([ops.cast(ops.left_shift(bits, shift), "float32") >= threshold for shift in (0, 8, 16)])
    is_kept = ops.reshape(is_kept[:size], ops.shape(x))
    return x * (ops.cast(is_kept, x.dtype) * ops.cast(1.0 / (1.0 - rate), x.dtype))
