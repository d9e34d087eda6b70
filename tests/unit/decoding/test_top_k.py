"""Compares top-k and argmax with a stable sort by NumPy, on values with many ties."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.top_k import argmax, top_k

# 1,000 and 4,096 have divisors among the chunk sizes, 4,099 is prime; 5 and 100 are too few values for chunks.
SIZES = [5, 100, 1000, 4096, 4099]


def assert_like_stable_sort(values: np.ndarray, k: int, offsets: np.ndarray, is_size_known: bool = True) -> None:
    """Compares top-k with a sort of all sums of a sentence."""
    shape = [None, *values.shape[1:]] if is_size_known else [None] * 3
    specs = [tf.TensorSpec(shape), tf.TensorSpec([None, None, 1])]
    graph = tf.function(lambda values, offsets: top_k(values, offsets, k), input_signature=specs)
    best, hypotheses, indices = graph(values.astype("float32"), offsets.astype("float32"))
    sums = (values + offsets).reshape(len(values), -1)
    expected = np.argsort(-sums, axis=1, kind="stable")[:, :k]
    assert np.array_equal(hypotheses, expected // values.shape[2])
    assert np.array_equal(indices, expected % values.shape[2])
    assert np.array_equal(best, np.take_along_axis(sums, expected, axis=1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("k", [1, 3, 12])
def test_top_k_keeps_the_order_of_equal_sums(size: int, k: int) -> None:
    random = np.random.default_rng(size + k)
    for distinct_values in (1, 3, 300, 10**6):
        values = random.integers(0, distinct_values, (2, 4, size))
        assert_like_stable_sort(values, k, random.integers(-2, 3, (2, 4, 1)))
        assert_like_stable_sort(values, k, np.array([0, *[-np.inf] * 7]).reshape(2, 4, 1))


@pytest.mark.parametrize("size", [4096, 4099])
def test_top_k_of_few_finite_values_finds_no_index_behind_the_vocabulary(size: int) -> None:
    values = np.full((3, 2, size), -np.inf)
    values[1, 0, -1], values[2, 1, [3, 700]] = 1.0, 2.0
    assert_like_stable_sort(values, 4, np.zeros((3, 2, 1)))


def test_top_k_of_rows_whose_size_the_graph_does_not_know() -> None:
    values = np.random.default_rng(0).integers(0, 9, (2, 4, 1024))
    assert_like_stable_sort(values, 5, np.zeros((2, 4, 1)), is_size_known=False)


@pytest.mark.parametrize("size", [*SIZES, None])
def test_argmax_is_the_first_of_the_largest_values(size: int | None) -> None:
    graph = tf.function(argmax, input_signature=[tf.TensorSpec([None, None, size])])
    for distinct_values in (1, 300, 10**6):
        values = np.random.default_rng(0).integers(-distinct_values, 0, (3, 4, size or 5000)).astype("float32")
        assert np.array_equal(graph(values), np.argmax(values, axis=2))
