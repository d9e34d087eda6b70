"""Tests the layer norm, and the residual connection with the norm after or before the sub-layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.residual import LayerNorm, Residual

X = np.random.default_rng(0).normal(3, 5, size=(2, 3, 8)).astype("float32")
HPARAMS = HParams(hidden_size=8, norm_epsilon=1e-6)


def normalized(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)


def doubled(x: tf.Tensor) -> tf.Tensor:
    return 2.0 * x + 1.0


def residual(norm_before: bool, rate: float = 0.0) -> Residual:
    hparams = replace(HPARAMS, norm_before=norm_before, layer_prepostprocess_dropout=rate)
    return Residual(hparams, name="residual")


def test_scale_and_bias_apply_after_the_norm() -> None:
    layer = LayerNorm(HPARAMS)
    layer.scale.assign(np.arange(8.0))
    layer.bias.assign(np.arange(8.0) ** 2)
    np.testing.assert_allclose(layer(X), normalized(X) * np.arange(8) + np.arange(8) ** 2, atol=1e-4)


def test_epsilon_is_added_to_the_variance() -> None:
    ours = np.asarray(LayerNorm(replace(HPARAMS, norm_epsilon=24.0))(X))
    np.testing.assert_allclose(ours.var(axis=-1), X.var(axis=-1) / (X.var(axis=-1) + 24), rtol=1e-4)
    assert np.all(np.isfinite(LayerNorm(HPARAMS)(np.ones((1, 8), "float32"))))


def test_the_norm_follows_the_sum_or_precedes_the_sublayer() -> None:
    np.testing.assert_allclose(residual(False)(X, doubled, None), normalized(X + 2 * X + 1), atol=1e-5)
    np.testing.assert_allclose(residual(True)(X, doubled, None), X + 2 * normalized(X) + 1, atol=1e-5)


@pytest.mark.parametrize("norm_before", [False, True])
def test_dropout_applies_only_to_the_sublayer(norm_before: bool) -> None:
    layer = residual(norm_before, rate=0.5)
    seeds = Seeds(np.arange(len(X)))
    ours = np.asarray(layer(X, lambda x: tf.fill(tf.shape(x), 7.0), seeds))
    if norm_before:
        np.testing.assert_allclose(np.unique(np.round(ours - X, 4)), [0, 14])
    else:
        same_seeds = Seeds(np.arange(len(X)))
        added = np.asarray(residual(True, rate=0.5)(X, lambda x: tf.fill(tf.shape(x), 7.0), same_seeds)) - X
        np.testing.assert_allclose(ours, normalized(X + added), atol=1e-4)
