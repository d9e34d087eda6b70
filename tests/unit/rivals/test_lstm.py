"""Compares the LSTM at all positions, and its gradient, with its steps one by one.

The models of LSTMs are compared with numpy.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.rivals.lstm import LSTM

BATCH, LENGTH, WIDTH_IN, WIDTH, CELLS = 3, 4, 3, 8, 12
PADDING = np.arange(LENGTH) >= np.array([4, 2, 1])[:, None]
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH_IN)).astype("float32")
UPSTREAM = np.random.default_rng(1).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")


def layer(precision: str, cells: int) -> LSTM:
    """Returns a layer with random weights, which are the same in every call."""
    keras.utils.set_random_seed(1)
    result = LSTM(HParams(hidden_size=WIDTH), WIDTH_IN, precision, "lstm", cells)
    result.bias.assign(result.bias + np.random.default_rng(2).normal(size=4 * (cells or WIDTH)))
    return result


def by_steps(ours: LSTM, x: Any, is_reversed: bool) -> Any:
    """Returns the outputs [B, T, D] by the method `step`; at padding, the state is set to 0."""
    states, outputs = [ours.start(BATCH)], [None] * LENGTH
    for t in range(LENGTH)[:: -1 if is_reversed else 1]:
        outputs[t] = ours(x[:, t, None], cache=states)[:, 0]
        if is_reversed:
            is_token = (~PADDING[:, t, None]).astype("float32")
            states, outputs[t] = tf.nest.map_structure(lambda tensor, m=is_token: tensor * m, (states, outputs[t]))
    return ops.stack(outputs, axis=1)


def outputs_and_gradients(ours: LSTM, outputs: Any) -> list[np.ndarray]:
    """Returns the result of the function `outputs` of X, and the gradients of X and of the weights."""
    x, weights = tf.constant(X), [variable.value for variable in ours.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = outputs(x)
        loss = tf.reduce_sum(y * UPSTREAM)
    assert y.dtype == tf.float32
    return [np.asarray(tensor) for tensor in (y, *tape.gradient(loss, [x, *weights]))]


@pytest.mark.parametrize(
    ("cells", "is_reversed", "precision", "tolerance"),
    [
        (0, False, "mixed_float16", 0.01),
        (CELLS, True, "float32", 1e-5),
    ],
)
def test_outputs_and_gradients_are_those_of_steps(
    cells: int, is_reversed: bool, precision: str, tolerance: float
) -> None:
    ours, exact = layer(precision, cells), layer("float32", cells)

    @tf.function(input_signature=[tf.TensorSpec([None, None, WIDTH_IN])], autograph=False)
    def outputs(x: Any) -> Any:
        return ours(x, PADDING, is_reversed=True) if is_reversed else ours(x)

    actual = outputs_and_gradients(ours, outputs)
    expected = outputs_and_gradients(exact, lambda x: by_steps(exact, x, is_reversed))
    assert len(actual) == 5 + bool(cells)
    for tensor, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(tensor, other, atol=tolerance * max(1, np.abs(other).max()))


def test_the_forget_gate_is_open_at_first() -> None:
    bias = LSTM(HParams(hidden_size=WIDTH), WIDTH_IN, "float32", "lstm").bias
    np.testing.assert_array_equal(bias, np.repeat([0, 1, 0, 0], WIDTH))
