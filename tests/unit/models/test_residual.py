"""Tests the residual connection with the norm after or before the sub-layer. Models are compared
with numpy.
"""

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.models.transformer import Residual, Sizes
from t2t_repro.models.variants import PreNormResidual

X = np.random.default_rng(0).normal(3, 5, size=(2, 3, 8)).astype("float32")


def normalized(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6)


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("norm_before", [False, True])
def test_the_norm_follows_the_sum_or_precedes_the_sublayer_whose_output_has_dropout(
    norm_before: bool, rate: float
) -> None:
    kind = PreNormResidual if norm_before else Residual
    layer = kind(Sizes(width=8, dropout=rate))

    def dropped(x: np.ndarray) -> np.ndarray:
        return np.asarray(dropout(tf.constant(2 * x + 1, tf.float32), rate, Seeds(np.arange(2))))

    expected = X + dropped(normalized(X)) if norm_before else normalized(X + dropped(X))
    y = 2.0 * np.asarray(layer.sublayer_input(X)) + 1.0
    np.testing.assert_allclose(layer(X, y, seeds=Seeds(np.arange(2))), expected, atol=1e-4)
