"""Prefixes, repetitions and coverage against plain loops over lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.rules import coverage, with_prefix, without_repeats

R, K, V = 3, 4, 5


def logits(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, (R, K, V)).astype("float32")


@pytest.mark.parametrize("t", range(5))
def test_a_prefix_leaves_its_own_token_alone(t: int) -> None:
    prefixes = [[4, 2, 3], [1], []]
    padded = np.array([row + [0] * (3 - len(row)) for row in prefixes], np.int32)
    given, changed = logits(), logits(1)
    found = with_prefix(given, changed, padded, tf.constant(t)).numpy()
    for row, prefix in enumerate(prefixes):
        for token in range(V):
            if t >= len(prefix):
                expected = changed[row, :, token]
            else:
                expected = given[row, :, token] if token == prefix[t] else np.full(K, -math.inf)
            np.testing.assert_array_equal(found[row, :, token], expected)


def test_a_prefix_of_no_positions() -> None:
    given = logits()
    found = with_prefix(logits(1), given, np.zeros((R, 0), np.int32), tf.constant(0))
    np.testing.assert_array_equal(found, given)


def completes_a_repetition(ids: list[int], token: int, size: int) -> bool:
    seen = {tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)}
    return len(ids) >= size - 1 and (*ids[len(ids) - size + 1 :], token) in seen


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None, None], tf.float32),
        tf.TensorSpec([None, None, None], tf.int32),
    ],
    autograph=False,
)
def of_pairs(given: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """As the search has it: no size is known when the graph is made."""
    return without_repeats(given, ids, 2, 0.5)


def test_a_penalty_for_each_token_that_completes_an_n_gram_once_more() -> None:
    random, repetitions = np.random.default_rng(1), 0
    for size in (1, 2, 3, 4):
        for t in range(10):
            for penalty in (0.5, math.inf):
                given = logits(t)
                # Of three tokens, so that n-grams are there twice and thrice.
                ids = random.integers(2, 5, (R, K, t)).astype(np.int32)
                if size == 2 and penalty == 0.5:
                    found = of_pairs(given, ids).numpy()
                else:
                    found = without_repeats(given, ids, size, penalty).numpy()
                for row, hypothesis, token in np.ndindex(R, K, V):
                    is_repetition = completes_a_repetition(ids[row, hypothesis].tolist(), token, size)
                    repetitions += is_repetition
                    expected = given[row, hypothesis, token] - (np.float32(penalty) if is_repetition else 0)
                    assert found[row, hypothesis, token] == expected, (ids[row, hypothesis], token, size)
    assert repetitions > 500


def test_repetitions_by_hand() -> None:
    ids = np.array([[[2, 3, 2, 3, 2]]], np.int32)
    for size, expected in ((1, [2, 3]), (2, [3]), (3, [3]), (4, [3]), (5, [])):
        found = without_repeats(np.zeros((1, 1, V), np.float32), ids, size, 1.5).numpy()[0, 0]
        assert found.tolist() == [-1.5 if token in expected else 0 for token in range(V)]


def test_coverage_is_its_formula_over_the_sources_own_tokens() -> None:
    random = np.random.default_rng(2)
    attention = random.uniform(0, 2, (R, K, 6)).astype("float32")
    attention[0, 1, 2] = 0.0
    is_token = np.array([[True] * 6, [True] * 2 + [False] * 4, [True] + [False] * 5])
    found = coverage(attention, is_token, 0.7).numpy()
    assert found.shape == (R, K)
    for row, hypothesis in np.ndindex(R, K):
        own = attention[row, hypothesis, is_token[row]].tolist()
        expected = 0.7 * sum(math.log(min(max(each, 1e-6), 1.0)) for each in own)
        assert found[row, hypothesis] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert found[0, 1] < 0.7 * math.log(1e-6) + 1e-5 and (found <= 0).all()
