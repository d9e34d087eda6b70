"""Compares the LSTM with Keras's, and its gradient with automatic differentiation and finite differences."""

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
LENGTHS = np.array([4, 2, 1])
PADDING = np.arange(LENGTH) >= LENGTHS[:, None]
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH_IN)).astype("float32")
UPSTREAM = np.random.default_rng(1).normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")


both_kinds = pytest.mark.parametrize("cells", [0, CELLS], ids=["plain", "projected"])


def layer(precision: str = "float32", cells: int = 0) -> LSTM:
    """Returns a layer with random weights, which are the same in every call."""
    keras.utils.set_random_seed(1)
    result = LSTM(HParams(hidden_size=WIDTH), WIDTH_IN, precision, "lstm", cells)
    result.bias.assign(result.bias + np.random.default_rng(2).normal(size=4 * (cells or WIDTH)))
    return result


def keras_outputs(ours: LSTM, x: np.ndarray) -> np.ndarray:
    """Returns the outputs [T, D] of Keras's LSTM with our weights for one sentence x [T, I].

    Keras's has no projection P. But y' W_r = h' P W_r if y' = h' P. So h are the outputs of an LSTM with P W_r as W_r.
    """
    projection = np.eye(WIDTH) if ours.projection is None else np.asarray(ours.projection)
    theirs = keras.layers.LSTM(len(projection), return_sequences=True)
    theirs.build((1, None, WIDTH_IN))

    def in_their_order(weight: Any) -> np.ndarray:
        i, f, o, g = np.split(np.asarray(weight), 4, axis=-1)
        return np.concatenate([i, f, g, o], axis=-1)

    weights = ours.input_kernel, projection @ np.asarray(ours.recurrent_kernel), ours.bias
    theirs.set_weights([in_their_order(weight) for weight in weights])
    return np.asarray(theirs(x[None]))[0] @ projection


@both_kinds
def test_outputs_equal_those_of_keras_also_of_a_layer_that_begins_at_the_end_of_each_sentence(cells: int) -> None:
    ours = layer(cells=cells)
    np.testing.assert_allclose(ours(X)[0], keras_outputs(ours, X[0]), atol=1e-6)
    outputs = np.asarray(ours(X, PADDING, is_reversed=True))
    for row, length in enumerate(LENGTHS):
        expected = keras_outputs(ours, X[row, :length][::-1])[::-1]
        np.testing.assert_allclose(outputs[row, :length], expected, atol=1e-6)
        np.testing.assert_array_equal(outputs[row, length:], 0)


def by_steps(ours: LSTM, x: Any, is_reversed: bool) -> Any:
    """Returns the outputs [B, T, D] by the method `step`; at padding, the state is set to 0."""
    state, outputs = ours.start(BATCH), [None] * LENGTH
    for t in range(LENGTH)[:: -1 if is_reversed else 1]:
        state = ours.step(x[:, t], state)
        if is_reversed:
            state = tf.nest.map_structure(lambda tensor, t=t: tensor * (~PADDING[:, t, None]).astype("float32"), state)
        outputs[t] = state.output
    return ops.stack(outputs, axis=1)


def gradients(ours: LSTM, outputs: Any) -> list[np.ndarray]:
    """Returns the gradients of X and of the weights, for the function `outputs` of X."""
    x = tf.constant(X)
    weights = [variable.value for variable in ours.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(outputs(x) * UPSTREAM)
    return [np.asarray(gradient) for gradient in tape.gradient(loss, [x, *weights])]


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("in_graph", [False, True])
@both_kinds
def test_the_gradient_equals_automatic_differentiation_of_the_steps(
    is_reversed: bool, in_graph: bool, cells: int
) -> None:
    ours = layer(cells=cells)

    def outputs(x: Any) -> Any:
        return ours(x, PADDING, is_reversed=True) if is_reversed else ours(x)

    np.testing.assert_allclose(outputs(X), by_steps(ours, X, is_reversed), atol=1e-6)
    function = tf.function(outputs, input_signature=[tf.TensorSpec([None, None, WIDTH_IN])], autograph=False)
    actual = gradients(ours, function if in_graph else outputs)
    expected = gradients(ours, lambda x: by_steps(ours, x, is_reversed))
    sums, projection = 4 * (cells or WIDTH), [(CELLS, WIDTH)] if cells else []
    assert [gradient.shape for gradient in actual] == [X.shape, (WIDTH_IN, sums), (WIDTH, sums), *projection, (sums,)]
    for gradient, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(gradient, other, atol=1e-5)


def test_the_forget_gate_is_open_at_first() -> None:
    bias = np.asarray(LSTM(HParams(hidden_size=WIDTH), WIDTH_IN, "float32", "lstm").bias).reshape(4, WIDTH)
    np.testing.assert_array_equal(bias, np.repeat([[0], [1], [0], [0]], WIDTH, axis=1))


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
@both_kinds
def test_states_are_float32_in_every_precision(precision: str, cells: int) -> None:
    exact, coarse = layer(cells=cells), layer(precision, cells)
    for variable, other in zip(coarse.trainable_variables, exact.trainable_variables, strict=True):
        variable.assign(other)
    outputs = coarse(X, PADDING, is_reversed=True)
    state = coarse.step(X[:, 0], coarse.start(BATCH))
    assert {tensor.dtype for tensor in (outputs, *state)} == {tf.float32}
    assert np.abs(outputs - exact(X, PADDING, is_reversed=True)).max() < 0.05
    if precision != "bfloat16":
        for gradient, expected in zip(gradients(coarse, coarse), gradients(exact, exact), strict=True):
            assert np.abs(gradient - expected).max() < 0.05 * max(1, np.abs(expected).max())
