"""Tests restricted self-attention, its cache, and the initial values and dropout of self-attention.

tests/unit/models compares attention of all kinds with numpy.
"""

import math
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import KeysValues, SelfAttention
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.masks import ILLEGAL, padding_bias

WIDTH, HEADS, KEYS, VALUES = 6, 2, 4, 10
D_K, D_V = KEYS // HEADS, VALUES // HEADS
HPARAMS = HParams(
    hidden_size=WIDTH, num_heads=HEADS, attention_key_channels=KEYS, attention_value_channels=VALUES
)


def sequence(rows: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, length, WIDTH)).astype("float32")


def self_attention(
    rate: float = 0.0, masked: bool = False, neighborhood: int = 0, relative: int = 0
) -> SelfAttention:
    """Returns a self-attention layer with random weights, which are the same in every call."""
    keras.utils.set_random_seed(1)
    hparams = replace(HPARAMS, attention_dropout=rate, self_attention_neighborhood=neighborhood)
    if relative:
        hparams = replace(
            hparams, self_attention_type="dot_product_relative", max_relative_position=relative
        )
    return SelfAttention(hparams, is_masked=masked)


def test_kernels_side_by_side_are_initialized_one_by_one() -> None:
    hparams = HParams(
        hidden_size=40, num_heads=2, attention_key_channels=80, attention_value_channels=400
    )
    layer = SelfAttention(hparams)
    parts = np.split(np.asarray(layer.qkv_kernel), [80, 160], axis=1)
    for part, width in zip(parts, (80, 80, 400), strict=True):
        limit = math.sqrt(6 / (40 + width))
        assert 0.95 * limit < np.abs(part).max() <= limit
    assert not np.array_equal(parts[0], parts[1])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("r", "reach"), [(1, 0), (6, 3), (67, 33)])
def test_a_neighborhood_reaches_equally_far_to_both_sides_and_not_to_padding(
    r: int, reach: int, masked: bool
) -> None:
    layer, unrestricted = (
        self_attention(masked=masked, neighborhood=r),
        self_attention(masked=masked),
    )
    for length in (1, 17, 70):
        x = sequence(1, length + 40, seed=length)
        padding = padding_bias(np.where(np.arange(length + 40) < length, 3, 0)[None])
        distance = np.arange(length) - np.arange(length)[:, None]
        expected = unrestricted(
            x[:, :length], np.where(abs(distance) > reach, ILLEGAL, 0.0)[None, None]
        )
        np.testing.assert_allclose(layer(x, padding)[:, :length], expected, atol=1e-5)
        np.testing.assert_allclose(layer(x[:, :length]), expected, atol=1e-5)


@pytest.mark.parametrize(("r", "reach"), [(1, 0), (5, 2), (500, 250)])
def test_the_cache_keeps_only_positions_within_reach(r: int, reach: int) -> None:
    layer, length = self_attention(masked=True, neighborhood=r), 7
    x = sequence(3, length)
    expected = layer(x)
    cache = KeysValues(tf.zeros([3, HEADS, 0, D_K]), tf.zeros([3, HEADS, 0, D_V]))
    for t in range(length):
        y, cache = layer.step(x[:, t, None], cache)
        np.testing.assert_allclose(y[:, 0], expected[:, t], atol=1e-5)
        assert cache.keys.shape[2] == cache.values.shape[2] == min(t + 1, reach + 1)


@pytest.mark.parametrize("variant", [{}, {"neighborhood": 4}, {"relative": 4}], ids=str)
def test_dropout_applies_to_the_weights(variant: dict[str, int]) -> None:
    layer, x, seeds = self_attention(rate=0.5, **variant), sequence(1, 40), np.arange(300)
    plain, dropped = layer(x), layer(np.repeat(x, 300, axis=0), seeds=Seeds(seeds))
    assert not np.allclose(dropped[0], dropped[1]) and not np.allclose(dropped[0], plain[0])
    np.testing.assert_allclose(np.mean(dropped, axis=0), plain[0], atol=0.3)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("neighborhood", [0, 4, 60])
def test_dropout_of_the_weights_does_not_depend_on_padding(masked: bool, neighborhood: int) -> None:
    layer, x = self_attention(rate=0.5, masked=masked, neighborhood=neighborhood), sequence(1, 80)
    for length in (3, 33):
        bias = padding_bias(np.where(np.arange(80) < length, 3, 0)[None])
        unpadded, padded = (
            layer(x[:, :length], seeds=Seeds(np.ones(1))),
            layer(x, bias, seeds=Seeds(np.ones(1))),
        )
        np.testing.assert_allclose(padded[:, :length], unpadded, atol=1e-5)
