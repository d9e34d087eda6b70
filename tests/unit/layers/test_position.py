"""Compares sinusoidal position signals with their formula, and learned position signals with the rows of a table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from t2t_repro.layers.base import Layer
from t2t_repro.layers.position import LearnedPositions, Sinusoids


@pytest.mark.parametrize("width", [2, 4, 16])
def test_sinusoids_follow_the_formula(width: int) -> None:
    ours = np.asarray(Sinusoids(width)(0, 30))
    assert ours.shape == (1, 30, width)
    half = width // 2
    for position in range(30):
        for i in range(half):
            angle = position / 10000 ** (i / (half - 1) if half > 1 else 0)
            assert ours[0, position, i] == pytest.approx(math.sin(angle), abs=1e-5)
            assert ours[0, position, half + i] == pytest.approx(math.cos(angle), abs=1e-5)


def test_learned_positions_are_rows_of_a_table_and_later_positions_zeros() -> None:
    layer = LearnedPositions(6, 5)
    [table] = (np.asarray(variable) for variable in layer.trainable_variables)
    assert table.shape == (5, 6)
    np.testing.assert_array_equal(layer(0, 7)[0], np.pad(table, ((0, 2), (0, 0))))
    np.testing.assert_array_equal(layer(3, 4)[0], np.pad(table[3:], ((0, 2), (0, 0))))


@pytest.mark.parametrize("layer", [Sinusoids(6), LearnedPositions(6, 9)])
def test_a_later_start_gives_a_slice_of_the_signal(layer: Layer) -> None:
    signal = np.asarray(layer(0, 8))
    for start in range(8):
        np.testing.assert_allclose(layer(start, 1), signal[:, start : start + 1], atol=1e-6)
        np.testing.assert_allclose(layer(start, 8 - start), signal[:, start:], atol=1e-6)
