"""Tests weights that are zeros."""

import numpy as np
import pytest

from t2t_repro.layers.base import Layer, zero_weights


def test_weights_are_zeros_only_inside_zero_weights() -> None:
    layer = Layer()
    with pytest.raises(KeyError), zero_weights():
        assert not np.any(layer.kernel("zeros", 3, 4))
        assert not np.any(layer.add_weight(shape=(2,), initializer="ones", name="no_ones"))
        raise KeyError
    assert np.all(layer.kernel("random", 3, 4))
    assert np.all(layer.add_weight(shape=(2,), initializer="ones", name="ones"))
