"""A model for tests of training steps, whose graph is built quickly."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_repro.layers.dropout import Seeds, dropout


class Lookup:
    """Logits from the vector of each target and the mean vector of the source, with dropout on
    their sum.

    Args:
        vocab_size: number of entries in the vocabulary.
        dtype: dtype of the matrix product.
        rate: rate of dropout.
    """

    name = "lookup"
    losses: tuple[Any, ...] = ()

    def __init__(self, vocab_size: int, dtype: str = "float32", rate: float = 0.1) -> None:
        self.dtype = dtype
        self.rate = rate
        random = np.random.default_rng(0)
        shapes = {"table": (vocab_size, 16), "kernel": (16, vocab_size)}
        self.trainable_variables = [
            keras.Variable(random.normal(size=shape), dtype="float32", name=name)
            for name, shape in shapes.items()
        ]

    def __call__(self, inputs: Any, targets: Any, seed: Any) -> tf.Tensor:
        vectors, kernel = (variable.value for variable in self.trainable_variables[:2])
        is_token = tf.cast(inputs != 0, tf.float32)[..., None]
        total = tf.reduce_sum(tf.gather(vectors, inputs) * is_token, axis=1, keepdims=True)
        count = tf.maximum(tf.reduce_sum(is_token, axis=1, keepdims=True), 1.0)
        x = tf.gather(vectors, targets) + total / count
        x = dropout(x, self.rate, Seeds(seed))
        logits = tf.matmul(tf.cast(x, self.dtype), tf.cast(kernel, self.dtype))
        return tf.cast(logits, tf.float32)
