"""Compares the feed-forward network with the paper's equation 2."""

from __future__ import annotations

import numpy as np

from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.feed_forward import FeedForward

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")


def feed_forward(rate: float) -> FeedForward:
    hparams = HParams(hidden_size=4, num_heads=1, filter_size=10, relu_dropout=rate)
    layer = FeedForward(hparams, "float32")
    random = np.random.default_rng(1)
    for bias in (layer.bias1, layer.bias2):
        bias.assign(random.normal(size=bias.shape))
    return layer


def equation2(layer: FeedForward) -> np.ndarray:
    w1, b1, w2, b2 = (np.asarray(w) for w in (layer.kernel1, layer.bias1, layer.kernel2, layer.bias2))
    return np.maximum(0, X @ w1 + b1) @ w2 + b2


def test_it_computes_equation_2_with_dropout_on_the_inner_activations() -> None:
    layer = feed_forward(rate=0.5)
    np.testing.assert_allclose(layer(X, None), equation2(layer), atol=1e-5)
    dropped = np.asarray(layer(np.repeat(X, 300, axis=0), Seeds(np.arange(300 * len(X)))))
    assert not np.allclose(dropped[0], dropped[1]) and not np.any(dropped[0] == 0)
    np.testing.assert_allclose(dropped.reshape(2, 300, 3, 4).mean(axis=1), equation2(layer), atol=0.5)
    layer.kernel2.assign(np.zeros((10, 4)))
    np.testing.assert_array_equal(layer(X, Seeds(np.ones(len(X))))[0, 0], layer.bias2)
