"""Tests padding, extreme logits and the consistency loss.

tests/golden compares the smoothed cross-entropy and its gradient.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.training.loss import consistency_loss, smoothed_cross_entropy

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
def test_padding_does_not_count(smoothing: float) -> None:
    other = np.where(TARGETS[..., None] == 0, 100 * LOGITS[::-1], LOGITS)
    assert loss(other, smoothing) == loss(LOGITS, smoothing)
    assert np.all(gradient(other, smoothing)[TARGETS == 0] == 0)
    nothing = smoothed_cross_entropy(LOGITS, np.zeros_like(TARGETS), smoothing)
    assert float(nothing) == 0


@smoothings
@pytest.mark.parametrize("largest", [1e4, -1e4])
def test_extreme_logits_stay_finite(smoothing: float, largest: float) -> None:
    extreme = np.zeros_like(LOGITS)
    extreme[..., 2] = largest
    value = loss(extreme, smoothing)
    slope = gradient(extreme, smoothing)
    distributions = smoothed(smoothing)[TARGETS != 0]
    exact = [
        max(largest, 0) + (math.log(VOCAB - 1) if largest < 0 else 0) - p[2] * largest
        for p in distributions
    ]
    entropy = -sum(p * math.log(p) for p in distributions[0] if p)
    assert value == pytest.approx(sum(exact) - 4 * entropy, rel=1e-4)
    assert np.all(np.isfinite(slope))
    assert np.abs(slope).max() <= 1


def test_the_consistency_loss_is_the_mean_of_both_divergences_and_its_gradient_is_theirs() -> None:
    others = np.random.default_rng(1).normal(0, 2, LOGITS.shape).astype("float32")
    with tf.GradientTape(persistent=True) as tape:
        x = tf.constant(LOGITS)
        y = tf.constant(others)
        tape.watch([x, y])
        ours = 3 * consistency_loss(x, y, TARGETS)
        log_p = tf.nn.log_softmax(x)
        log_q = tf.nn.log_softmax(y)
        divergences = tf.exp(log_p) * (log_p - log_q) + tf.exp(log_q) * (log_q - log_p)
        exact = 3 * tf.reduce_sum(divergences[TARGETS != 0]) / 2
    assert float(ours) == pytest.approx(float(exact), rel=1e-5)
    for one, other in zip(tape.gradient(ours, [x, y]), tape.gradient(exact, [x, y]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
