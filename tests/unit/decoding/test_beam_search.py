"""Compares beam search with a search through all sequences.

A table replaces the model. It has a row for each prefix, with the log-probabilities of the next token.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.beam_search import Hypotheses, Scoring, beam_search
from t2t_repro.hparam import DecodeHParams

END, VOCAB, LIMIT, ALPHA = 1, 4, 4, 0.8
EVERYTHING = 3**LIMIT
"""A beam size that is large enough to keep every sequence."""
Output = tuple[tuple[int, ...], float]
"""An output's ids and score. The ids end with the end token, or at the length limit if there is no end token."""


@functools.cache
def table(seed: int, vocab: int = VOCAB, spread: float = 1.0) -> np.ndarray:
    """Returns random log-probabilities of the next token, one row per prefix. `number` returns the row of a prefix."""
    return normalized(np.random.default_rng(seed).normal(0, spread, (vocab ** (LIMIT + 2), vocab)))


def normalized(logits: np.ndarray) -> np.ndarray:
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype("float32")


def table_with_end(first_logit: float, later_logit: float) -> np.ndarray:
    """Returns a table in which the end token has `first_logit` as first token, and `later_logit` as any later token."""
    logits = table(0).copy()
    logits[:, END] = later_logit
    logits[1, END] = first_logit
    return normalized(logits)


def number(prefix: Sequence[int], vocab: int) -> int:
    return functools.reduce(lambda before, token: before * vocab + token, prefix, 1)


def log_prob(table: np.ndarray, ids: Sequence[int]) -> float:
    vocab = table.shape[1]
    return sum(float(table[number(ids[:t], vocab), token]) for t, token in enumerate(ids))


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def score(table: np.ndarray, ids: Sequence[int], alpha: float) -> float:
    return log_prob(table, ids) / penalty(len(ids), alpha)


def ranked(outputs: dict[tuple[int, ...], float]) -> list[Output]:
    return sorted(outputs.items(), key=lambda output: -output[1])


def all_outputs(table: np.ndarray, limit: int, alpha: float) -> list[Output]:
    """Returns every sequence that ends within the limit, with its score, best first."""
    others = [token for token in range(table.shape[1]) if token != END]
    outputs = [(*body, END) for length in range(limit) for body in itertools.product(others, repeat=length)]
    return ranked({ids: score(table, ids, alpha) for ids in outputs})


class Hooks:
    """Penalties and bonuses of a search, and the number of steps that the search has taken, in `steps`.

    Attributes:
        penalties: for each prefix and next token, the number that is subtracted from the token's logit.
        bonuses: for each prefix, the number that is added to the score of outputs with this prefix and one more token.
    """

    def __init__(self, seed: int) -> None:
        """Makes random penalties and random negative bonuses. A fifth of the penalties is infinite."""
        random = np.random.default_rng(seed)
        self.penalties = random.exponential(0.5, (VOCAB ** (LIMIT + 2), VOCAB)).astype("float32")
        self.penalties[random.random(self.penalties.shape) < 0.2] = math.inf
        self.bonuses = -random.exponential(0.7, VOCAB ** (LIMIT + 2)).astype("float32")
        self.steps = 0

    def score(self, table: np.ndarray, ids: Sequence[int]) -> float:
        adjusted = log_prob(table, ids) - log_prob(self.penalties, ids)
        return adjusted / penalty(len(ids), ALPHA) + self.bonuses[number(ids[:-1], VOCAB)]

    def adjust(self, logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        assert ids.shape == (*logits.shape[:2], int(t))
        powers = tf.cast(VOCAB ** tf.range(t - 1, -1, -1), tf.int64)
        return logits - tf.gather(self.penalties, tf.cast(VOCAB**t, tf.int64) + tf.reduce_sum(ids * powers, axis=2))

    def bonus(self, cache: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        self.steps += 1
        return tf.gather(self.bonuses, tf.reshape(cache, [tf.shape(memory)[0], -1]))


def search(
    tables: Sequence[np.ndarray], limits: Sequence[int], beam_size: int, alpha: float, num_best: int = 1, **options: Any
) -> Hypotheses:
    """Returns the hypotheses that beam search finds, for one sentence per table; `options` are fields of `Scoring`.

    The search's cache holds, for each hypothesis, the number of the table row for the hypothesis's prefix.
    """
    vocab = tables[0].shape[1] if tables else VOCAB
    memory = np.stack(tables) if tables else np.zeros((0, vocab ** (LIMIT + 2), vocab), "float32")

    def step(ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        prefixes = tf.where(t == 0, tf.constant(1, tf.int64), tf.reshape(cache, tf.shape(ids)) * vocab + ids)
        return tf.gather(memory, prefixes, batch_dims=1), tf.reshape(prefixes, [-1])

    cache = tf.zeros([len(limits) * beam_size], tf.int64)
    decode_hparams = DecodeHParams(beam_size, alpha, n=num_best)
    return beam_search(Scoring(step, **options), cache, memory, np.array(limits, np.int64), decode_hparams)


def outputs(result: Hypotheses, limits: Sequence[int] | None = None) -> list[list[Output]]:
    """Returns the outputs of each sentence. Asserts that only padding follows the end of an output."""
    sentences: list[list[Output]] = []
    for row, (hypotheses, scores) in enumerate(zip(result.ids.numpy().tolist(), result.scores.numpy(), strict=True)):
        best = []
        for ids, value in zip(hypotheses, scores, strict=True):
            stop = ids.index(END) + 1 if END in ids else (limits[row] if limits else len(ids))
            assert not any(ids[stop:])
            best.append((tuple(ids[:stop]), float(value)))
        sentences.append(best)
    return sentences


def assert_same(ours: list[Output], expected: list[Output]) -> None:
    assert [ids for ids, _ in ours] == [ids for ids, _ in expected]
    assert [value for _, value in ours] == pytest.approx([value for _, value in expected], rel=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
def test_a_beam_that_holds_all_sequences_finds_the_n_best(alpha: float) -> None:
    tables, limits = [table(seed) for seed in range(8)], [1 + seed % LIMIT for seed in range(8)]
    result = outputs(search(tables, limits, EVERYTHING, alpha, num_best=20), limits)
    for sentence, sentence_table, limit in zip(result, tables, limits, strict=True):
        expected = all_outputs(sentence_table, limit, alpha)[:20]
        assert_same(sentence[: len(expected)], expected)
        assert all(END not in ids for ids, value in sentence[len(expected) :] if value > -math.inf)


@pytest.mark.parametrize("limit", [1, LIMIT])
def test_greedy_search_takes_the_likeliest_token_at_each_position(limit: int) -> None:
    tables = [table(seed) for seed in range(20)]
    unfinished = 0
    for [(ids, value)], sentence_table in zip(outputs(search(tables, [limit] * 20, 1, 0.6)), tables, strict=True):
        chain: list[int] = []
        while len(chain) < limit and END not in chain:
            chain.append(int(np.argmax(sentence_table[number(chain, VOCAB)])))
        assert ids == tuple(chain)
        assert value == pytest.approx(score(sentence_table, chain, 0.6), rel=1e-4)
        unfinished += END not in chain
    assert 0 < unfinished < 20


def test_finished_outputs_come_before_unfinished_ones() -> None:
    one_finished = table_with_end(-5, -math.inf)
    [sentence] = outputs(search([one_finished], [3], EVERYTHING, 0.0, num_best=3), [3])
    assert sentence[0] == ((END,), pytest.approx(score(one_finished, (END,), 0.0), rel=1e-4))
    assert all(ids[-1] != END and value > sentence[0][1] for ids, value in sentence[1:])


@pytest.mark.parametrize("vocab", [2, 3])
def test_the_vocabulary_can_be_smaller_than_the_beam(vocab: int) -> None:
    tables = [table(seed, vocab) for seed in range(5)]
    for sentence, sentence_table in zip(outputs(search(tables, [3] * 5, 8, 0.6, 3)), tables, strict=True):
        assert_same(sentence, all_outputs(sentence_table, 3, 0.6)[:3])
    [sentence] = outputs(search([table(0, 2)], [1], 4, 0.6, num_best=4), [1])
    assert [value for _, value in sentence[2:]] == [-math.inf, -math.inf]
    result = search([], [], 3, 0.6, num_best=2)
    assert (result.ids.shape, result.scores.shape) == ((0, 2, 0), (0, 2))


@pytest.mark.parametrize("normalize", [True, False])
def test_penalties_and_a_bonus_change_which_outputs_are_best(normalize: bool) -> None:
    hooks = Hooks(1)
    # The offsets make the tables unnormalized: the probabilities in each row have a sum below 1.
    offsets = [np.random.default_rng(seed).uniform(0, 1, (VOCAB ** (LIMIT + 2), 1)) for seed in range(12)]
    tables = [table(seed) - offset.astype("float32") for seed, offset in enumerate(offsets)]
    changed = 0
    options = {"normalize": normalize, "adjust": hooks.adjust, "bonus": hooks.bonus}
    for seed, sentence in enumerate(outputs(search(tables, [LIMIT] * 12, EVERYTHING, ALPHA, 20, **options))):
        log_probs = table(seed) if normalize else tables[seed]
        without_hooks = all_outputs(log_probs, LIMIT, ALPHA)
        scores = {ids: hooks.score(log_probs, ids) for ids, _ in without_hooks}
        best = ranked({ids: value for ids, value in scores.items() if value > -math.inf})[:20]
        assert_same(sentence[: len(best)], best)
        assert all(END not in ids for ids, value in sentence[len(best) :] if value > -math.inf)
        changed += [ids for ids, _ in best[:3]] != [ids for ids, _ in without_hooks[:3]]
    assert changed > 6


@pytest.mark.parametrize("forbidden", [0, 3])
@pytest.mark.parametrize("beam_size", [1, 3, EVERYTHING])
def test_a_forbidden_token_is_never_chosen_but_keeps_its_probability(forbidden: int, beam_size: int) -> None:
    """A search with `forbidden` equals a search whose function `adjust` gives the token the logit -inf."""
    tables, limits = [table(seed, spread=2.0) for seed in range(12)], [LIMIT] * 12

    def adjust(logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        return logits + tf.one_hot(forbidden, VOCAB, -math.inf, 0.0)

    with_forbidden = outputs(search(tables, limits, beam_size, ALPHA, forbidden=forbidden), limits)
    with_adjust = outputs(search(tables, limits, beam_size, ALPHA, adjust=adjust), limits)
    for ours, expected, sentence_table in zip(with_forbidden, with_adjust, tables, strict=True):
        assert_same(ours, expected)
        assert all(forbidden not in ids for ids, _ in ours)
        assert_same(ours, [(ids, score(sentence_table, ids, ALPHA)) for ids, _ in ours])


def test_stopping_early_never_loses_the_best_output() -> None:
    hooks = Hooks(2)
    options = {"adjust": hooks.adjust, "bonus": hooks.bonus}
    tables, limits = [table(seed, spread=2.0) for seed in range(60)], [LIMIT] * 60
    for beam_size in (2, 4):
        best, all_best = (
            outputs(search(tables, limits, beam_size, ALPHA, num_best, **options), limits)
            for num_best in (1, beam_size)
        )
        for sentence, all_outputs_of_sentence in zip(best, all_best, strict=True):
            assert_same(sentence, all_outputs_of_sentence[:1])
    # Of the searches for a single sentence, some stop before the limit and some at the limit. Each position, and each
    # sentence's end, calls `bonus`.
    counts = []
    for sentence_table in tables[:4]:
        hooks.steps = 0
        search([sentence_table], [LIMIT], 2, ALPHA, **options)
        counts.append(hooks.steps - 1)
    assert min(counts) < LIMIT and max(counts) == LIMIT


def test_unfinished_outputs_are_ranked_with_their_bonus() -> None:
    hooks = Hooks(3)
    hooks.penalties = np.where(np.isinf(hooks.penalties), 0, hooks.penalties)
    endless = table_with_end(-math.inf, -math.inf)
    unfinished = list(itertools.product((0, 2, 3), repeat=3))
    expected = ranked({ids: hooks.score(endless, ids) for ids in unfinished})[:5]
    by_probability = ranked({ids: log_prob(endless, ids) for ids in unfinished})[:5]
    assert [ids for ids, _ in expected] != [ids for ids, _ in by_probability]
    [sentence] = outputs(search([endless], [3], EVERYTHING, ALPHA, 5, adjust=hooks.adjust, bonus=hooks.bonus), [3])
    assert_same(sentence, expected)


def test_if_every_token_is_forbidden_there_are_no_outputs() -> None:
    hooks = Hooks(4)
    hooks.penalties[:] = math.inf
    assert (search([table(0)], [LIMIT], 3, ALPHA, 2, adjust=hooks.adjust).scores.numpy() == -math.inf).all()
