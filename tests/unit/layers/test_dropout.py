"""Tests dropout: its rate, its scale, that its masks belong to the examples, and that they look random."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers.dropout import Seeds, dropout, example_seeds, standard_normal

STEP_SEED = np.array([1, 2], np.uint32)


def seeds_of(*examples: int, random_seed: int = 1, step: int = 2) -> Seeds:
    return Seeds(example_seeds(np.array([random_seed, step], np.uint32), np.array(examples, np.uint32)))


def mask(shape: tuple[int, ...], rate: float, seeds: Seeds) -> np.ndarray:
    """Returns which elements of a tensor of this shape are kept."""
    return np.asarray(dropout(tf.ones(shape), rate, seeds)) > 0


def lowbias32(x: int) -> int:
    x = ((x ^ x >> 16) * 0x7FEB352D) % 2**32
    x = ((x ^ x >> 15) * 0x846CA68B) % 2**32
    return x ^ x >> 16


def test_each_element_is_decided_by_16_bits_of_a_hash_of_its_place() -> None:
    ours = mask((2, 3, 5), 0.3, seeds_of(7, 8))
    for place, example in enumerate((7, 8)):
        seed = lowbias32(lowbias32(lowbias32(1) ^ 2) ^ example)
        for position, channel in itertools.product(range(3), range(5)):
            row = lowbias32(lowbias32(seed + 1) ^ position * 0x9E3779B1 % 2**32)
            pair = lowbias32(row ^ channel // 2 * 0x9E3779B1 % 2**32)
            bits = pair >> 16 if channel % 2 else pair % 2**16
            assert ours[place, position, channel] == (bits >= round(0.3 * 2**16))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_a_share_of_elements_is_dropped_and_the_rest_is_scaled(rate: float) -> None:
    ours = np.asarray(dropout(tf.ones((64, 64, 128)), rate, seeds_of(*range(64))))
    assert set(np.unique(ours)) == {np.float32(0), np.float32(1 / (1 - rate))}
    deviation = (rate * (1 - rate) / 64) ** 0.5  # of the share in 64 elements
    for axes in ((1, 2), (0, 2), (0, 1)):
        shares = np.mean(ours == 0, axis=axes)
        elements = ours.size // shares.size
        assert np.abs(shares - rate).max() < 5 * deviation * (64 / elements) ** 0.5


def test_the_rate_is_exact_to_1_in_65_536() -> None:
    dropped = sum(np.sum(~mask((64, 64, 256), 3 / 65536, seeds_of(*range(64), step=step))) for step in range(4))
    assert dropped == pytest.approx(192, abs=5 * 192**0.5)


def test_without_seeds_or_rate_nothing_changes() -> None:
    x = tf.ones([10, 2])
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, seeds_of(*range(10))) is x


def test_masks_are_the_same_in_a_graph_and_eagerly() -> None:
    signature = [tf.TensorSpec([None, 4, None, None]), tf.TensorSpec([None], tf.uint32)]

    @tf.function(input_signature=signature, autograph=False)
    def graph(x: tf.Tensor, examples: tf.Tensor) -> tf.Tensor:
        seeds = Seeds(example_seeds(tf.constant(STEP_SEED), examples))
        return tf.stack([dropout(x, 0.5, seeds), dropout(x, 0.5, seeds)])

    for shape in ((3, 4, 5, 7), (2, 4, 1, 2)):
        examples = np.arange(shape[0], dtype=np.uint32)
        seeds = seeds_of(*examples)
        eager = [mask(shape, 0.5, seeds), mask(shape, 0.5, seeds)]
        np.testing.assert_array_equal(np.asarray(graph(tf.ones(shape), tf.constant(examples))) > 0, eager)


def test_a_mask_belongs_to_its_example() -> None:
    for length in (4, 5):
        small, large = mask((3, 2, length, length), 0.5, seeds_of(5, 6, 7)), mask((2, 2, 9, 9), 0.5, seeds_of(7, 5))
        np.testing.assert_array_equal(large[::-1, :, :length, :length], small[::2])


def test_masks_of_different_places_examples_and_steps_are_independent() -> None:
    seeds, shape = seeds_of(*range(16)), (16, 64, 64)
    masks = {f"place {place}": mask(shape, 0.5, seeds) for place in range(3)}
    for name, other in {
        "other examples": seeds_of(*range(16, 32)),
        "next step": seeds_of(*range(16), step=3),
        "other run": seeds_of(*range(16), random_seed=2),
        "run and step exchanged": seeds_of(*range(16), random_seed=2, step=1),
    }.items():
        masks[name] = mask(shape, 0.5, other)
    first = masks["place 0"]
    masks |= {"next position": np.roll(first, 1, 1), "next channel": np.roll(first, 1, 2)}
    masks |= {"next pair of channels": np.roll(first, 2, 2), "next example": np.roll(first, 1, 0)}
    masks["exchanged"] = np.swapaxes(first, 1, 2)
    correlation = np.corrcoef([one.reshape(-1) for one in masks.values()])
    worst = np.unravel_index(np.argmax(np.abs(correlation - np.eye(len(masks)))), correlation.shape)
    assert abs(correlation[worst]) < 5 / first.size**0.5, [list(masks)[i] for i in worst]


def test_noise_is_standard_normal() -> None:
    noise = np.asarray(standard_normal((50, 40, 30), Seeds(np.arange(50))))
    assert abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02
    assert np.isfinite(noise).all() and len(np.unique(noise)) > 0.99 * noise.size
    for point, share in ((-1.0, 0.1587), (0.5, 0.6915), (2.0, 0.9772)):
        assert np.mean(noise < point) == pytest.approx(share, abs=0.01)


def test_the_dtype_and_the_shape_are_kept() -> None:
    for shape in ((9, 3), (0, 4, 8), (2, 4, 3, 5)):
        ours = dropout(tf.ones(shape, tf.bfloat16), 0.5, seeds_of(*range(shape[0])))
        assert (ours.dtype, tuple(ours.shape)) == (tf.bfloat16, shape)
    assert np.mean(mask((4, 64, 64), 0.999999, seeds_of(*range(4)))) < 0.001
