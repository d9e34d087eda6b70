"""Tests convolutions of unknown lengths. The models of convolutions are compared with loops in
numpy.
"""

import numpy as np
import tensorflow as tf

from t2t_repro.rivals.convolution import convolution


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


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
    # The loss is quadratic in x and in the kernel, so each gradient times its variable is twice the
    # loss.
    for variable, gradient in ((x, of_x), (kernel, of_kernel)):
        np.testing.assert_allclose(np.sum(variable * gradient), 2 * np.sum(y * y), rtol=1e-4)
    for shape in ((0, 5, 3), (0, 0, 3)):
        y, of_x, of_kernel = gradients(np.zeros(shape, "float32"))
        assert y.shape == (*shape[:2], 4) and of_x.shape == shape and not np.any(of_kernel)
