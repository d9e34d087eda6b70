"""Draws against the probabilities they are drawn by, which a table gives exactly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.beam_search import Hypotheses
from t2t_repro.decoding.sampling import draw, random_numbers, sample

END, VOCAB = 1, 4
FIRST = np.array([0.0, 0.3, 0.5, 0.2])
"""Probabilities of the first token; the padding token has none."""
AFTER = {2: np.array([0.0, 0.6, 0.1, 0.3]), 3: np.array([0.0, 0.25, 0.25, 0.5])}
"""Of the second token after either."""
ALPHA = 0.6


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    """With an offset, for logits are not normalised."""
    return (np.log(np.maximum(probabilities, 1e-30)) + 3.0).astype("float32")


TABLE = np.stack([logits_of(FIRST), logits_of(FIRST), logits_of(AFTER[2]), logits_of(AFTER[3])])


def drawn(random: np.ndarray, limits: Sequence[int] | int = 2, **options: Any) -> Hypotheses:
    """Draws of a model whose next token depends on the latest; `random` is [B, K, L]."""

    def step(ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(TABLE, ids), cache

    rows, count, _ = random.shape
    cache, given = tf.zeros([rows * count]), np.broadcast_to(np.array(limits, np.int32), [rows])
    return sample(step, cache, {"random": random}, given, count, ALPHA, **options)


def numbers(rows: int, count: int, length: int = 2, seed: int = 5) -> np.ndarray:
    return np.stack([random_numbers(seed, line, 0, length, count) for line in range(rows)])


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    powers = probabilities ** (1 / temperature)
    return powers / powers.sum()


def chi_square(counts: Counter, expected: dict[Any, float]) -> float:
    total = sum(counts.values())
    return sum((counts[key] - total * share) ** 2 / (total * share) for key, share in expected.items())


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_outputs_are_as_frequent_as_they_are_likely(temperature: float) -> None:
    first = tempered(FIRST, temperature)
    expected = {(END, 0): first[END]}
    for one in (2, 3):
        for two, share in enumerate(tempered(AFTER[one], temperature)):
            expected[one, two] = first[one] * share
    expected = {ids: share for ids, share in expected.items() if share > 1e-9}
    assert sum(expected.values()) == pytest.approx(1) and len(expected) == 7
    found = drawn(numbers(1500, 2), temperature=temperature)
    counts = Counter(map(tuple, found.ids.numpy().reshape(-1, 2).tolist()))
    assert set(counts) == set(expected)
    # Of six degrees of freedom no more than this, but for one seed in ten thousand.
    assert chi_square(counts, expected) < 27.9


def test_the_draws_of_a_line_are_independent() -> None:
    found = drawn(numbers(1500, 2), limits=1).ids.numpy()[:, :, 0]
    # Finished ones come first, which the pairs of others do not show.
    counts = Counter(tuple(sorted(pair)) for pair in found.tolist())
    expected = {(one, other): FIRST[one] * FIRST[other] * (1 + (one != other))
                for one in (1, 2, 3) for other in range(one, 4)}  # fmt: skip
    assert sum(expected.values()) == pytest.approx(1)
    assert chi_square(counts, expected) < 25.7  # five degrees of freedom


@pytest.mark.parametrize("options", [{}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.6}])
def test_scores_are_the_models_own_whatever_the_draws_were(options: dict[str, Any]) -> None:
    found = drawn(numbers(30, 3), **options)
    lengths = set()
    for ids, value in zip(found.ids.numpy().reshape(-1, 2).tolist(), found.scores.numpy().ravel(), strict=True):
        length = 1 if ids[0] == END else 2
        log_prob = math.log(FIRST[ids[0]]) + (0 if length == 1 else math.log(AFTER[ids[0]][ids[1]]))
        assert value == pytest.approx(log_prob / ((5 + length) / 6) ** ALPHA, rel=1e-4)
        lengths.add(length)
    assert lengths == {1, 2} or options.get("top_p") == 0.6


def test_those_without_an_end_come_last_each_in_the_order_they_were_drawn() -> None:
    # As a first token 0.1 is an end, 0.5 token 2 and 0.9 token 3.
    first, second = [0.5, 0.1, 0.9, 0.5, 0.9, 0.1], [0.9, 0.5, 0.1, 0.3, 0.9, 0.5]
    found = drawn(np.array([list(zip(first, second, strict=True))], np.float32))
    assert found.ids.numpy()[0].tolist() == [[1, 0], [3, 1], [2, 1], [1, 0], [2, 3], [3, 3]]


def test_log_probabilities_are_taken_as_they_are() -> None:
    def step(ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(TABLE - 4.0, ids), cache  # as the mean of several: it sums to less than 1

    given = {"random": numbers(20, 1)}
    found = sample(step, tf.zeros([20]), given, np.full(20, 1, np.int32), 1, 0.0, normalize=False)
    for ids, [value] in zip(found.ids.numpy()[:, 0], found.scores.numpy(), strict=True):
        assert value == pytest.approx(math.log(FIRST[ids[0]]) - 1, rel=1e-4)


def test_what_is_taken_off_is_not_drawn_and_not_normalised() -> None:
    def adjust(logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: Any) -> tf.Tensor:
        taken = np.where(np.arange(VOCAB) == 2, math.inf, np.where(np.arange(VOCAB) == 3, 1.0, 0.0))
        return logits - tf.where(tf.shape(ids)[2] == 0, taken.astype("float32"), 0.0)

    found = drawn(numbers(700, 1), limits=1, adjust=adjust)
    ids = found.ids.numpy().ravel()
    share = 0.2 / math.e / (0.3 + 0.2 / math.e)
    assert chi_square(Counter(ids.tolist()), {END: 1 - share, 3: share}) < 15.1 and set(ids) == {END, 3}
    values = {int(i): value for i, value in zip(ids, found.scores.numpy().ravel(), strict=True)}
    assert values == pytest.approx({END: math.log(0.3), 3: math.log(0.2) - 1}, rel=1e-4)


def test_a_row_is_drawn_alike_whatever_is_drawn_beside_it() -> None:
    random = numbers(9, 3, 4)
    limits = [1, 4, 2, 3, 4, 1, 2, 4, 3]
    together = drawn(random, limits)
    for rows in ([4], [7, 1], [8, 0, 3, 3]):
        found = drawn(random[rows], [limits[row] for row in rows])
        length = found.ids.shape[2]
        np.testing.assert_array_equal(found.ids, together.ids.numpy()[rows, :, :length])
        assert not together.ids.numpy()[rows, :, length:].any()
        np.testing.assert_array_equal(found.scores, together.scores.numpy()[rows])


GRID = ((np.arange(2000) + 0.5) / 2000).astype("float32")
SHARES = np.array([0.1, 0.4, 0.2, 0.3])
"""Likeliest first: 1, 3, 2, 0."""


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (0, 1.0, [0, 1, 2, 3]),
        (4, 1.0, [0, 1, 2, 3]),
        (9, 1.0, [0, 1, 2, 3]),
        (1, 1.0, [1]),
        (2, 1.0, [1, 3]),
        (3, 1.0, [1, 2, 3]),
        (0, 0.01, [1]),
        (0, 0.39, [1]),
        (0, 0.41, [1, 3]),
        (0, 0.69, [1, 3]),
        (0, 0.71, [1, 2, 3]),
        (0, 0.91, [0, 1, 2, 3]),
        (3, 0.75, [1, 3]),  # of the three likeliest, 1 and 3 have seven ninths
        (3, 0.8, [1, 2, 3]),
        (1, 0.99, [1]),
    ],
)
def test_cuts_leave_exactly_the_likeliest_in_their_proportions(top_k: int, top_p: float, kept: list[int]) -> None:
    # All random numbers in even steps draw each token as often as its probability says.
    found = draw(np.tile(logits_of(SHARES), (2000, 1))[:, None], GRID[:, None], top_k, top_p).numpy()
    shares = np.bincount(found.ravel(), minlength=4) / 2000
    expected = np.where(np.isin(range(4), kept), SHARES, 0.0)
    np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.002)
    assert set(found.ravel()) == set(kept)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (4, 1.0), (0, 0.999)])
def test_the_least_and_the_greatest_number_draw_no_token_that_cannot_be(top_k: int, top_p: float) -> None:
    logits = np.array([[[-math.inf, 0.3, 0.1, 0.2, -math.inf, -math.inf]]], np.float32)
    found = [int(draw(logits, np.array([[at]], np.float32), top_k, top_p)[0, 0]) for at in (0.0, 1 - 2**-24, 1.0)]
    assert set(found) <= {1, 2, 3} and found[0] != found[1] == found[2]


def test_random_numbers_are_as_many_and_as_even_as_they_should_be() -> None:
    found = random_numbers(1, 2, 0, 1000, 20)
    assert found.shape == (20, 1000) and found.dtype == np.float32
    assert found.min() >= 0 and found.max() < 1
    counts = np.bincount((found.ravel() * 10).astype(int), minlength=10)
    assert ((counts - 2000) ** 2 / 2000).sum() < 33.7  # nine degrees of freedom
    assert abs(np.corrcoef(found[:, :-1].ravel(), found[:, 1:].ravel())[0, 1]) < 0.03
    assert len(np.unique(found, axis=0)) == 20


def test_seed_line_and_piece_decide_them_and_longer_ones_begin_alike() -> None:
    keys = [(seed, line, piece) for seed in (0, 1, 2**40) for line in (0, 1, 10**9) for piece in (0, 1)]
    found = {key: random_numbers(*key, 7, 3) for key in keys}
    assert len({array.tobytes() for array in found.values()}) == len(keys)
    # No two are one stream at different places.
    assert len({value for array in found.values() for value in array.ravel().tolist()}) > 0.99 * 21 * len(keys)
    for key, array in found.items():
        np.testing.assert_array_equal(random_numbers(*key, 12, 3)[:, :7], array)
        np.testing.assert_array_equal(random_numbers(*key, 1, 3), array[:, :1])
