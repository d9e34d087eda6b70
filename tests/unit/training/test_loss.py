"""Tests that the smoothed cross-entropy agrees with its definition, and its gradient with finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from numpy_math import softmax
from t2t_repro.training.loss import smoothed_cross_entropy

VOCAB = 7
TARGETS = np.array([[3, 6, 1, 0], [1, 0, 0, 0]], np.int32)
LOGITS = np.random.default_rng(0).normal(0, 2, (2, 4, VOCAB)).astype("float32")
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])


def smoothed(smoothing: float) -> np.ndarray:
    """Returns the smoothed target distribution at each position, [2, 4, VOCAB]."""
    return np.where(np.eye(VOCAB)[TARGETS] == 1, 1 - smoothing, smoothing / (VOCAB - 1))


def loss(logits: np.ndarray, smoothing: float) -> float:
    return float(smoothed_cross_entropy(logits, TARGETS, smoothing))


def gradient(logits: np.ndarray, smoothing: float, factor: float = 1.0) -> np.ndarray:
    with tf.GradientTape() as tape:
        x = tf.constant(logits)
        tape.watch(x)
        value = factor * smoothed_cross_entropy(x, TARGETS, smoothing)
    return np.asarray(tape.gradient(value, x))


@smoothings
def test_the_loss_agrees_with_its_definition(smoothing: float) -> None:
    expected = 0.0
    for logits, target, distribution in zip(
        LOGITS.reshape(-1, VOCAB), TARGETS.reshape(-1), smoothed(smoothing).reshape(-1, VOCAB), strict=True
    ):
        if target:
            cross_entropy = -sum(p * math.log(q) for p, q in zip(distribution, softmax(logits), strict=True))
            entropy = -sum(p * math.log(p) for p in distribution if p)
            expected += cross_entropy - entropy
    assert loss(LOGITS, smoothing) == pytest.approx(expected, rel=1e-5)


@smoothings
def test_padding_does_not_count(smoothing: float) -> None:
    other = np.where(TARGETS[..., None] == 0, 100 * LOGITS[::-1], LOGITS)
    assert loss(other, smoothing) == loss(LOGITS, smoothing)
    assert np.all(gradient(other, smoothing)[TARGETS == 0] == 0)
    nothing = smoothed_cross_entropy(LOGITS, np.zeros_like(TARGETS), smoothing)
    assert float(nothing) == 0


@smoothings
def test_the_gradient_is_softmax_minus_smoothed_target(smoothing: float) -> None:
    expected = (softmax(LOGITS) - smoothed(smoothing)) * (TARGETS != 0)[..., None]
    np.testing.assert_allclose(gradient(LOGITS, smoothing), expected, atol=1e-6)
    np.testing.assert_allclose(gradient(LOGITS, smoothing, factor=-3.0), -3 * expected, atol=1e-5)


@smoothings
@pytest.mark.parametrize("largest", [1e4, -1e4])
def test_extreme_logits_stay_finite(smoothing: float, largest: float) -> None:
    extreme = np.zeros_like(LOGITS)
    extreme[..., 2] = largest
    value, slope = loss(extreme, smoothing), gradient(extreme, smoothing)
    distributions = smoothed(smoothing)[TARGETS != 0]
    exact = [max(largest, 0) + (math.log(VOCAB - 1) if largest < 0 else 0) - p[2] * largest for p in distributions]
    entropy = -sum(p * math.log(p) for p in distributions[0] if p)
    assert value == pytest.approx(sum(exact) - 4 * entropy, rel=1e-4)
    assert np.all(np.isfinite(slope))
    assert np.abs(slope).max() <= 1
