"""Tests position signals. tests/unit/models compares them with numpy."""

import numpy as np
import pytest

from t2t_repro.models.transformer import Sinusoids
from t2t_repro.models.variants import LearnedPositions


def test_a_width_of_2_has_one_wavelength_and_learned_vectors_are_about_as_long_as_embeddings() -> (
    None
):
    signals = Sinusoids(2)(np.zeros((1, 2, 2)), start=7)
    np.testing.assert_allclose(signals[0], [[np.sin(t), np.cos(t)] for t in (7, 8)], atol=1e-5)
    assert np.asarray(LearnedPositions(64, 500).table).std() == pytest.approx(1 / 8, rel=0.05)
