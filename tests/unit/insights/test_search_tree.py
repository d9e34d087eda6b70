"""Tests the recorded beam search against beam search itself, which tests/unit/decoding compares
with plain Python.
"""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import word_model
from numpy_math import log_softmax
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import unpadded
from t2t_repro.decoding.beam_search import Scoring, beam_search
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.insights.search_tree import (
    ALIVE,
    FINISHED,
    PRUNED,
    ROOT,
    SearchTree,
    record_search,
    search_tree,
)

pytestmark = pytest.mark.usefixtures("no_graphs")
VOCAB = 7
Ids = tuple[int, ...]


def random_table(seed: int, end: float = 0.0, spread: float = 1.5) -> np.ndarray:
    """Returns logits [t, last token, next token] of a model. The logit of the end token is higher
    by `end`.
    """
    table = np.random.default_rng(seed).normal(0, spread, (12, VOCAB, VOCAB)).astype("float32")
    table[:, :, EOS_ID] += end
    return table


def arguments(table: np.ndarray, limit: int, decode_hparams: DecodeHParams) -> Any:
    """Returns the arguments of `beam_search` and `record_search` for a model whose logits are
    `table`.
    """

    def step(
        ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(table[int(t)], ids), cache

    cache = tf.zeros([decode_hparams.beam_size, 0])
    memory = tf.zeros([1])
    return Scoring(step), cache, memory, tf.constant([limit]), decode_hparams


def recorded(table: np.ndarray, limit: int, decode_hparams: DecodeHParams) -> SearchTree:
    return record_search(*arguments(table, limit, decode_hparams))


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
def test_the_tree_has_the_outputs_of_beam_search_and_their_candidates(
    beam_size: int, alpha: float, num_best: int, end: float, reasons: set[bool]
) -> None:
    decode_hparams = DecodeHParams(beam_size, alpha, n=num_best)
    ends = set()
    for seed in (3, 5, 9):
        table = random_table(seed, end)
        limit = 1 + seed
        tree = recorded(table, limit, decode_hparams)
        outputs = beam_search(*arguments(table, limit, decode_hparams))
        ids = check_candidates(tree, log_softmax(table), decode_hparams)
        paths = [tuple(node.token for node in path) for path in tree.paths()]
        assert paths == [ids[node] for node in tree.outputs]
        assert paths == [tuple(unpadded(row)) for row in outputs.ids[0].numpy().tolist()]
        assert [path[-1].score for path in tree.paths()] == pytest.approx(
            outputs.scores[0].numpy().tolist()
        )
        assert tree.limit == limit and (tree.is_certain or len(tree.steps) == limit)
        ends.add(tree.is_certain)
    assert ends == reasons


def check_candidates(
    tree: SearchTree, log_probs: np.ndarray, decode_hparams: DecodeHParams
) -> dict[int, Ids]:
    """Checks all numbers of the tree's candidates against their definitions; returns the tokens of
    each node.
    """
    beam_size = decode_hparams.beam_size
    ids: dict[int, Ids] = {ROOT: ()}
    sums = {ROOT: 0.0}
    alive = [ROOT]
    finished: list[float] = []
    for t, step in enumerate(tree.steps):
        for node in step:
            assert node.parent in alive
            token_log_prob = log_probs[t, ids[node.parent][-1] if t else 0, node.token]
            ids[node.node] = (*ids[node.parent], node.token)
            sums[node.node] = sums[node.parent] + token_log_prob
            assert (node.token_log_prob, node.log_prob) == pytest.approx(
                (token_log_prob, sums[node.node]), rel=1e-4
            )
        ended = {
            node: node.log_prob / ((6 + t) / 6) ** decode_hparams.alpha
            for node in step
            if node.token == EOS_ID
        }
        finished = sorted([*finished, *ended.values()])[-beam_size:]
        for node, score in ended.items():
            assert node.score == pytest.approx(score)
            assert node.fate == (FINISHED if score in finished else PRUNED)
        others = [node for node in step if node not in ended]  # best first
        fates = [ALIVE] * beam_size + [PRUNED] * beam_size
        assert [node.fate for node in others] == fates[: len(others)]
        alive = [node.node for node in others[:beam_size]]
    return ids


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


def test_translations_are_those_of_the_translator(
    tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    model = word_model(1, tiny_hparams, tiny_vocabulary)
    translator = Translator(model, tiny_vocabulary, DecodeHParams(extra_length=2), max_length=50)
    options: dict[str, Any] = {"beam_size": 4, "n": 2, "alpha": 0.0, "coverage_penalty": 0.3}
    texts = ["dog", "a dog on the cat"]
    for text, expected in zip(
        texts, translator.translate(texts, details=True, **options), strict=True
    ):
        translation, tree = search_tree(translator, text, **options)
        assert (
            translation.source_ids == expected.source_ids
            and tree.limit == len(expected.source_ids) + 2
        )
        assert len(tree.outputs) == len(translation.hypotheses)
        for ours, theirs in zip(translation.hypotheses, expected.hypotheses, strict=True):
            assert (ours.text, ours.ids) == (theirs.text, theirs.ids)
            assert (ours.score, *ours.token_scores) == pytest.approx(
                (theirs.score, *theirs.token_scores), abs=1e-5
            )
    for source, message in (
        ("", "is empty"),
        ("dog " * 60, "61 tokens, but this model at most 50; shorten it"),
    ):
        with pytest.raises(UserError, match=message):
            search_tree(translator, source)
    with pytest.raises(UserError, match="without a search tree"):
        search_tree(translator, "dog", sampling_method="random")
