"""Tests restricted self-attention, its cache, and the initial values and dropout of self-attention.

tests/unit/models compares attention of all kinds with numpy.
"""

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.dropout import Seeds
from t2t_repro.models.transformer import (
    MASKED,
    KeysValues,
    SelfAttention,
    Sizes,
    causal_bias,
    padding_bias,
)
from t2t_repro.models.variants import RelativeSelfAttention, RestrictedSelfAttention

WIDTH = 6
SIZES = Sizes(WIDTH, heads=2, key_width=2, value_width=5)


def sequence(rows: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, length, WIDTH)).astype("float32")


def self_attention(kind: Any = SelfAttention, rate: float = 0.0, **options: Any) -> Any:
    """Returns a self-attention layer with random weights, which are the same in every call."""
    keras.utils.set_random_seed(1)
    return kind(SIZES._replace(attention_dropout=rate), **options)


def test_kernels_side_by_side_are_initialized_one_by_one() -> None:
    layer = SelfAttention(Sizes(40, heads=2, key_width=40, value_width=200))
    parts = np.split(np.asarray(layer.qkv_projection.kernel), [80, 160], axis=1)
    for part, width in zip(parts, (80, 80, 400), strict=True):
        limit = math.sqrt(6 / (40 + width))
        assert 0.95 * limit < np.abs(part).max() <= limit
    assert not np.array_equal(parts[0], parts[1])


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize(("r", "reach"), [(1, 0), (6, 3), (67, 33)])
def test_a_neighborhood_reaches_equally_far_to_both_sides_and_not_to_padding(
    r: int, reach: int, is_masked: bool
) -> None:
    layer = self_attention(RestrictedSelfAttention, neighborhood=r, is_masked=is_masked)
    unrestricted = self_attention()
    for length in (1, 17, 70):
        x = sequence(1, length + 40, seed=length)
        padding = padding_bias(np.where(np.arange(length + 40) < length, 3, 0)[None])
        distance = np.arange(length) - np.arange(length)[:, None]
        bias = np.where(abs(distance) > reach, MASKED, 0.0)[None, None]
        bias = bias + np.asarray(causal_bias(length)) if is_masked else bias
        expected, expected_weights, _ = unrestricted(x[:, :length], bias)
        padded, *_ = layer(x, padding)
        unpadded, weights, _ = layer(x[:, :length])
        np.testing.assert_allclose(padded[:, :length], expected, atol=1e-5)
        np.testing.assert_allclose(unpadded, expected, atol=1e-5)
        np.testing.assert_allclose(weights, expected_weights, atol=1e-6)


@pytest.mark.parametrize(("r", "reach"), [(1, 0), (5, 2), (500, 250)])
def test_the_cache_keeps_only_positions_within_reach(r: int, reach: int) -> None:
    layer = self_attention(RestrictedSelfAttention, neighborhood=r, is_masked=True)
    length = 7
    x = sequence(3, length)
    expected, *_ = layer(x)
    keys = tf.zeros([3, SIZES.heads, 0, SIZES.key_width])
    cache = KeysValues(keys, tf.zeros([3, SIZES.heads, 0, SIZES.value_width]))
    for t in range(length):
        y, _, cache = layer.step(x[:, t, None], cache)
        np.testing.assert_allclose(y[:, 0], expected[:, t], atol=1e-5)
        assert cache.keys.shape[2] == cache.values.shape[2] == min(t + 1, reach + 1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SelfAttention, {}),
        (RestrictedSelfAttention, {"neighborhood": 4}),
        (RelativeSelfAttention, {"max_distance": 4}),
    ],
    ids=["plain", "restricted", "relative"],
)
def test_dropout_applies_to_the_weights(kind: Any, options: dict[str, int]) -> None:
    layer = self_attention(kind, rate=0.5, **options)
    x = sequence(1, 40)
    plain, *_ = layer(x)
    dropped, *_ = layer(np.repeat(x, 300, axis=0), seeds=Seeds(np.arange(300)))
    assert not np.allclose(dropped[0], dropped[1]) and not np.allclose(dropped[0], plain[0])
    np.testing.assert_allclose(np.mean(dropped, axis=0), plain[0], atol=0.3)


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("neighborhood", [4, 60])
def test_dropout_of_the_weights_does_not_depend_on_padding(
    is_masked: bool, neighborhood: int
) -> None:
    options = {"neighborhood": neighborhood, "is_masked": is_masked}
    layer = self_attention(RestrictedSelfAttention, rate=0.5, **options)
    x = sequence(1, 80)
    for length in (3, 33):
        bias = padding_bias(np.where(np.arange(80) < length, 3, 0)[None])
        unpadded, *_ = layer(x[:, :length], seeds=Seeds(np.ones(1)))
        padded, *_ = layer(x, bias, seeds=Seeds(np.ones(1)))
        np.testing.assert_allclose(padded[:, :length], unpadded, atol=1e-5)
