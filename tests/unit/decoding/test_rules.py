"""Compares prefixes, repetition penalties and coverage penalties with plain loops over lists."""

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
def test_a_prefix_allows_only_its_own_token(t: int) -> None:
    prefixes = [[4, 2, 3], [1], []]
    padded_prefixes = np.array([prefix + [0] * (4 - len(prefix)) for prefix in prefixes], np.int64)
    model_logits, adjusted = logits(), logits(1)
    result = with_prefix(model_logits, adjusted, padded_prefixes, tf.constant(t)).numpy()
    for row, prefix in enumerate(prefixes):
        for token in range(V):
            if t >= len(prefix):
                expected = adjusted[row, :, token]
            else:
                expected = model_logits[row, :, token] if token == prefix[t] else np.full(K, -math.inf)
            np.testing.assert_array_equal(result[row, :, token], expected)


def completes_a_repetition(ids: list[int], token: int, size: int) -> bool:
    ngrams = {tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)}
    return len(ids) >= size - 1 and (*ids[len(ids) - size + 1 :], token) in ngrams


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None, None], tf.float32),
        tf.TensorSpec([None, None, None], tf.int64),
    ],
    autograph=False,
)
def without_repeated_pairs(logits: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns the result of `without_repeats` for n = 2, from a graph with unknown dimensions as in beam search."""
    return without_repeats(logits, ids, 2, 0.5)


def test_each_token_that_completes_a_repetition_has_one_penalty() -> None:
    random, repetitions = np.random.default_rng(1), 0
    for size in (1, 2, 3, 4):
        for t in range(10):
            for penalty in (0.5, math.inf):
                before = logits(t)
                # Only three different tokens occur, so that many n-grams occur more than once.
                ids = random.integers(2, 5, (R, K, t)).astype(np.int64)
                if size == 2 and penalty == 0.5:
                    after = without_repeated_pairs(before, ids).numpy()
                else:
                    after = without_repeats(before, ids, size, penalty).numpy()
                for row, hypothesis, token in np.ndindex(R, K, V):
                    is_repetition = completes_a_repetition(ids[row, hypothesis].tolist(), token, size)
                    repetitions += is_repetition
                    expected = before[row, hypothesis, token] - (np.float32(penalty) if is_repetition else 0)
                    assert after[row, hypothesis, token] == expected, (ids[row, hypothesis], token, size)
    assert repetitions > 500


def test_coverage_follows_its_formula_and_ignores_padding() -> None:
    random = np.random.default_rng(2)
    attention = random.uniform(0, 2, (R, K, 6)).astype("float32")
    attention[0, 1, 2] = 0.0
    is_token = np.array([[True] * 6, [True] * 2 + [False] * 4, [True] + [False] * 5])
    result = coverage(attention, is_token, 0.7).numpy()
    assert result.shape == (R, K)
    for row, hypothesis in np.ndindex(R, K):
        weights = attention[row, hypothesis, is_token[row]].tolist()
        expected = 0.7 * sum(math.log(min(max(weight, 1e-6), 1.0)) for weight in weights)
        assert result[row, hypothesis] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert result[0, 1] < 0.7 * math.log(1e-6) + 1e-5 and (result <= 0).all()
