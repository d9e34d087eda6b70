"""Compares top-k and argmax with a stable sort by NumPy, on values with many ties."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.top_k import argmax, top_k


def assert_like_stable_sort(
    values: np.ndarray, k: int, offsets: np.ndarray, is_size_known: bool = True
) -> None:
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


@pytest.mark.parametrize(
    ("size", "k", "is_size_known"),
    # 1,000 and 4,096 have divisors among the chunk sizes, 4,099 is prime; 5 and 1,024 are not cut
    # into chunks.
    [
        (5, 12, True),
        (1000, 1, True),
        (1000, 3, True),
        (4096, 12, True),
        (4099, 12, True),
        (1024, 3, False),
    ],
)
def test_top_k_keeps_the_order_of_equal_sums(size: int, k: int, is_size_known: bool) -> None:
    random = np.random.default_rng(size + k)
    values = np.concatenate(
        [random.integers(0, distinct, (4, 4, size)) for distinct in (1, 3, 300, 10**6)]
    )
    offsets = random.integers(-2, 3, (16, 4, 1)).astype(float)
    offsets[::4, 1:] = -np.inf  # as at the first position
    assert_like_stable_sort(values, k, offsets, is_size_known)


@pytest.mark.parametrize("size", [4096, 4099])
def test_top_k_of_few_finite_values_finds_no_index_behind_the_vocabulary(size: int) -> None:
    values = np.full((3, 2, size), -np.inf)
    values[1, 0, -1] = 1.0
    values[2, 1, [3, 700]] = 2.0
    assert_like_stable_sort(values, 4, np.zeros((3, 2, 1)))


@pytest.mark.parametrize("size", [4096, 4099, None])
def test_argmax_is_the_first_of_the_largest_values(size: int | None) -> None:
    graph = tf.function(argmax, input_signature=[tf.TensorSpec([None, None, size])])
    random = np.random.default_rng(0)
    values = np.concatenate(
        [random.integers(-distinct, 0, (3, 4, size or 500)) for distinct in (1, 300, 10**6)]
    )
    assert np.array_equal(graph(values.astype("float32")), np.argmax(values, axis=2))
