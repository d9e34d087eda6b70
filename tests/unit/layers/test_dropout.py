"""Tests dropout: its rate, its scale, and that its masks depend only on the seed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.dropout import Seeds, dropout


def new_seeds(first: int = 1, second: int = 2) -> Seeds:
    return Seeds(np.array([first, second], "int32"))


def dropped(size: int, rate: float, seeds: Seeds) -> np.ndarray:
    return np.asarray(dropout(tf.ones(size), rate, seeds))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_a_share_of_elements_is_dropped_and_the_rest_is_scaled(rate: float) -> None:
    size = 600_000
    ours = dropped(size, rate, new_seeds())
    assert set(np.unique(ours)) == {np.float32(0), np.float32(1 / (1 - rate))}
    for third in np.split(ours, 3):
        assert np.mean(third == 0) == pytest.approx(rate, abs=0.005)
    assert ours.mean() == pytest.approx(1, abs=0.02)


def test_elements_of_one_random_number_are_independent() -> None:
    thirds = np.split(dropped(600_000, 0.1, new_seeds()) == 0, 3)
    assert np.max(np.abs(np.corrcoef(thirds) - np.eye(3))) < 0.02


@pytest.mark.parametrize("shape", [(1,), (2,), (4,), (5, 1), (7, 11), (0, 3), (3, 5, 7)])
def test_with_rate_one_half_the_rest_is_doubled(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    ours = np.asarray(dropout(x, 0.5, new_seeds()))
    assert ours.shape == shape
    np.testing.assert_allclose(ours, np.where(ours == 0, 0, 2 * x))


def test_without_seeds_or_rate_nothing_changes() -> None:
    x = tf.ones([10])
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, new_seeds()) is x


def test_the_same_seed_gives_the_same_masks_in_a_graph_and_eagerly() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([2], tf.int32)])
    def graph(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        seeds = Seeds(seed)
        return tf.stack([dropout(x, 0.5, seeds), dropout(x, 0.5, seeds)])

    for seeds in (new_seeds(), new_seeds()):
        eager = [dropped(100, 0.5, seeds), dropped(100, 0.5, seeds)]
        np.testing.assert_array_equal(graph(tf.ones(100), tf.constant([1, 2])), eager)


def test_each_dropout_and_each_seed_has_its_own_mask() -> None:
    seeds = new_seeds()
    masks = [dropped(10_000, 0.5, seeds) for _ in range(3)]
    masks += [dropped(10_000, 0.5, other) for other in (new_seeds(3, 2), new_seeds(1, 100), new_seeds(2, 1))]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert np.mean(one == other) == pytest.approx(0.5, abs=0.03)


def test_the_dtype_is_kept() -> None:
    ours = dropout(tf.ones([9], tf.bfloat16), 0.5, new_seeds())
    assert ours.dtype == tf.bfloat16
