"""Tests the recorded beam search against beam search itself, and against a search in plain Python."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from models import word_model
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.beam_search import Scoring
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.insights.search_tree import ALIVE, FINISHED, PRUNED, ROOT, SearchTree, record_search, search_tree

pytestmark = pytest.mark.usefixtures("no_graphs")
VOCAB = 7
Ids = tuple[int, ...]


class Node(NamedTuple):
    """A candidate of the search in plain Python."""

    ids: Ids
    fate: str
    log_prob: float
    score: float | None


def random_table(seed: int, end: float = 0.0, spread: float = 1.5) -> np.ndarray:
    """Returns logits [t, last token, next token] of a model. The logit of the end token is higher by `end`."""
    table = np.random.default_rng(seed).normal(0, spread, (12, VOCAB, VOCAB)).astype("float32")
    table[:, :, EOS_ID] += end
    return table


def recorded(table: np.ndarray, limit: int, decode_hparams: DecodeHParams) -> SearchTree:
    """Returns the tree of a search with a model whose logits are `table`."""

    def step(ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(table[int(t)], ids), cache

    cache, memory = tf.zeros([decode_hparams.beam_size, 0]), tf.zeros([1])
    return record_search(Scoring(step), cache, memory, tf.constant([limit]), decode_hparams)


def plain_search(table: np.ndarray, limit: int, decode_hparams: DecodeHParams) -> tuple[Any, Any, Any]:
    """Returns the result of a beam search in plain Python: the nodes of each step, the outputs with their scores, the
    best possible score of an alive hypothesis, and the nth best score of a finished one.
    """
    beam, alpha, count = decode_hparams.beam_size, decode_hparams.alpha, decode_hparams.n
    log_probs = table - np.log(np.exp(table.astype(np.float64)).sum(axis=2, keepdims=True))
    alive: list[tuple[float, Ids]] = [(0.0, ())]
    finished: list[tuple[float, Ids]] = []
    steps = []
    for t in range(limit):
        extended = [
            (log_prob + float(log_probs[t, ids[-1] if ids else 0, token]), (*ids, token))
            for log_prob, ids in alive
            for token in range(1, VOCAB)
        ]
        candidates = sorted(extended, reverse=True)[: 2 * beam if beam > 1 else 1]
        scores = {ids: log_prob / ((6 + t) / 6) ** alpha for log_prob, ids in candidates if ids[-1] == EOS_ID}
        alive = [pair for pair in candidates if pair[1] not in scores][:beam]
        finished = sorted([*finished, *((score, ids) for ids, score in scores.items())], reverse=True)[:beam]
        kept = {ids: ALIVE for _, ids in alive} | {ids: FINISHED for _, ids in finished}
        steps.append([Node(ids, kept.get(ids, PRUNED), log_prob, scores.get(ids)) for log_prob, ids in candidates])
        best_possible = alive[0][0] / ((5 + limit) / 6) ** alpha if alive else -math.inf
        worst_of_best = finished[count - 1][0] if len(finished) >= count else -math.inf
        if not alive or worst_of_best > best_possible:
            break
    unfinished = [(log_prob / ((6 + t) / 6) ** alpha, ids) for log_prob, ids in alive]
    outputs = [(ids, score) for score, ids in [*finished, *unfinished][:count]]
    return steps, outputs, (best_possible, worst_of_best)


def as_nodes(tree: SearchTree) -> list[list[Node]]:
    """Returns the candidates of a tree with the ids of their hypotheses, found by walking up to the root."""
    ids: dict[int, Ids] = {ROOT: ()}
    steps = []
    for step in tree.steps:
        ids |= {candidate.node: (*ids[candidate.parent], candidate.token) for candidate in step}
        steps.append([Node(ids[node.node], node.fate, node.log_prob, node.score) for node in step])
    return steps


@pytest.mark.parametrize(
    ("beam_size", "alpha", "num_best", "end", "reasons"),
    [
        (1, 0.6, 1, 0.0, {True, False}),
        (2, 0.0, 1, 1.0, {True, False}),
        (3, 0.6, 2, -3.0, {False}),
        (4, 1.0, 4, 2.0, {True, False}),
        (5, 3.0, 1, 0.0, {True, False}),
    ],
)
def test_the_tree_is_that_of_a_search_in_plain_python(
    beam_size: int, alpha: float, num_best: int, end: float, reasons: set[bool]
) -> None:
    decode_hparams = DecodeHParams(beam_size, alpha, n=num_best)
    ends = set()
    for seed in (3, 5, 9):
        table, limit = random_table(seed, end), 1 + seed
        tree, (plain_steps, outputs, bounds) = (run(table, limit, decode_hparams) for run in (recorded, plain_search))
        steps = as_nodes(tree)
        assert [[node[:2] for node in step] for step in steps] == [[node[:2] for node in step] for step in plain_steps]
        for step, plain_step in zip(steps, plain_steps, strict=True):
            assert [node.log_prob for node in step] == pytest.approx([node.log_prob for node in plain_step], rel=1e-4)
            scores = {node.ids: node.score for node in step if node.ids[-1] == EOS_ID}
            assert scores == pytest.approx({node.ids: node.score for node in plain_step if node.score}, rel=1e-4)
        paths = tree.paths()
        assert [tuple(node.token for node in path) for path in paths] == [ids for ids, _ in outputs]
        assert [path[-1].score for path in paths] == pytest.approx([score for _, score in outputs], rel=1e-4)
        for path in paths:
            assert sum(node.token_log_prob for node in path) == pytest.approx(path[-1].log_prob, rel=1e-4)
        assert (tree.best_possible, tree.worst_of_best) == pytest.approx(bounds, rel=1e-4)
        assert tree.limit == limit and (tree.is_certain or len(tree.steps) == limit)
        ends.add(tree.is_certain)
    assert ends == reasons


def test_a_search_without_alive_hypotheses_ends() -> None:
    table = np.full((9, VOCAB, VOCAB), -math.inf, "float32")
    table[0, 0, 3:5] = 0.0  # two first tokens are possible, and then only the end token
    table[1:, :, EOS_ID] = 0.0
    tree = recorded(table, 9, DecodeHParams(beam_size=3, n=3))
    assert [[node.token for node in step] for step in tree.steps] == [[3, 4], [EOS_ID, EOS_ID]]
    assert [node.node for step in tree.steps for node in step] == [1, 2, 3, 4]
    assert len(tree.outputs) == 2
    assert tree.is_certain and (tree.best_possible, tree.worst_of_best) == (-math.inf, -math.inf)


def test_nan_is_refused() -> None:
    table = random_table(0)
    table[1] = math.nan
    with pytest.raises(UserError, match="not numbers"):
        recorded(table, 9, DecodeHParams())


def test_translations_are_those_of_the_translator(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> None:
    model = word_model(1, tiny_hparams, tiny_vocabulary)
    translator = Translator(model, tiny_vocabulary, DecodeHParams(extra_length=2), max_length=50)
    options: dict[str, Any] = {"beam_size": 4, "n": 2, "alpha": 0.0, "coverage_penalty": 0.3}
    texts = ["dog", "a dog on the cat"]
    for text, expected in zip(texts, translator.translate(texts, details=True, **options), strict=True):
        translation, tree = search_tree(translator, text, **options)
        assert translation.source_ids == expected.source_ids and tree.limit == len(expected.source_ids) + 2
        assert len(tree.outputs) == len(translation.hypotheses)
        for ours, theirs in zip(translation.hypotheses, expected.hypotheses, strict=True):
            assert (ours.text, ours.ids) == (theirs.text, theirs.ids)
            assert (ours.score, *ours.token_scores) == pytest.approx((theirs.score, *theirs.token_scores), abs=1e-5)
    for source, message in (("", "is empty"), ("dog " * 60, "61 tokens, but this model at most 50; shorten it")):
        with pytest.raises(UserError, match=message):
            search_tree(translator, source)
    with pytest.raises(UserError, match="without a search tree"):
        search_tree(translator, "dog", sampling_method="random")
