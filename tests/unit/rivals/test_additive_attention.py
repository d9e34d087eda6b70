"""Compares additive attention with a plain loop over queries and keys."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.masks import ILLEGAL
from t2t_repro.rivals.additive_attention import AdditiveAttention

WIDTH, MEMORY_WIDTH = 4, 6
QUERIES = np.random.default_rng(0).normal(size=(2, 3, WIDTH)).astype("float32")
VALUES = np.random.default_rng(1).normal(size=(2, 5, MEMORY_WIDTH)).astype("float32")
LENGTHS = (5, 2)
BIAS = np.where(np.arange(5) < np.array(LENGTHS)[:, None], 0.0, ILLEGAL).astype("float32")


def attention(precision: str = "float32") -> AdditiveAttention:
    """Returns a layer with random weights, which are the same in every call."""
    keras.utils.set_random_seed(1)
    return AdditiveAttention(WIDTH, MEMORY_WIDTH, 1.0, precision)


def loop(layer: AdditiveAttention, query: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the context [M] and the weights [S] of one query [D] and the values [S, M], computed in loops."""
    query_kernel, key_kernel, vector = (
        np.asarray(weight) for weight in (layer.query_kernel, layer.key_kernel, layer.vector)
    )
    odds = []
    for value in values:
        hidden = [math.tanh(x) for x in query @ query_kernel + value @ key_kernel]
        odds.append(math.exp(sum(h * v for h, v in zip(hidden, vector, strict=True))))
    weights = np.array(odds) / sum(odds)
    return sum(weight * value for weight, value in zip(weights, values, strict=True)), weights


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_contexts_and_weights_equal_those_of_a_loop(precision: str) -> None:
    layer = attention(precision)
    layer.vector.assign(3 * layer.vector)  # so that weights differ more
    contexts, weights = layer(QUERIES, layer.memory(VALUES, BIAS))
    assert contexts.dtype == weights.dtype == tf.float32
    tolerance = 1e-5 if precision == "float32" else 0.03
    for row, length in enumerate(LENGTHS):
        for t in range(3):
            context, expected = loop(layer, QUERIES[row, t], VALUES[row, :length])
            np.testing.assert_allclose(contexts[row, t], context, atol=tolerance)
            np.testing.assert_allclose(weights[row, t, :length], expected, atol=tolerance)
            np.testing.assert_array_equal(weights[row, t, length:], 0)
            assert length == 2 or np.ptp(expected) > 0.05


@pytest.mark.parametrize("gain", [1.0, 0.25])
def test_the_initial_vector_has_the_variance_of_a_kernel(gain: float) -> None:
    vector = np.asarray(AdditiveAttention(1000, 2, gain, "float32").vector)
    assert np.var(vector) == pytest.approx(gain * 2 / 1001, rel=0.15)


def test_the_type_of_values_is_that_of_products() -> None:
    memory: Any = attention("bfloat16").memory(VALUES, BIAS)
    assert (memory.keys.dtype, memory.values.dtype) == (tf.float32, tf.bfloat16)
