"""Tests linear layers with weight normalization against the formulas of Salimans and Kingma (2016)."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.base import zero_weights
from t2t_repro.rivals.weight_normalization import NormalizedLinear


def layer(precision: str = "float32") -> NormalizedLinear:
    """Returns a layer of 5 inputs and 4 outputs with random g and b."""
    keras.utils.set_random_seed(1)
    layer = NormalizedLinear(5, 4, 2.0, precision, "layer")
    layer.g.assign(np.array([0.5, -1, 2, 3]))
    layer.b.assign(np.array([1, 2, 3, 4]))
    return layer


def test_a_new_weight_is_v_with_the_requested_variance() -> None:
    keras.utils.set_random_seed(1)
    new = NormalizedLinear(400, 300, 3.0, "float32", "layer")
    np.testing.assert_allclose(new.weight(), new.v, rtol=1e-5)
    assert np.asarray(new.v).std() == pytest.approx((3.0 / 400) ** 0.5, rel=0.02)
    outputs = new(np.random.default_rng(0).normal(size=(50, 400)).astype("float32"))
    assert np.asarray(outputs).var() == pytest.approx(3.0, rel=0.05)
    np.testing.assert_array_equal(new.b, 0)


def test_columns_have_the_norm_g_and_the_direction_of_v() -> None:
    linear, x = layer(), np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    v, g, b = (np.asarray(weight) for weight in (linear.v, linear.g, linear.b))
    weight = np.stack([g[j] * v[:, j] / np.linalg.norm(v[:, j]) for j in range(4)], axis=1)
    np.testing.assert_allclose(linear(x), x @ weight + b, atol=1e-5)
    linear.v.assign(7 * v)
    np.testing.assert_allclose(linear.weight(), weight, atol=1e-5)


def test_the_gradient_of_v_is_orthogonal_to_v() -> None:
    linear, x = layer(), np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(linear(x) ** 3)
    of_v, of_g = tape.gradient(loss, [linear.v.value, linear.g.value])
    np.testing.assert_allclose(tf.reduce_sum(of_v * linear.v, axis=0) / tf.norm(of_v), np.zeros(4), atol=1e-5)
    assert np.all(np.abs(of_g) > 0.1) and tf.norm(of_v) > 1  # equation 3


def test_16_bits_are_close_and_zero_weights_can_be_assigned() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    expected = layer()(x)
    for precision in ("mixed_bfloat16", "bfloat16"):
        outputs = layer(precision)(x)
        assert outputs.dtype == tf.float32
        np.testing.assert_allclose(outputs, expected, atol=0.1)
    with zero_weights():
        linear = NormalizedLinear(5, 4, 2.0, "float32", "layer")
    for weight, other in zip(linear.trainable_variables, layer().trainable_variables, strict=True):
        assert not np.any(weight)
        weight.assign(other)
    np.testing.assert_array_equal(linear(x), expected)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "bfloat16"])
def test_a_folded_layer_has_equal_outputs_and_no_normalization(precision: str) -> None:
    linear, x = layer(precision), np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    expected, weight = linear(x), linear.weight()
    linear.fold_weights()
    np.testing.assert_array_equal(linear(x), expected)
    linear.v.assign(7 * linear.v)
    np.testing.assert_allclose(linear.weight(), 7 * weight, rtol=1e-2)
