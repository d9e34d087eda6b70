"""One-dimensional convolutions over positions, with dilation, for whole sequences and for one new
position.

Shapes: B batch, K hypotheses of a sentence, N = B * K, T positions, k kernel width, C channels of
the input, E channels of the output.
"""

from keras import ops

from t2t_repro.layers.base import Tensor, outer_shape


def convolution(x: Tensor, kernel: Tensor, dilation: int = 1, is_masked: bool = False) -> Tensor:
    """Returns the convolution [B, T, E] of x [B, T, C] with kernel [k, C, E], with the dtype of x.

    Output t is the sum of x[t + (i - origin) * dilation] @ kernel[i] over all i from 0 to k - 1.
    Positions before the first and after the last count as zeros.

    Args:
        dilation: distance between neighboring inputs of an output, in positions.
        is_masked: if true, origin is k - 1, so that an output does not depend on later positions.
            If false, origin is (k - 1) // 2, the middle of the kernel.
    """
    width, channels, channels_out = kernel.shape
    length = ops.shape(x)[1]
    origin = width - 1 if is_masked else (width - 1) // 2
    before = origin * dilation
    # Positions become rows of `dilation` neighbors, so that the inputs of an output are in
    # consecutive rows. Some processors cannot compute the gradient of TensorFlow's own dilation.
    rows = (length + dilation - 1) // dilation
    after = (rows + width - 1) * dilation - before - length
    x = ops.pad(x, ((0, 0), (before, after), (0, 0)))
    x = ops.reshape(x, (-1, rows + width - 1, dilation, channels))
    y = ops.conv(x, kernel[:, None], padding="valid", data_format="channels_last")
    # For 0 examples, TensorFlow's result can have a wrong shape, so this shape must not contain -1.
    return ops.reshape(y, (ops.shape(x)[0], rows * dilation, channels_out))[:, :length]


def convolution_step(
    x: Tensor, cache: Tensor, kernel: Tensor, dilation: int = 1
) -> tuple[Tensor, Tensor]:
    """Returns the masked convolution [B, K, E] at a new position x [B, K, C], and the new cache.

    The cache has the last inputs of each hypothesis [N, (k - 1) * dilation, C], oldest first.
    """
    width, channels, channels_out = kernel.shape
    inputs = ops.concatenate([cache, ops.reshape(x, (-1, 1, channels))], axis=1)
    window = ops.reshape(inputs[:, ::dilation], (-1, width * channels))
    y = ops.matmul(window, ops.reshape(kernel, (width * channels, channels_out)))
    return ops.reshape(y, (*outer_shape(x), channels_out)), inputs[:, 1:]
