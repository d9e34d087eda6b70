"""Compares the LSTM with attention in its loop, and its gradient, with its steps one by one."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import save_cross_weights
from t2t_repro.layers.masks import ILLEGAL
from t2t_repro.rivals.attentive_lstm import AdditiveAttention, AttentiveLSTM

BATCH, LENGTH, SOURCE, WIDTH_IN, WIDTH, MEMORY_WIDTH, CELLS = 3, 4, 5, 3, 8, 6, 12
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(BATCH, LENGTH, WIDTH_IN)).astype("float32")
VALUES = RANDOM.normal(size=(BATCH, SOURCE, MEMORY_WIDTH)).astype("float32")
BIAS = np.where(np.arange(SOURCE) < np.array([5, 2, 1])[:, None], 0.0, ILLEGAL).astype("float32")
UPSTREAM = RANDOM.normal(size=(BATCH, LENGTH, WIDTH + MEMORY_WIDTH)).astype("float32")


def results(ours: AttentiveLSTM, x: Any, values: Any, by_steps: bool) -> tuple[Any, Any]:
    """Returns outputs and contexts side by side, [B, T, D + M], and the attention weights [B, T, S]."""
    memory, states = ours.attention.memory(values, BIAS), [ours.start(BATCH)] if by_steps else None
    with save_cross_weights() as weights:
        parts = [x[:, t : t + 1] for t in range(LENGTH)] if by_steps else [x]
        steps = [ops.concatenate(ours.attend(part, memory, states), axis=-1) for part in parts]
    return ops.concatenate(steps, axis=1), ops.concatenate(weights, axis=2)[:, 0]


def gradients(ours: AttentiveLSTM, function: Any) -> list[np.ndarray]:
    """Returns the results of the function of X and VALUES, and the gradients of X, VALUES and all weights."""
    inputs = [tf.constant(X), tf.constant(VALUES)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs, weights = function(*inputs)
        loss = tf.reduce_sum(outputs * UPSTREAM)
    variables = [variable.value for variable in ours.trainable_variables]
    return [np.asarray(tensor) for tensor in (weights, outputs, *tape.gradient(loss, [*inputs, *variables]))]


@pytest.mark.parametrize(
    ("cells", "precision", "tolerance"),
    [(0, "mixed_float16", 0.02), (CELLS, "float32", 1e-5)],
)
def test_results_and_gradients_are_those_of_steps(cells: int, precision: str, tolerance: float) -> None:
    layers = []
    for dtype in (precision, "float32"):
        keras.utils.set_random_seed(1)
        layers.append(AttentiveLSTM(HParams(hidden_size=WIDTH), WIDTH_IN, MEMORY_WIDTH, dtype, "lstm", cells))
        layers[-1].attention.vector.assign(3 * layers[-1].attention.vector)  # so that attention weights differ more
    signature = [tf.TensorSpec([None, None, width]) for width in (WIDTH_IN, MEMORY_WIDTH)]
    at_once = tf.function(
        lambda x, values: results(layers[0], x, values, False), input_signature=signature, autograph=False
    )
    actual = gradients(layers[0], at_once)
    expected = gradients(layers[1], lambda x, values: results(layers[1], x, values, True))
    assert len(actual) == 2 + 2 + 7 + bool(cells)
    for tensor, other in zip(actual, expected, strict=True):
        assert np.any(other)
        np.testing.assert_allclose(tensor, other, atol=tolerance * max(1, np.abs(other).max()))
    assert np.ptp(expected[0][0], axis=0).max() > 0.005  # attention moves


def test_the_initial_vector_of_attention_has_the_variance_of_a_kernel() -> None:
    vector = np.asarray(AdditiveAttention(1000, 2, 0.25, "float32").vector)
    assert np.var(vector) == pytest.approx(0.25 * 2 / 1001, rel=0.15)
