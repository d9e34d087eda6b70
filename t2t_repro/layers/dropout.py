"""Dropout (section 5.4) whose masks follow from a step's seed alone, so that a resumed run draws the same ones."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

Tensor = Any


class Seeds(keras.random.SeedGenerator):
    """The seeds of one pass through the model: another one for each place that drops out, the same each time.

    Args:
        seed: int32 [2], different for each part of each step.
    """

    def __init__(self, seed: Tensor) -> None:
        # Keras's generator counts in a variable, which a checkpoint would have to hold and replicas would share; this
        # one counts the places as the graph is traced, and leaves what changes from step to step to `seed`.
        self._seed = seed
        self._places = 0

    def next(self, ordered: bool = True) -> Tensor:
        """int32 [2]: the seed of the next place."""
        self._places += 1
        return self._seed + ops.convert_to_tensor([0, self._places], dtype="int32")


def dropout(x: Tensor, rate: float, seeds: Seeds | None) -> Tensor:
    """Sets each element to 0 with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
        x: floats of any shape.
        seeds: None is inference: `x` comes back as it is.
    """
    if seeds is None or rate == 0.0:
        return x
    # One 32-bit random number decides three elements, by its bits from 0, from 8 and from 16 on: a third of the
    # random numbers, of which a step needs more than anything else but products, and rates true to 1 in 65,536.
    size = ops.size(x)
    bits = keras.random.randint(((size + 2) // 3,), -(2**31), 2**31 - 1, dtype="int32", seed=seeds)
    # As floats, since TensorFlow compares int32 on the host even where all else is on a GPU.
    threshold = rate * 2.0**32 - 2.0**31
    keep = ops.concatenate([ops.cast(ops.left_shift(bits, shift), "float32") >= threshold for shift in (0, 8, 16)])
    keep = ops.reshape(keep[:size], ops.shape(x))
    return x * (ops.cast(keep, x.dtype) * ops.cast(1.0 / (1.0 - rate), x.dtype))
