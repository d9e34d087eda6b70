"""Tests dropout: its masks, which belong to the examples, its rate and its scale."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.dropout import Seeds, dropout, example_seeds, standard_normal


def seeds_of(*examples: int, random_seed: int = 1, step: int = 2) -> Seeds:
    return Seeds(example_seeds(np.array([random_seed, step], np.uint32), np.array(examples)))


def mask(shape: tuple[int, ...], rate: float, seeds: Seeds) -> np.ndarray:
    """Returns which elements of a tensor of this shape are kept."""
    return np.asarray(dropout(tf.ones(shape), rate, seeds)) > 0


def lowbias32(x: int) -> int:
    x = ((x ^ x >> 16) * 0x7FEB352D) % 2**32
    x = ((x ^ x >> 15) * 0x846CA68B) % 2**32
    return x ^ x >> 16


def test_each_element_is_decided_by_16_bits_of_a_hash_of_its_place() -> None:
    seeds = seeds_of(7, 8)
    for call, shape in enumerate(((2, 3, 5), (2, 2, 4)), start=1):
        ours = mask(shape, 0.3, seeds)
        for place, position, channel in itertools.product(*map(range, shape)):
            seed = lowbias32(lowbias32(lowbias32(1) ^ 2) ^ (7, 8)[place])
            row = lowbias32(lowbias32(seed + call) ^ position * 0x9E3779B1 % 2**32)
            pair = lowbias32(row ^ channel // 2 * 0x9E3779B1 % 2**32)
            bits = pair >> 16 if channel % 2 else pair % 2**16
            assert ours[place, position, channel] == (bits >= round(0.3 * 2**16))


@pytest.mark.parametrize("rate", [3 / 65536, 0.3, 0.9])
def test_a_share_of_elements_is_dropped_and_the_rest_is_scaled(rate: float) -> None:
    ours = np.asarray(dropout(tf.ones((64, 64, 128)), rate, seeds_of(*range(64))))
    np.testing.assert_allclose(np.unique(ours), [0, 1 / (1 - rate)], rtol=1e-6)
    for axes in ((1, 2), (0, 2), (0, 1), (0, 1, 2)):
        shares = np.mean(ours == 0, axis=axes)
        deviation = (rate * (1 - rate) * shares.size / ours.size) ** 0.5
        assert np.abs(shares - rate).max() < 6 * deviation


def test_without_seeds_or_rate_nothing_changes() -> None:
    x = tf.ones([10, 2])
    assert dropout(x, 0.5, None) is x and dropout(x, 0.0, seeds_of(*range(10))) is x


def test_masks_are_the_same_in_a_graph_eagerly_and_in_another_batch() -> None:
    signature = [
        tf.TensorSpec([None, 4, None, None], tf.bfloat16),
        tf.TensorSpec([None], tf.uint32),
    ]

    @tf.function(input_signature=signature, autograph=False)
    def graph(x: tf.Tensor, examples: tf.Tensor) -> tf.Tensor:
        return dropout(x, 0.5, Seeds(example_seeds(tf.constant([1, 2], tf.uint32), examples)))

    for shape in ((3, 4, 5, 7), (2, 4, 1, 2), (0, 4, 2, 3)):
        examples = np.arange(5, 5 + shape[0], dtype=np.uint32)
        ours = graph(tf.ones(shape, tf.bfloat16), tf.constant(examples))
        assert (ours.dtype, tuple(ours.shape)) == (tf.bfloat16, shape)
        larger = mask((4, 4, 9, 9), 0.5, seeds_of(9, 7, 6, 5))[::-1]
        np.testing.assert_array_equal(ours > 0, larger[: shape[0], :, : shape[2], : shape[3]])


def test_noise_is_standard_normal() -> None:
    noise = np.asarray(standard_normal((50, 40, 30), Seeds(np.arange(50))))
    assert np.isfinite(noise).all() and len(np.unique(noise)) > 0.99 * noise.size
    for point, share in ((-1.0, 0.1587), (0.5, 0.6915), (2.0, 0.9772)):
        assert np.mean(noise < point) == pytest.approx(share, abs=0.01)
