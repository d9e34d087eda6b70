"""Tests convolutions against loops in numpy, and the step for one position against the whole sequence."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.rivals.convolution import convolution, convolution_step, empty_cache

SHAPES = [(1, 1), (2, 4), (5, 3), (3, 16)]
"""Kernel widths and dilations."""


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def loop(x: np.ndarray, kernel: np.ndarray, dilation: int, is_masked: bool) -> np.ndarray:
    """Returns the convolution [B, T, E] of x [B, T, C] with kernel [k, C, E]."""
    width, length = len(kernel), x.shape[1]
    origin = width - 1 if is_masked else (width - 1) // 2
    y = np.zeros((len(x), length, kernel.shape[2]))
    for t in range(length):
        for i in range(width):
            position = t + (i - origin) * dilation
            if 0 <= position < length:
                y[:, t] += x[:, position] @ kernel[i]
    return y


@pytest.mark.parametrize(("width", "dilation"), SHAPES)
def test_a_convolution_and_its_steps_equal_a_loop(width: int, dilation: int) -> None:
    kernel = random(width, 3, 4)
    for length in (1, 2, 19):
        x = random(2, length, 3)
        for is_masked in (False, True):
            expected = loop(x, kernel, dilation, is_masked)
            np.testing.assert_allclose(convolution(x, kernel, dilation, is_masked), expected, atol=1e-5)
    caches = [empty_cache(2, kernel.shape, "float32", dilation)]
    for t in range(19):
        y = convolution_step(x[:, t, None], caches, kernel, dilation)
        np.testing.assert_allclose(y[:, 0], expected[:, t], atol=1e-5)
        assert tuple(caches[0].shape) == (2, (width - 1) * dilation, 3)


def test_lengths_may_be_unknown_and_a_batch_may_be_empty() -> None:
    kernel = tf.constant(random(3, 3, 4))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 3])], autograph=False)
    def gradients(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            y = convolution(x, kernel, dilation=2)
            loss = tf.reduce_sum(y * y)
        return [y, *tape.gradient(loss, [x, kernel])]

    x = random(2, 5, 3)
    y, of_x, of_kernel = gradients(x)
    # The loss is quadratic in x and in the kernel, so each gradient times its variable is twice the loss.
    for variable, gradient in ((x, of_x), (kernel, of_kernel)):
        np.testing.assert_allclose(np.sum(variable * gradient), 2 * np.sum(y * y), rtol=1e-4)
    for shape in ((0, 5, 3), (0, 0, 3)):
        y, of_x, of_kernel = gradients(np.zeros(shape, "float32"))
        assert y.shape == (*shape[:2], 4) and of_x.shape == shape and not np.any(of_kernel)
