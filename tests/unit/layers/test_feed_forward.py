"""Compares the feed-forward network with the paper's equation 2."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.layers.feed_forward import FeedForward

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")


def test_it_computes_equation_2_with_dropout_on_the_inner_activations() -> None:
    layer = FeedForward(HParams(hidden_size=4, num_heads=1, filter_size=10, relu_dropout=0.5), "float32")
    for bias in (layer.bias1, layer.bias2):
        bias.assign(np.random.default_rng(1).normal(size=bias.shape))
    w1, b1, w2, b2 = (np.asarray(w) for w in (layer.kernel1, layer.bias1, layer.kernel2, layer.bias2))
    inner = np.maximum(0, X @ w1 + b1)
    np.testing.assert_allclose(layer(X, None), inner @ w2 + b2, atol=1e-5)
    dropped = np.asarray(dropout(tf.constant(inner), 0.5, Seeds(np.arange(2))))
    np.testing.assert_allclose(layer(X, Seeds(np.arange(2))), dropped @ w2 + b2, atol=1e-5)
