"""One-dimensional convolutions over positions, with dilation, for whole sequences and for one new position.

Shapes: B batch, N hypotheses, T positions, k kernel width, C channels of the input, E channels of the output.
"""

from __future__ import annotations

from keras import ops

from t2t_repro.layers.base import Tensor


def convolution(x: Tensor, kernel: Tensor, dilation: int = 1, is_masked: bool = False) -> Tensor:
    """Returns the convolution [B, T, E] of x [B, T, C] with kernel [k, C, E], with the dtype of x.

    Output t is the sum of x[t + (i - origin) * dilation] @ kernel[i] over all i from 0 to k - 1. Positions before the
    first and after the last count as zeros.

    Args:
        dilation: distance between neighboring inputs of an output, in positions.
        is_masked: if true, origin is k - 1, so that an output does not depend on later positions. If false, origin is
            (k - 1) // 2, the middle of the kernel.
    """
    width, channels, channels_out = kernel.shape
    length = ops.shape(x)[1]
    before = (width - 1 if is_masked else (width - 1) // 2) * dilation
    # Positions become rows of `dilation` neighbors, so that the inputs of an output are in consecutive rows. Some
    # processors cannot compute the gradient of TensorFlow's own dilation.
    rows = (length + dilation - 1) // dilation
    after = (rows + width - 1) * dilation - before - length
    x = ops.reshape(ops.pad(x, ((0, 0), (before, after), (0, 0))), (-1, rows + width - 1, dilation, channels))
    y = ops.conv(x, kernel[:, None], padding="valid", data_format="channels_last")
    # For 0 examples, TensorFlow's result can have a wrong shape, so this shape must not contain -1.
    return ops.reshape(y, (ops.shape(x)[0], rows * dilation, channels_out))[:, :length]


def empty_cache(hypotheses: Tensor, shape: tuple[int, int, int], dtype: str, dilation: int = 1) -> Tensor:
    """Returns zeros [N, (k - 1) * dilation, C]: the inputs of a masked convolution before the first position.

    Args:
        shape: k, C and E.
        dtype: dtype of the cache, and of the inputs and the kernel in `convolution_step`.
    """
    width, channels, _ = shape
    return ops.zeros((hypotheses, (width - 1) * dilation, channels), dtype=dtype)


def convolution_step(x: Tensor, cache: Tensor, kernel: Tensor, dilation: int = 1) -> tuple[Tensor, Tensor]:
    """Returns the masked convolution [N, E] at a new position with the input x [N, C], and the new cache.

    Args:
        cache: the last inputs [N, (k - 1) * dilation, C], oldest first.
        kernel: [k, C, E], with the dtype of x and of the cache.
        dilation: as for `convolution`.
    """
    width, channels, channels_out = kernel.shape
    inputs = ops.concatenate([cache, x[:, None]], axis=1)
    window = ops.reshape(inputs[:, ::dilation], (-1, width * channels))
    return ops.matmul(window, ops.reshape(kernel, (width * channels, channels_out))), inputs[:, 1:]
