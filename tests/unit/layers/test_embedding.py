"""Tests an embedding's vectors, and the logits that the embedding computes with the same matrix."""

from __future__ import annotations

import numpy as np
import pytest

from t2t_repro.layers.embedding import Embedding

IDS = np.array([[3, 11, 1, 0], [3, 1, 0, 0]])


def embedding(precision: str = "float32") -> Embedding:
    return Embedding(12, 9, precision, name="embedding")


def test_embeddings_are_scaled_rows_and_logits_are_products_with_the_same_rows() -> None:
    layer, x = embedding(), np.random.default_rng(0).normal(size=(2, 3, 9)).astype("float32")
    table = np.asarray(layer.table)
    np.testing.assert_allclose(layer(IDS), 3.0 * table[IDS] * (IDS != 0)[..., None], rtol=1e-6)
    np.testing.assert_allclose(layer.logits(x), x @ table.T, atol=1e-5)


def test_scaled_rows_start_with_variance_one() -> None:
    layer = Embedding(1000, 64, "float32", name="embedding")
    assert np.asarray(layer(np.arange(1, 1000)[None])).std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_transposed_copy_gives_the_same_logits(precision: str) -> None:
    layer = embedding(precision)
    x = np.random.default_rng(0).normal(size=(2, 3, 9)).astype("float32")
    expected = layer.logits(x)
    layer.store_transposed()
    np.testing.assert_allclose(layer.logits(x), expected, rtol=1e-2 if precision == "bfloat16" else 1e-5)
    assert layer.transposed.dtype == layer.table.dtype
    assert [weight.path for weight in layer.trainable_variables] == [layer.table.path]
