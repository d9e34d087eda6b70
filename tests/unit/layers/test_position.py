"""Compares position signals with their formula, and with the rows of a table."""

from __future__ import annotations

import numpy as np
import pytest

from t2t_repro.layers.position import LearnedPositions, Sinusoids


@pytest.mark.parametrize("width", [2, 4, 16])
def test_sinusoids_follow_the_formula(width: int) -> None:
    exponents = np.arange(width // 2) / max(width // 2 - 1, 1)
    angles = np.arange(30)[:, None] / 10000**exponents
    expected = np.hstack([np.sin(angles), np.cos(angles)])[None]
    np.testing.assert_allclose(Sinusoids(width)(0, 30), expected, atol=1e-5)
    np.testing.assert_allclose(Sinusoids(width)(7, 2), expected[:, 7:9], atol=1e-5)


def test_learned_positions_are_rows_of_a_table_and_later_positions_zeros() -> None:
    layer = LearnedPositions(6, 5)
    np.testing.assert_array_equal(layer(0, 7)[0], np.pad(layer.table, ((0, 2), (0, 0))))
    np.testing.assert_array_equal(layer(3, 4)[0], np.pad(layer.table[3:], ((0, 2), (0, 0))))
    assert np.asarray(LearnedPositions(64, 500).table).std() == pytest.approx(1 / 8, rel=0.05)
