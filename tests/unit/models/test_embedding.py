"""Tests an embedding's vectors, and the logits that the embedding computes with the same matrix."""

import numpy as np
import pytest

from t2t_repro.decoding.tensorflow_engine import TransposedSoftmax
from t2t_repro.models.transformer import Embedding

IDS = np.array([[3, 11, 1, 0], [3, 1, 0, 0]])
X = np.random.default_rng(0).normal(size=(2, 3, 9)).astype("float32")


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-2)])
def test_embeddings_are_scaled_rows_and_logits_are_products_with_the_same_rows(
    precision: str, tolerance: float
) -> None:
    layer = Embedding(12, 9, dtype=precision)
    table = np.asarray(layer.table, np.float32)
    np.testing.assert_allclose(layer(IDS), 3.0 * table[IDS] * (IDS != 0)[..., None], rtol=1e-6)
    np.testing.assert_allclose(layer.logits(X), X @ table.T, rtol=tolerance, atol=tolerance)
    expected = layer.logits(X)
    np.testing.assert_allclose(TransposedSoftmax(layer).logits(X), expected, rtol=tolerance)


def test_scaled_rows_start_with_variance_one() -> None:
    layer = Embedding(1000, 64)
    assert np.asarray(layer(np.arange(1, 1000)[None])).std() == pytest.approx(1, abs=0.02)
