"""Layer norm, and the two orders of a residual path."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.residual import LayerNorm, Residual

X = np.random.default_rng(0).normal(3, 5, size=(2, 3, 8)).astype("float32")


def normalised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)


def doubled(x: tf.Tensor) -> tf.Tensor:
    return 2.0 * x + 1.0


def residual(norm_before: bool, rate: float = 0.0) -> Residual:
    return Residual(8, 1e-6, norm_before, rate, name="residual")


def test_mean_0_and_variance_1() -> None:
    ours = np.asarray(LayerNorm(8, 1e-6, "norm")(X))
    np.testing.assert_allclose(ours.mean(axis=-1), np.zeros((2, 3)), atol=1e-5)
    np.testing.assert_allclose(ours.var(axis=-1), np.ones((2, 3)), atol=1e-4)
    np.testing.assert_allclose(ours, normalised(X), atol=1e-5)


def test_scale_and_bias() -> None:
    layer = LayerNorm(8, 1e-6, "norm")
    layer.scale.assign(np.arange(8.0))
    layer.bias.assign(np.arange(8.0) ** 2)
    np.testing.assert_allclose(layer(X), normalised(X) * np.arange(8) + np.arange(8) ** 2, atol=1e-4)


def test_epsilon_is_added_to_the_variance() -> None:
    ours = np.asarray(LayerNorm(8, 24.0, "norm")(X))
    np.testing.assert_allclose(ours.var(axis=-1), X.var(axis=-1) / (X.var(axis=-1) + 24), rtol=1e-4)
    assert np.all(np.isfinite(LayerNorm(8, 1e-6, "norm")(np.ones((1, 8), "float32"))))


def test_norm_after_the_sum() -> None:
    np.testing.assert_allclose(residual(False)(X, doubled, None), normalised(X + 2 * X + 1), atol=1e-5)


def test_norm_before_the_sublayer() -> None:
    np.testing.assert_allclose(residual(True)(X, doubled, None), X + 2 * normalised(X) + 1, atol=1e-5)


@pytest.mark.parametrize("norm_before", [False, True])
def test_dropout_is_on_the_sublayer_not_on_the_path_around_it(norm_before: bool) -> None:
    layer = residual(norm_before, rate=0.5)
    seeds = Seeds(np.array([1, 2], "int32"))
    ours = np.asarray(layer(X, lambda x: tf.fill(tf.shape(x), 7.0), seeds))
    if norm_before:
        np.testing.assert_allclose(np.unique(np.round(ours - X, 4)), [0, 14])
    else:
        kept = Seeds(np.array([1, 2], "int32"))
        added = np.asarray(residual(True, rate=0.5)(X, lambda x: tf.fill(tf.shape(x), 7.0), kept)) - X
        np.testing.assert_allclose(ours, normalised(X + added), atol=1e-4)
