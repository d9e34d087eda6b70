"""Dropout (section 5.4) whose masks depend only on the step's seed, so that a resumed run draws the same masks."""

from __future__ import annotations

import keras
from keras import ops

from t2t_repro.layers.base import Tensor


class Seeds(keras.random.SeedGenerator):
    """A sequence of seeds, one for each call of `dropout` in the model, in the order of the calls.

    Args:
        seed: int32 [2] from which all seeds of the sequence derive. The caller gives each micro-batch its own seed.
    """

    def __init__(self, seed: Tensor) -> None:
        # Keras's generator counts calls in a variable, which checkpoints would have to store and replicas would share.
        # This class counts calls in Python while TensorFlow traces the graph. So each call of dropout has the same
        # number in all steps, and only `seed` changes from step to step.
        self._seed = seed
        self._count = 0

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the seed [2] of the next call of `dropout`."""
        self._count += 1
        seed = self._seed + ops.convert_to_tensor([0, self._count], dtype="int32")
        return ops.cast(seed, "uint32") if keras.backend.backend() == "jax" else seed  # JAX requires uint32


def dropout(x: Tensor, rate: float, seeds: Seeds | None) -> Tensor:
    """Returns `x` with each element set to 0 with probability `rate`, and the other elements divided by 1 - rate.

    Args:
        x: floats of any shape.
        seeds: the seeds of this training step; None outside training, to return `x` unchanged.
    """
    if seeds is None or rate == 0.0:
        return x
    # Random numbers take much of a step's time. So one 32-bit random number decides three elements. The number is
    # shifted left by 0, 8 and 16 bits, and each result is compared with a threshold. After the last shift, 16 random
    # bits remain, so that the probability of a 0 is exact to 1 in 65,536.
    size = ops.size(x)
    bits = keras.random.randint(((size + 2) // 3,), -(2**31), 2**31 - 1, dtype="int32", seed=seeds)
    # The comparison uses floats, because TensorFlow compares int32 on the CPU even if the model is on a GPU.
    threshold = rate * 2.0**32 - 2.0**31
    is_kept = ops.concatenate([ops.cast(ops.left_shift(bits, shift), "float32") >= threshold for shift in (0, 8, 16)])
    is_kept = ops.reshape(is_kept[:size], ops.shape(x))
    return x * (ops.cast(is_kept, x.dtype) * ops.cast(1.0 / (1.0 - rate), x.dtype))
