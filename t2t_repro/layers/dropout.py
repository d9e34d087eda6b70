"""Dropout (section 5.4) whose masks belong to the examples of a training step.

Whether an element is set to 0 depends only on the run's random seed, the step, the example, the
place of the dropout in the model, and the element's position within the example. It does not depend
on the other examples of the micro-batch, on the padding, or on the device. So a resumed run draws
the same masks, and so does a run on another number of devices.

Shapes: B batch, other dimensions as in the caller.
"""

import numpy as np
from keras import ops

from t2t_repro.layers.base import Tensor

ODD = np.uint32(0x9E3779B1)
"""An odd constant, by which numbers 0, 1, 2, ... are multiplied, so that they differ in many bits.
"""


def hashed(x: Tensor) -> Tensor:
    """Returns x, uint32 of any shape, with each number replaced by its hash: Wellons's bijection
    lowbias32 (2018).
    """
    x = xor_shifted(x, 16) * np.uint32(0x7FEB352D)
    x = xor_shifted(x, 15) * np.uint32(0x846CA68B)
    return xor_shifted(x, 16)


def xor_shifted(x: Tensor, bits: int) -> Tensor:
    shifted = ops.right_shift(x, np.uint32(bits))
    return ops.bitwise_xor(x, shifted)


def element_hashes(seed: Tensor, shape: tuple) -> Tensor:
    """Returns a hash of each element's example and position, uint32 of this shape [B, ...], for
    seeds uint32 [B].
    """
    for length in shape[1:]:
        positions = ops.cast(ops.arange(length), "uint32")
        seed = hashed(ops.bitwise_xor(seed[..., None], positions * ODD))
    return seed


def example_seeds(step_seed: Tensor, examples: Tensor) -> Tensor:
    """Returns a seed for each example of a micro-batch, uint32 [B], for `Seeds`.

    `step_seed`, uint32 [2], has the run's random seed and the step. `examples` has the examples'
    numbers, integers [B].
    """
    random_seed = step_seed[0]
    step = step_seed[1]
    step_hash = hashed(ops.bitwise_xor(hashed(random_seed), step))
    numbers = ops.cast(examples, "uint32")
    return hashed(ops.bitwise_xor(step_hash, numbers))


class Seeds:
    """The seeds of all calls of `dropout` in the model, in the order of the calls.

    `seed`, uint32 [B], has the seed of each example in this step, see `example_seeds`.
    """

    def __init__(self, seed: Tensor) -> None:
        self._seed = ops.cast(seed, "uint32")
        self._count = 0

    def next(self) -> Tensor:
        """Returns the seed of each example for the next call of `dropout`, uint32 [B]."""
        # Calls are counted in Python while TensorFlow traces the graph. So each call of dropout has
        # the same number in all steps.
        self._count += 1
        return hashed(self._seed + np.uint32(self._count))


def standard_normal(shape: tuple, seeds: Seeds) -> Tensor:
    """Returns standard normal numbers, float32 of this shape [B, ..., C]. They belong to the
    examples, as masks do.
    """
    # 23 bits become a number in (0, 1), which is never 0 or 1 in float32.
    hashes = element_hashes(seeds.next(), shape)
    bits = ops.right_shift(hashes, np.uint32(9))
    uniform = (ops.cast(bits, "float32") + 0.5) * 2.0**-23
    return ops.erfinv(2.0 * uniform - 1.0) * 2**0.5


def dropout(x: Tensor, rate: float, seeds: Seeds | None) -> Tensor:
    """Returns `x` with each element set to 0 with probability `rate`, and the other elements
    divided by 1 - rate.

    x are floats [B, ..., C], and the rate is exact to 1 in 65,536. If `seeds` is None, as outside
    training, returns x.
    """
    if seeds is None or rate == 0.0:
        return x
    # Random numbers take much of a step's time. So each number of 32 bits decides two neighboring
    # elements.
    shape = ops.shape(x)
    count = (shape[-1] + 1) // 2
    hashes = element_hashes(seeds.next(), (*shape[:-1], count))
    halves = ops.view(hashes[..., None], "uint16")
    bits = ops.reshape(halves, (*shape[:-1], 2 * count))
    bits = bits[..., : shape[-1]]
    smallest_kept = min(round(rate * 2**16), 2**16 - 1)
    is_kept = ops.cast(bits >= np.uint16(smallest_kept), x.dtype)
    scale = ops.cast(1.0 / (1.0 - rate), x.dtype)
    return x * (is_kept * scale)
