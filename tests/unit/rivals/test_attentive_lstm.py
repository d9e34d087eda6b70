"""Compares the LSTM with attention in its loop with a loop over plain layers, and its gradient with automatic
differentiation of this loop.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.masks import ILLEGAL
from t2t_repro.rivals.attentive_lstm import AdditiveAttention, AttentiveLSTM
from t2t_repro.rivals.lstm import LSTM

BATCH, LENGTH, SOURCE, WIDTH_IN, WIDTH, MEMORY_WIDTH, CELLS = 3, 4, 5, 3, 8, 6, 12
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(BATCH, LENGTH, WIDTH_IN)).astype("float32")
VALUES = RANDOM.normal(size=(BATCH, SOURCE, MEMORY_WIDTH)).astype("float32")
BIAS = np.where(np.arange(SOURCE) < np.array([5, 2, 1])[:, None], 0.0, ILLEGAL).astype("float32")
UPSTREAM = RANDOM.normal(size=(BATCH, LENGTH, WIDTH + MEMORY_WIDTH)).astype("float32")


both_kinds = pytest.mark.parametrize("cells", [0, CELLS], ids=["plain", "projected"])


def layer(precision: str = "float32", cells: int = 0) -> AttentiveLSTM:
    """Returns a layer with random weights, which are the same in every call."""
    keras.utils.set_random_seed(1)
    result = AttentiveLSTM(HParams(hidden_size=WIDTH), WIDTH_IN, MEMORY_WIDTH, precision, "lstm", cells)
    result.attention.vector.assign(3 * result.attention.vector)  # so that attention weights differ more
    return result


def at_once(ours: AttentiveLSTM, x: Any, values: Any) -> tuple[Any, Any]:
    """Returns outputs and contexts side by side, [B, T, D + M], and the attention weights [B, T, S]."""
    results = ours.attend_and_read(x, ours.attention.memory(values, BIAS))
    return ops.concatenate([results.output, results.context], axis=-1), results.weights


def by_plain_layers(ours: AttentiveLSTM, x: Any, values: Any) -> tuple[Any, Any]:
    """Returns the same, computed position by position with an ordinary LSTM that reads [x, context]."""
    cells = 0 if ours.projection is None else CELLS
    lstm = LSTM(HParams(hidden_size=WIDTH), WIDTH_IN + MEMORY_WIDTH, "float32", "plain", cells)
    lstm.input_kernel = ops.concatenate([ours.input_kernel, ours.context_kernel], axis=0)
    lstm.recurrent_kernel, lstm.projection, lstm.bias = ours.recurrent_kernel, ours.projection, ours.bias
    memory, state, outputs, weights = ours.attention.memory(values, BIAS), ours.start(BATCH), [], []
    for t in range(LENGTH):
        context, weight = ours.attention(state.output[:, None], memory)
        state = lstm.step(ops.concatenate([x[:, t], context[:, 0]], axis=-1), state)
        outputs.append(ops.concatenate([state.output, context[:, 0]], axis=-1))
        weights.append(weight[:, 0])
    return ops.stack(outputs, axis=1), ops.stack(weights, axis=1)


@both_kinds
def test_results_equal_those_of_plain_layers(cells: int) -> None:
    ours = layer(cells=cells)
    for actual, expected in zip(at_once(ours, X, VALUES), by_plain_layers(ours, X, VALUES), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)
        assert np.ptp(expected[0], axis=0).max() > 0.005  # attention moves


def gradients(ours: AttentiveLSTM, outputs: Any) -> list[np.ndarray]:
    """Returns the gradients of X, VALUES and all weights, for the function `outputs` of X and VALUES."""
    inputs = [tf.constant(X), tf.constant(VALUES)]
    weights = [variable.value for variable in ours.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = tf.reduce_sum(outputs(*inputs) * UPSTREAM)
    return [np.asarray(gradient) for gradient in tape.gradient(loss, [*inputs, *weights])]


@pytest.mark.parametrize("in_graph", [False, True])
@both_kinds
def test_the_gradient_equals_automatic_differentiation(in_graph: bool, cells: int) -> None:
    ours = layer(cells=cells)

    def outputs(x: Any, values: Any) -> Any:
        return at_once(ours, x, values)[0]

    signature = [tf.TensorSpec([None, None, width]) for width in (WIDTH_IN, MEMORY_WIDTH)]
    function = tf.function(outputs, input_signature=signature, autograph=False)
    actual = gradients(ours, function if in_graph else outputs)
    expected = gradients(ours, lambda x, values: by_plain_layers(ours, x, values)[0])
    assert len(actual) == 2 + 7 + bool(cells)
    for gradient, other in zip(actual, expected, strict=True):
        assert np.any(gradient)
        np.testing.assert_allclose(gradient, other, atol=1e-5)


def test_the_initial_vector_of_attention_has_the_variance_of_a_kernel() -> None:
    vector = np.asarray(AdditiveAttention(1000, 2, 0.25, "float32").vector)
    assert np.var(vector) == pytest.approx(0.25 * 2 / 1001, rel=0.15)
