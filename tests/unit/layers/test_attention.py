"""Attention against plain loops, and what its masks hide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.attention import MemoryAttention, SelfAttention, causal_bias, padding_bias
from t2t_repro.layers.dropout import Seeds

WIDTH, HEADS, KEYS, VALUES = 6, 2, 4, 10
D_K, D_V = KEYS // HEADS, VALUES // HEADS


def sequence(rows: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, length, WIDTH)).astype("float32")


def self_attention(rate: float = 0.0, precision: str = "float32") -> SelfAttention:
    return SelfAttention(WIDTH, KEYS, VALUES, HEADS, rate, precision, name="attention")


def memory_attention() -> MemoryAttention:
    return MemoryAttention(WIDTH, KEYS, VALUES, HEADS, 0.0, "float32", name="attention")


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, output: Any, visible: np.ndarray) -> np.ndarray:
    """Section 3.2 for projected q [T, H d_k], k [S, H d_k], v [S, H d_v]; `visible` bool [T, S]."""
    concatenated = np.zeros((len(q), VALUES))
    for head in range(HEADS):
        for t in range(len(q)):
            seen = [s for s in range(len(k)) if visible[t, s]]
            query = q[t, head * D_K : (head + 1) * D_K]
            weights = [math.exp(query @ k[s, head * D_K : (head + 1) * D_K] / math.sqrt(D_K)) for s in seen]
            for s, weight in zip(seen, weights, strict=True):
                concatenated[t, head * D_V : (head + 1) * D_V] += (
                    weight / sum(weights) * v[s, head * D_V : (head + 1) * D_V]
                )
    return concatenated @ np.asarray(output)


@pytest.mark.parametrize("masked", [False, True])
def test_self_attention_is_that_of_the_paper(masked: bool) -> None:
    layer, x = self_attention(), sequence(2, 5)
    ids = np.array([[3, 4, 5, 6, 7], [3, 4, 5, 0, 0]])
    bias = causal_bias(5) if masked else padding_bias(ids)
    ours = layer(x, bias, None)
    q, k, v = (np.asarray(x) @ part for part in np.split(np.asarray(layer.qkv_kernel), [KEYS, 2 * KEYS], axis=1))
    for row in range(2):
        visible = np.tril(np.ones((5, 5), bool)) if masked else np.tile(ids[row] != 0, (5, 1))
        expected = attend(q[row], k[row], v[row], layer.output_kernel, visible)
        np.testing.assert_allclose(ours[row], expected, atol=1e-5)


def test_memory_attention_is_that_of_the_paper() -> None:
    layer, x, memory = memory_attention(), sequence(2, 3), sequence(2, 5, seed=1)
    ids = np.array([[3, 4, 5, 6, 7], [3, 0, 0, 0, 0]])
    ours = layer(x, *layer.keys_values(memory), padding_bias(ids), None)
    q = x @ np.asarray(layer.q_kernel)
    k, v = (memory @ part for part in np.split(np.asarray(layer.kv_kernel), [KEYS], axis=1))
    for row in range(2):
        expected = attend(q[row], k[row], v[row], layer.output_kernel, np.tile(ids[row] != 0, (3, 1)))
        np.testing.assert_allclose(ours[row], expected, atol=1e-5)


def test_a_padded_position_weighs_exactly_nothing() -> None:
    layer, x = self_attention(), sequence(1, 4)
    bias = padding_bias(np.array([[3, 4, 5, 0]]))
    other = x.copy()
    other[:, 3] = 1e6 * sequence(1, 1, seed=1)[:, 0]
    np.testing.assert_array_equal(layer(x, bias, None)[:, :3], layer(other, bias, None)[:, :3])


def test_a_later_position_weighs_exactly_nothing() -> None:
    layer, x = self_attention(), sequence(1, 4)
    for t in range(3):
        other = x.copy()
        other[:, t + 1 :] = 1e3 * sequence(1, 3 - t, seed=1)
        ours, theirs = (layer(side, causal_bias(4), None) for side in (x, other))
        np.testing.assert_array_equal(ours[:, : t + 1], theirs[:, : t + 1])
        assert not np.allclose(ours[:, t + 1], theirs[:, t + 1])


def test_more_padding_changes_nothing() -> None:
    layer, x, memory = memory_attention(), sequence(1, 3), sequence(1, 5, seed=1)
    short = layer(x, *layer.keys_values(memory[:, :2]), padding_bias(np.array([[3, 4]])), None)
    long = layer(x, *layer.keys_values(memory), padding_bias(np.array([[3, 4, 0, 0, 0]])), None)
    np.testing.assert_allclose(short, long, atol=1e-6)


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis")
@pytest.mark.parametrize("hypotheses", [1, 3])
def test_step_by_step_is_as_all_at_once(hypotheses: int) -> None:
    layer = self_attention()
    x = sequence(2 * hypotheses, 4)
    expected = layer(x, causal_bias(4), None)

    @tf.function
    def stepwise(x: tf.Tensor) -> tf.Tensor:
        k, v = tf.zeros([2 * hypotheses, HEADS, 0, D_K]), tf.zeros([2 * hypotheses, HEADS, 0, D_V])
        outputs = []
        for t in range(4):
            y, k, v = layer.step(tf.reshape(x[:, t], [2, hypotheses, WIDTH]), k, v)
            outputs.append(tf.reshape(y, [-1, WIDTH]))
        return tf.stack(outputs, axis=1)

    np.testing.assert_allclose(stepwise(x), expected, atol=1e-5)


def test_dropout_is_on_the_weights() -> None:
    layer, x = self_attention(rate=0.5), sequence(1, 5)
    bias = padding_bias(np.ones((1, 5)))
    plain = layer(x, bias, None)
    dropped = layer(x, bias, Seeds(np.array([1, 2], "int32")))
    assert not np.allclose(plain, dropped)
    mean = np.mean([layer(x, bias, Seeds(np.array([seed, 2], "int32"))) for seed in range(200)], axis=0)
    np.testing.assert_allclose(mean, plain, atol=0.3)


def test_bfloat16_is_for_products_alone() -> None:
    layer = self_attention(precision="mixed_bfloat16")
    assert {weight.dtype for weight in layer.weights} == {"float32"}
    x = sequence(2, 5)
    ours = layer(x, causal_bias(5), None)
    assert ours.dtype == tf.float32
    reference = self_attention()
    for weight, other in zip(reference.weights, layer.weights, strict=True):
        weight.assign(other)
    exact = reference(x, causal_bias(5), None)
    np.testing.assert_allclose(ours, exact, atol=0.1)
    assert not np.array_equal(ours, exact)


def test_kernels_side_by_side_are_drawn_as_if_alone() -> None:
    layer = SelfAttention(40, 80, 400, 2, 0.0, "float32", name="attention")
    parts = np.split(np.asarray(layer.qkv_kernel), [80, 160], axis=1)
    for part, width in zip(parts, (80, 80, 400), strict=True):
        limit = math.sqrt(6 / (40 + width))
        assert 0.95 * limit < np.abs(part).max() <= limit
    assert not np.array_equal(parts[0], parts[1])
