"""Compares top-k with a stable sort by NumPy, on values with many ties."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.top_k import top_k


def assert_like_stable_sort(values: np.ndarray, k: int, is_size_known: bool = True) -> None:
    shape = [None, None, values.shape[2] if is_size_known else None]
    graph = tf.function(lambda values: top_k(values, k), input_signature=[tf.TensorSpec(shape)])
    best, indices = graph(values.astype("float32"))
    expected = np.argsort(-values, axis=2, kind="stable")[:, :, :k]
    assert np.array_equal(indices, expected)
    assert np.array_equal(best, np.take_along_axis(values, expected, axis=2))


# 1,024 and 1,000 have divisors among the chunk sizes, 1,031 is prime; 5 and 100 are too few values for chunks.
@pytest.mark.parametrize("size", [5, 100, 1000, 1024, 1031])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_top_k_keeps_the_order_of_equal_values(size: int, k: int) -> None:
    random = np.random.default_rng(size + k)
    for distinct_values in (1, 3, 300, 10**6):
        assert_like_stable_sort(random.integers(0, distinct_values, (2, 4, size)), k)


@pytest.mark.parametrize("size", [1024, 1031])
def test_top_k_of_rows_with_few_finite_values(size: int) -> None:
    values = np.full((1, 3, size), -np.inf)
    values[0, 1, -1], values[0, 2, [3, 700]] = 1.0, 2.0
    assert_like_stable_sort(values, 4)


def test_top_k_of_rows_whose_size_the_graph_does_not_know() -> None:
    assert_like_stable_sort(np.random.default_rng(0).integers(0, 9, (2, 4, 1024)), 5, is_size_known=False)
