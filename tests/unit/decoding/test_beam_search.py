"""The search against all sequences there are, for a model that is a random function of the whole prefix."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.decoding.beam_search import Hypotheses, beam_search

END, VOCAB, LIMIT, ALPHA = 1, 4, 4, 0.8
Best = list[list[tuple[tuple[int, ...], float]]]


@functools.cache
def table(seed: int, vocab: int = VOCAB, spread: float = 1.0) -> np.ndarray:
    """Log-probabilities of the next token after each prefix; a prefix's number is its digits in base `vocab`."""
    return normalised(np.random.default_rng(seed).normal(0, spread, (vocab ** (LIMIT + 2), vocab)))


def normalised(logits: np.ndarray) -> np.ndarray:
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype("float32")


def with_end(seed: int, first: float, later: float) -> np.ndarray:
    """A table with given logits of the end token, at the first position and at later ones."""
    logits = table(seed).copy()
    logits[:, END] = later
    logits[1, END] = first
    return normalised(logits)


def number(prefix: Sequence[int], vocab: int) -> int:
    return functools.reduce(lambda before, token: before * vocab + token, prefix, 1)


def log_prob(table: np.ndarray, ids: Sequence[int]) -> float:
    vocab = table.shape[1]
    return sum(float(table[number(ids[:t], vocab), token]) for t, token in enumerate(ids))


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def score(table: np.ndarray, ids: Sequence[int], alpha: float) -> float:
    return log_prob(table, ids) / penalty(len(ids), alpha)


def all_outputs(table: np.ndarray, limit: int, alpha: float) -> list[tuple[tuple[int, ...], float]]:
    """Every sequence that ends within the limit, best first."""
    others = [token for token in range(table.shape[1]) if token != END]
    outputs = [(*body, END) for length in range(limit) for body in itertools.product(others, repeat=length)]
    return sorted(((ids, score(table, ids, alpha)) for ids in outputs), key=lambda output: -output[1])


def search(
    tables: Sequence[np.ndarray],
    limits: Sequence[int],
    beam_size: int,
    alpha: float,
    num_best: int = 1,
    known_vocab: bool = True,
) -> Hypotheses:
    """Searches with a table for each row; the cache holds the numbers of the prefixes."""
    vocab = tables[0].shape[1] if tables else VOCAB

    def step(ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        prefixes = tf.where(t == 0, 1, tf.reshape(cache, tf.shape(ids)) * vocab + ids)
        logits = tf.gather(memory, prefixes, batch_dims=1)
        if known_vocab:
            logits = tf.ensure_shape(logits, [None, None, vocab])
        return logits, tf.reshape(prefixes, [-1])

    @tf.function
    def run(memory: tf.Tensor, limits: tf.Tensor) -> Hypotheses:
        cache = tf.zeros([tf.shape(limits)[0] * beam_size], tf.int32)
        return beam_search(step, cache, memory, limits, beam_size, alpha, num_best)

    memory = np.stack(tables) if tables else np.zeros((0, vocab ** (LIMIT + 2), vocab), "float32")
    return run(memory, np.array(limits, np.int32))


def outputs(found: Hypotheses, lengths: Sequence[int] | None = None) -> Best:
    """Ids up to the end token, or up to the row's limit where there is none, with their scores."""
    rows: Best = []
    for row, (hypotheses, scores) in enumerate(zip(found.ids.numpy().tolist(), found.scores.numpy(), strict=True)):
        best = []
        for ids, value in zip(hypotheses, scores, strict=True):
            stop = ids.index(END) + 1 if END in ids else (lengths[row] if lengths else len(ids))
            assert not any(ids[stop:])
            best.append((tuple(ids[:stop]), float(value)))
        rows.append(best)
    return rows


def same(ours: list[tuple[tuple[int, ...], float]], expected: list[tuple[tuple[int, ...], float]]) -> None:
    assert [ids for ids, _ in ours] == [ids for ids, _ in expected]
    assert [value for _, value in ours] == pytest.approx([value for _, value in expected], rel=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all(alpha: float) -> None:
    tables, limits = [table(seed) for seed in range(12)], [1 + seed % LIMIT for seed in range(12)]
    found = outputs(search(tables, limits, 3**LIMIT, alpha))
    for row, given, limit in zip(found, tables, limits, strict=True):
        same(row, all_outputs(given, limit, alpha)[:1])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_such_a_beam_finds_the_n_best(alpha: float) -> None:
    tables = [table(seed) for seed in range(4)]
    for row, given in zip(outputs(search(tables, [LIMIT] * 4, 3**LIMIT, alpha, num_best=20)), tables, strict=True):
        same(row, all_outputs(given, LIMIT, alpha)[:20])


@pytest.mark.parametrize("beam_size", [2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_narrow_beams_tell_the_truth(beam_size: int, alpha: float) -> None:
    tables, limits = [table(seed, spread=2.0) for seed in range(40)], [1 + seed % LIMIT for seed in range(40)]
    found = outputs(search(tables, limits, beam_size, alpha, num_best=beam_size), limits)
    optimal = 0
    for row, given, limit in zip(found, tables, limits, strict=True):
        exact = dict(all_outputs(given, limit, alpha))
        real = [(ids, value) for ids, value in row if value > -math.inf]
        ended = [(ids, value) for ids, value in real if ids[-1] == END]
        assert ended and real[: len(ended)] == ended
        for part in (ended, real[len(ended) :]):
            assert [value for _, value in part] == sorted((value for _, value in part), reverse=True)
        assert len({ids for ids, _ in real}) == len(real)
        for ids, value in real:
            assert value == pytest.approx(score(given, ids, alpha), rel=1e-4)
            assert len(ids) <= limit
        best = max(exact.values())
        assert ended[0][1] <= best + 1e-4
        optimal += ended[0][1] > best - 1e-4
    assert optimal > 30


def test_a_wider_beam_is_seldom_worse() -> None:
    tables = [table(seed, spread=2.0) for seed in range(40)]
    means = [
        np.mean(search(tables, [LIMIT] * 40, beam_size, 0.6).scores.numpy()[:, 0]) for beam_size in (2, 4, 3**LIMIT)
    ]
    assert means == sorted(means)


@pytest.mark.parametrize("limit", [1, LIMIT])
def test_greedy_takes_the_likeliest_token_each_time(limit: int) -> None:
    tables = [table(seed) for seed in range(20)]
    unfinished = 0
    for [(ids, value)], given in zip(outputs(search(tables, [limit] * 20, 1, 0.6)), tables, strict=True):
        chain: list[int] = []
        while len(chain) < limit and END not in chain:
            chain.append(int(np.argmax(given[number(chain, VOCAB)])))
        assert ids == tuple(chain)
        assert value == pytest.approx(score(given, chain, 0.6), rel=1e-4)
        unfinished += END not in chain
    assert 0 < unfinished < 20


def test_rows_do_not_see_each_other() -> None:
    tables, limits = [table(seed) for seed in range(8)], [1, 2, 3, 4, 4, 3, 2, 1]
    together = outputs(search(tables, limits, 3, 0.6, num_best=2), limits)
    for row in range(8):
        [alone] = outputs(search(tables[row : row + 1], limits[row : row + 1], 3, 0.6, num_best=2), limits[row:])
        same(alone, together[row])
    order = [5, 0, 7, 2, 2, 6, 1, 4, 3]
    shuffled = search([tables[row] for row in order], [limits[row] for row in order], 3, 0.6, num_best=2)
    for row, ours in zip(order, outputs(shuffled, [limits[row] for row in order]), strict=True):
        same(ours, together[row])


def test_no_rows() -> None:
    found = search([], [], 3, 0.6, num_best=2)
    assert found.ids.shape == (0, 2, 0)
    assert found.scores.shape == (0, 2)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_what_did_not_finish_comes_with_its_score_so_far(alpha: float) -> None:
    given = with_end(0, -math.inf, -math.inf)
    unfinished = sorted(
        ((ids, score(given, ids, alpha)) for ids in itertools.product((0, 2, 3), repeat=3)), key=lambda x: -x[1]
    )
    [found] = outputs(search([given], [3], 3**LIMIT, alpha, num_best=5), [3])
    same(found, unfinished[:5])


def test_the_finished_come_before_the_unfinished() -> None:
    given = with_end(0, -5, -math.inf)
    [found] = outputs(search([given], [3], 3**LIMIT, 0.0, num_best=3), [3])
    assert found[0] == ((END,), pytest.approx(score(given, (END,), 0.0), rel=1e-4))
    assert all(ids[-1] != END and value > found[0][1] for ids, value in found[1:])


def test_an_end_at_once() -> None:
    given = with_end(0, 20, -math.inf)
    for beam_size in (1, 3):
        found = search([given], [LIMIT], beam_size, 0.6)
        assert found.ids.numpy().tolist() == [[[END, 0, 0, 0]]]
        assert float(found.scores[0, 0]) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("known_vocab", [True, False], ids=["known", "unknown to the graph"])
@pytest.mark.parametrize("vocab", [2, 3])
def test_a_vocabulary_smaller_than_the_beam(vocab: int, known_vocab: bool) -> None:
    tables = [table(seed, vocab) for seed in range(5)]
    found = search(tables, [3] * 5, 8, 0.6, num_best=3, known_vocab=known_vocab)
    for row, given in zip(outputs(found), tables, strict=True):
        same(row, all_outputs(given, 3, 0.6)[:3])


def test_where_there_are_fewer_than_asked_for() -> None:
    [row] = outputs(search([table(0, 2)], [1], 4, 0.6, num_best=4), [1])
    assert [ids for ids, _ in row[:2]] == [(END,), (0,)]
    assert [value for _, value in row[2:]] == [-math.inf, -math.inf]


def changing_search(
    tables: Sequence[np.ndarray],
    taken: np.ndarray,
    added: np.ndarray,
    limit: int,
    beam_size: int,
    num_best: int,
    normalize: bool = True,
) -> tuple[Hypotheses, int]:
    """Searches with penalties and a bonus for each prefix, without a graph; also gives how many steps it took.

    Args:
        tables: logits.
        taken: what each token after each prefix takes off.
        added: the bonus of what ends after each prefix.
    """
    steps = 0

    def step(ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        nonlocal steps
        steps += 1
        prefixes = tf.where(t == 0, 1, tf.reshape(cache, tf.shape(ids)) * VOCAB + ids)
        return tf.gather(memory, prefixes, batch_dims=1), tf.reshape(prefixes, [-1])

    def adjust(logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        assert ids.shape == (*logits.shape[:2], int(t))
        places = VOCAB ** tf.range(t - 1, -1, -1)
        return logits - tf.gather(taken, VOCAB**t + tf.reduce_sum(ids * places, axis=2))

    def bonus(cache: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        return tf.gather(added, tf.reshape(cache, [tf.shape(memory)[0], beam_size]))

    cache, limits = tf.zeros([len(tables) * beam_size], tf.int32), tf.fill([len(tables)], limit)
    memory = np.stack(tables)
    return beam_search(step, cache, memory, limits, beam_size, ALPHA, num_best, normalize, adjust, bonus), steps


def changed_score(table: np.ndarray, taken: np.ndarray, added: np.ndarray, ids: Sequence[int]) -> float:
    return (log_prob(table, ids) - log_prob(taken, ids)) / penalty(len(ids), ALPHA) + added[number(ids[:-1], VOCAB)]


def changes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What `changing_search` takes off (of every fifth token all) and adds."""
    random = np.random.default_rng(seed)
    taken = random.exponential(0.5, (VOCAB ** (LIMIT + 2), VOCAB)).astype("float32")
    taken[random.random(taken.shape) < 0.2] = math.inf
    return taken, -random.exponential(0.7, VOCAB ** (LIMIT + 2)).astype("float32")


@pytest.mark.parametrize("normalize", [True, False])
def test_penalties_and_a_bonus_have_their_say_in_which_are_the_best(normalize: bool) -> None:
    taken, added = changes(1)
    # As logits none of these is normalised; as log-probabilities some tokens' are missing.
    offsets = [np.random.default_rng(seed).uniform(0, 1, (VOCAB ** (LIMIT + 2), 1)) for seed in range(12)]
    tables = [table(seed) - offset.astype("float32") for seed, offset in enumerate(offsets)]
    found, _ = changing_search(tables, taken, added, LIMIT, 3**LIMIT, 20, normalize)
    others = 0
    for seed, row in enumerate(outputs(found)):
        given = table(seed) if normalize else tables[seed]
        plain = all_outputs(given, LIMIT, ALPHA)
        scored = [(ids, changed_score(given, taken, added, ids)) for ids, _ in plain]
        best = sorted((each for each in scored if each[1] > -math.inf), key=lambda each: -each[1])[:20]
        same(row[: len(best)], best)
        assert all(END not in ids for ids, value in row[len(best) :] if value > -math.inf)
        others += [ids for ids, _ in best[:3]] != [ids for ids, _ in plain[:3]]
    assert others > 6


def test_stopping_early_never_loses_the_best() -> None:
    taken, added = changes(2)
    tables = [table(seed, spread=2.0) for seed in range(60)]
    for beam_size in (2, 4):
        (one, _), (most, _) = (
            changing_search(tables, taken, added, LIMIT, beam_size, count) for count in (1, beam_size)
        )
        for [alone], first in zip(outputs(one, [LIMIT] * 60), outputs(most, [LIMIT] * 60), strict=True):
            same([alone], first[:1])
    # Alone each would have been done at another time.
    counts = [changing_search([given], taken, added, LIMIT, 2, 1)[1] for given in tables[:4]]
    assert min(counts) < LIMIT and max(counts) == LIMIT


def test_the_unfinished_are_in_the_order_of_what_they_are_worth() -> None:
    taken, added = changes(3)
    given = with_end(0, -math.inf, -math.inf)
    found, _ = changing_search([given], np.where(np.isinf(taken), 0, taken), added, 3, 3**LIMIT, 5)
    scored = [
        (ids, changed_score(given, np.where(np.isinf(taken), 0, taken), added, ids))
        for ids in itertools.product((0, 2, 3), repeat=3)
    ]
    by_probability = sorted(scored, key=lambda each: -log_prob(given, each[0]))
    expected = sorted(scored, key=lambda each: -each[1])
    assert [ids for ids, _ in expected[:5]] != [ids for ids, _ in by_probability[:5]]
    [row] = outputs(found, [3])
    same(row, expected[:5])


def test_where_all_is_forbidden_there_is_nothing() -> None:
    nothing = np.full((VOCAB ** (LIMIT + 2), VOCAB), math.inf, np.float32)
    found, _ = changing_search([table(0)], nothing, np.zeros(len(nothing), np.float32), LIMIT, 3, 2)
    assert (found.scores.numpy() == -math.inf).all()
