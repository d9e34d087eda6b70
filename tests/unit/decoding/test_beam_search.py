"""Compares beam search with a search in plain Python, also with a beam that holds all sequences.

A table replaces the model. It has a row for each prefix, with the log-probabilities of the next
token.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.beam_search import Hypotheses, Scoring, beam_search
from t2t_repro.hparam import DecodeHParams

END = 1
VOCAB = 5
LIMIT = 4
PREFIXES = VOCAB ** (LIMIT + 2)
"""More than the largest `number` of a prefix."""
EVERYTHING = 3**LIMIT
"""A beam size that is large enough to keep every sequence."""
Output = tuple[tuple[int, ...], float]
"""An output's ids and score. The ids end with the end token, or at the length limit if there is no
end token.
"""


@functools.cache
def table(seed: int) -> np.ndarray:
    """Returns random log-probabilities of the next token, one row per prefix. `number` returns the
    row of a prefix.
    """
    logits = np.random.default_rng(seed).normal(0, 2, (PREFIXES, VOCAB))
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), "float32")


def number(prefix: Sequence[int]) -> int:
    return functools.reduce(lambda before, token: before * VOCAB + token, prefix, 1)


class Hooks:
    """Random penalties and bonuses of a search; without a seed, all are 0."""

    def __init__(self, seed: int | None = None) -> None:
        self.penalties = np.zeros((PREFIXES, VOCAB))
        """For each prefix and next token, the number that is subtracted from the token's logit. A
        fifth of the numbers is infinite.
        """
        self.bonuses = np.zeros(PREFIXES)
        """For each prefix, the number that is added to the score of outputs with this prefix and
        one more token.
        """
        self.steps = 0
        """Number of calls of `bonus`: one in each step of the search, and one more if sentences end
        there.
        """
        if seed is not None:
            random = np.random.default_rng(seed)
            self.penalties = random.exponential(0.5, self.penalties.shape)
            self.penalties[random.random(self.penalties.shape) < 0.2] = math.inf
            self.bonuses = -random.exponential(0.7, PREFIXES)

    def adjust(
        self, logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: tf.Tensor
    ) -> tf.Tensor:
        assert ids.shape == (*logits.shape[:2], int(t))
        powers = tf.cast(VOCAB ** tf.range(t - 1, -1, -1), tf.int64)
        rows = tf.cast(VOCAB**t, tf.int64) + tf.reduce_sum(ids * powers, axis=2)
        return logits - tf.gather(self.penalties.astype("float32"), rows)

    def bonus(self, cache: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        self.steps += 1
        rows = tf.reshape(cache, [tf.shape(memory)[0], -1])
        return tf.gather(self.bonuses.astype("float32"), rows)


def plain_search(
    table: np.ndarray, limit: int, params: DecodeHParams, hooks: Hooks | None = None
) -> list[Output]:
    """Returns the n best outputs, best first, of a search that never stops before the limit."""
    hooks = hooks or Hooks()
    beam_size = params.beam_size

    def output(log_prob: float, ids: tuple[int, ...]) -> Output:
        bonus = hooks.bonuses[number(ids[:-1])]
        return ids, log_prob / ((5 + len(ids)) / 6) ** params.alpha + bonus

    alive: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Output] = []
    for _ in range(limit):
        extended = []
        for log_prob, ids in alive:
            logits = log_prob + table[number(ids)] - hooks.penalties[number(ids)]
            extended += [(logits[token], (*ids, token)) for token in range(1, VOCAB)]
        possible = [candidate for candidate in extended if candidate[0] > -math.inf]
        candidates = sorted(possible, reverse=True)[: 2 * beam_size if beam_size > 1 else 1]
        alive = [candidate for candidate in candidates if candidate[1][-1] != END][:beam_size]
        finished += [output(*candidate) for candidate in candidates if candidate[1][-1] == END]
        finished = sorted(finished, key=lambda output: -output[1])[:beam_size]
    unfinished = sorted((output(*candidate) for candidate in alive), key=lambda output: -output[1])
    return [*finished, *unfinished][: params.n]


def search(
    tables: Sequence[np.ndarray], limits: Sequence[int], params: DecodeHParams, **options: Any
) -> Hypotheses:
    """Returns the hypotheses that beam search finds, for one sentence per table; `options` are
    fields of `Scoring`.

    The search's cache holds, for each hypothesis, the number of the table row for the hypothesis's
    prefix.
    """
    memory = np.stack(tables) if tables else np.zeros((0, PREFIXES, VOCAB), "float32")

    def step(
        ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        longer = tf.reshape(cache, tf.shape(ids)) * VOCAB + ids
        prefixes = tf.where(t == 0, tf.constant(1, tf.int64), longer)
        return tf.gather(memory, prefixes, batch_dims=1), tf.reshape(prefixes, [-1])

    cache = tf.zeros([len(limits) * params.beam_size], tf.int64)
    return beam_search(Scoring(step, **options), cache, memory, np.array(limits, np.int64), params)


def outputs(result: Hypotheses, limits: Sequence[int]) -> list[list[Output]]:
    """Returns the outputs of each sentence that exist. Asserts that only padding follows the end of
    an output.
    """
    sentences: list[list[Output]] = []
    for hypotheses, scores, limit in zip(
        result.ids.numpy().tolist(), result.scores.numpy(), limits, strict=True
    ):
        best = []
        for ids, value in zip(hypotheses, scores, strict=True):
            stop = ids.index(END) + 1 if END in ids else limit
            assert not any(ids[stop:]) or value == -math.inf
            best += [(tuple(ids[:stop]), float(value))] * bool(value > -math.inf)
        sentences.append(best)
    return sentences


def assert_same(ours: list[Output], expected: list[Output]) -> None:
    assert [ids for ids, _ in ours] == [ids for ids, _ in expected]
    assert [value for _, value in ours] == pytest.approx([value for _, value in expected], rel=1e-4)


@pytest.mark.parametrize(
    ("params", "options"),
    [
        (DecodeHParams(1), {}),
        (DecodeHParams(4, 10.0, n=1), {"normalize": True}),
        (DecodeHParams(3, 1.0, n=3), {"hooks": Hooks(1)}),
        (DecodeHParams(3, 0.0, n=3), {"hooks": Hooks(2), "normalize": True}),
        (DecodeHParams(EVERYTHING, n=EVERYTHING), {"hooks": Hooks(3)}),
    ],
    ids=["greedy", "long", "penalties", "normalized", "everything"],
)
def test_outputs_are_those_of_a_search_in_plain_python(
    params: DecodeHParams, options: dict[str, Any]
) -> None:
    """The search also ends at the right time, because the plain search never stops before the
    limit.
    """
    hooks = options.get("hooks")
    normalize = options.get("normalize", False)
    tables = [table(seed) for seed in range(30)]
    limits = [LIMIT - seed % 5 % LIMIT for seed in range(30)]
    functions = {"adjust": hooks.adjust, "bonus": hooks.bonus} if hooks else {}
    # The offsets make the tables unnormalized.
    offset = np.random.default_rng(0).uniform(0, 1, (PREFIXES, 1)).astype("float32")
    inputs = [table - offset for table in tables]
    result = search(inputs, limits, params, normalize=normalize, **functions)
    log_probs = tables if normalize else inputs
    expected = [plain_search(*pair, params, hooks) for pair in zip(log_probs, limits, strict=True)]
    for sentence, best in zip(outputs(result, limits), expected, strict=True):
        assert_same(sentence, best)
    assert params.n < 3 or {END in ids for best in expected for ids, _ in best} == {True, False}


def test_a_search_stops_as_soon_as_its_best_output_is_certain() -> None:
    counts = []
    for seed in range(4):
        hooks = Hooks(2)
        functions = {"adjust": hooks.adjust, "bonus": hooks.bonus}
        search([table(seed)], [LIMIT], DecodeHParams(2, 0.8), **functions)
        counts.append(hooks.steps - 1)
    assert min(counts) < LIMIT and max(counts) == LIMIT


def test_there_may_be_no_sentences_and_no_outputs() -> None:
    result = search([], [], DecodeHParams(3, n=2))
    assert (result.ids.shape, result.scores.shape) == ((0, 2, 0), (0, 2))
    hooks = Hooks(4)
    hooks.penalties[:] = math.inf
    result = search([table(0)], [LIMIT], DecodeHParams(3, n=2), adjust=hooks.adjust)
    assert (result.scores.numpy() == -math.inf).all()
