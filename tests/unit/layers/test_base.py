"""Tests the functions that layers share: splits with few operations, and weights that are zeros."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.base import Layer, parts, zero_weights


@pytest.mark.parametrize("widths", [(4, 4, 4), (2, 2, 8)])
def test_parts_have_the_given_widths(widths: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 12)).astype("float32")
    for part, width, end in zip(parts(tf.constant(x), widths), widths, np.cumsum(widths), strict=True):
        np.testing.assert_array_equal(part, x[..., end - width : end])


def test_weights_are_zeros_only_inside_zero_weights() -> None:
    layer = Layer("float32", "layer")
    with pytest.raises(KeyError), zero_weights():
        assert not np.any(layer.kernel("zeros", 3, 4))
        assert not np.any(layer.add_weight(shape=(2,), initializer="ones", name="no_ones"))
        raise KeyError
    assert np.all(layer.kernel("random", 3, 4))
    assert np.all(layer.add_weight(shape=(2,), initializer="ones", name="ones"))
