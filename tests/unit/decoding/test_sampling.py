"""Compares the frequencies of random outputs with their probabilities.

A table replaces the model. It has a row for each token, with the logits of the token that follows.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.beam_search import Hypotheses, Scoring
from t2t_repro.decoding.sampling import draw, random_numbers, sample
from t2t_repro.hparam import DecodeHParams

END = 1
FIRST = np.array([0.0, 0.3, 0.5, 0.2])
"""Probability of each token as the first token. Token 0, padding, is impossible."""
AFTER = {2: np.array([0.0, 0.6, 0.1, 0.3]), 3: np.array([0.0, 0.25, 0.25, 0.5])}
"""For each first token that does not end the output, the probability of each token as the second
token.
"""
ALPHA = 0.6


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    """Returns logits whose softmax is `probabilities`. The added 3 makes them differ from
    log-probabilities.
    """
    return (np.log(np.maximum(probabilities, 1e-30)) + 3.0).astype("float32")


TABLE = np.stack([logits_of(FIRST), logits_of(FIRST), logits_of(AFTER[2]), logits_of(AFTER[3])])


def hparams(num_best: int = 1, alpha: float = ALPHA, **options: Any) -> DecodeHParams:
    return DecodeHParams(alpha=alpha, n=num_best, sampling_method="random", **options)


def sampled(
    random: np.ndarray,
    limits: Sequence[int] | int = 2,
    scoring: dict[str, Any] | None = None,
    **options: Any,
) -> Hypotheses:
    """Returns the outputs that `sample` draws with the random numbers `random` [lines, outputs,
    length].

    Args:
        scoring: values of fields of `Scoring`. By default, its `step` returns rows of TABLE.
        options: values of fields of decode_hparams.
    """

    def step(
        ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(TABLE, ids), cache

    batch, count, _ = random.shape
    cache = tf.zeros([batch * count])
    limits = np.full(batch, limits, np.int64)
    hooks = Scoring(**({"step": step} | (scoring or {})))
    return sample(hooks, cache, {"random": random}, limits, hparams(count, **options))


def numbers(lines: int, count: int, length: int = 2, seed: int = 5) -> np.ndarray:
    return np.stack([random_numbers(seed, line, 0, length, count) for line in range(lines)])


def with_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    powers = probabilities ** (1 / temperature)
    return powers / powers.sum()


def chi_square(counts: Counter, expected: dict[Any, float]) -> float:
    total = sum(counts.values())
    return sum(
        (counts[key] - total * share) ** 2 / (total * share) for key, share in expected.items()
    )


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_outputs_are_as_frequent_as_their_probabilities(temperature: float) -> None:
    first_shares = with_temperature(FIRST, temperature)
    expected = {(END, 0): first_shares[END]}
    for first in (2, 3):
        for second, share in enumerate(with_temperature(AFTER[first], temperature)):
            expected[first, second] = first_shares[first] * share
    expected = {ids: share for ids, share in expected.items() if share > 1e-9}
    assert sum(expected.values()) == pytest.approx(1) and len(expected) == 7
    result = sampled(numbers(1500, 2), sampling_temp=temperature)
    # Both outputs of a line start with a different token as often as if they were independent.
    first = result.ids.numpy()[:, :, 0]
    assert np.mean(first[:, 0] == first[:, 1]) == pytest.approx((first_shares**2).sum(), abs=0.05)
    counts = Counter(map(tuple, result.ids.numpy().reshape(-1, 2).tolist()))
    assert set(counts) == set(expected)
    # The limit of a chi-square test with six degrees of freedom. A correct sampler exceeds it for 1
    # seed in 10,000.
    assert chi_square(counts, expected) < 27.9


def test_unfinished_outputs_come_last_in_the_order_they_were_drawn() -> None:
    # At the first position, the random number 0.1 draws the end token, 0.5 draws token 2, and 0.9
    # draws token 3.
    pairs = [(0.5, 0.9), (0.1, 0.5), (0.9, 0.1), (0.5, 0.3), (0.9, 0.9), (0.1, 0.5)]
    result = sampled(np.array([pairs], np.float32))
    assert result.ids.numpy()[0].tolist() == [[1, 0], [3, 1], [2, 1], [1, 0], [2, 3], [3, 3]]


def test_log_probabilities_are_not_normalized_again() -> None:
    def step(
        ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # The probabilities of all tokens add up to 1/e. In an ensemble, too, they add up to less
        # than 1.
        return tf.gather(TABLE - 4.0, ids), cache

    result = sampled(
        numbers(20, 1), limits=1, scoring={"step": step, "normalize": False}, alpha=0.0
    )
    for ids, [value] in zip(result.ids.numpy()[:, 0], result.scores.numpy(), strict=True):
        assert value == pytest.approx(math.log(FIRST[ids[0]]) - 1, rel=1e-4)


GRID = ((np.arange(2000) + 0.5) / 2000).astype("float32")
SHARES = np.array([0.1, 0.4, 0.2, 0.3])
"""Probability of each token. The tokens from likeliest to unlikeliest are 1, 3, 2, 0."""


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept_tokens"),
    [
        (0, 1.0, [0, 1, 2, 3]),
        (9, 1.0, [0, 1, 2, 3]),
        (2, 1.0, [1, 3]),
        (0, 0.39, [1]),
        (0, 0.41, [1, 3]),
        (0, 0.71, [1, 2, 3]),
        (3, 0.75, [1, 3]),  # tokens 1 and 3 have 0.7 / 0.9 = 78% of the top 3's probability
        (3, 0.8, [1, 2, 3]),
    ],
)
def test_top_k_and_top_p_keep_the_likeliest_tokens_in_proportion(
    top_k: int, top_p: float, kept_tokens: list[int]
) -> None:
    # GRID has evenly spaced numbers instead of random ones, so that each token's share equals its
    # probability.
    options = hparams(sampling_keep_top_k=top_k, sampling_keep_top_p=top_p)
    tokens = draw(np.tile(logits_of(SHARES), (2000, 1))[:, None], GRID[:, None], options).numpy()
    shares = np.bincount(tokens.ravel(), minlength=4) / 2000
    expected = np.where(np.isin(range(4), kept_tokens), SHARES, 0.0)
    np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.002)
    assert set(tokens.ravel()) == set(kept_tokens)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (4, 1.0), (0, 0.999)])
def test_the_smallest_and_largest_numbers_never_draw_an_impossible_token(
    top_k: int, top_p: float
) -> None:
    logits = np.array([[[-math.inf, 0.3, 0.1, 0.2, -math.inf, -math.inf]]], np.float32)
    options = hparams(sampling_keep_top_k=top_k, sampling_keep_top_p=top_p)
    tokens = [
        int(draw(logits, np.array([[x]], np.float32), options)[0, 0])
        for x in (0.0, 1 - 2**-24, 1.0)
    ]
    assert set(tokens) <= {1, 2, 3} and tokens[0] != tokens[1] == tokens[2]


def test_random_numbers_depend_on_seed_line_and_segment_but_not_on_their_count() -> None:
    keys = list(itertools.product((0, 1, 2**40), (0, 1, 10**9), (0, 1)))
    arrays = {key: random_numbers(*key, 7, 3) for key in keys}
    assert len({array.tobytes() for array in arrays.values()}) == len(keys)
    # Almost all numbers differ, so no array is a shifted copy of another one.
    assert len(np.unique(list(arrays.values()))) > 0.99 * 21 * len(keys)
    for key, array in arrays.items():
        np.testing.assert_array_equal(random_numbers(*key, 12, 3)[:, :7], array)
        np.testing.assert_array_equal(random_numbers(*key, 1, 3), array[:, :1])
