"""Beam search for one sentence that records its tree: the candidates of each step, and what became
of them.

It calls the functions of `beam_search.py`, so that it finds the outputs and scores that
`beam_search` finds. A loop in Python calls them, because the graph of `beam_search` returns only
the outputs.

Shapes: K beam size, C candidates, n outputs, L length limit. R, the number of sentences, is 1.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabularies.text_rules import EOS_ID, one_line
from t2t_repro.decoding import beam_search
from t2t_repro.decoding.batches import padded, unpadded
from t2t_repro.decoding.search import Sources, start_search
from t2t_repro.decoding.translation import Hypothesis, Translation
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, with_changes
from t2t_repro.visualization.attention import source_ids

ALIVE = "alive"
"""Fate of a candidate that is among the K best alive hypotheses."""
FINISHED = "finished"
"""Fate of a candidate that is among the K best finished hypotheses."""
PRUNED = "pruned"
"""Fate of a candidate that is dropped."""
ROOT = 0
"""Number of the tree's root, the empty hypothesis."""
_STEPS: WeakKeyDictionary[Translator, dict[Any, Any]] = WeakKeyDictionary()
"""Steps of each translator's model as graphs, which take a quarter of the time."""


@dataclass(frozen=True)
class Candidate:
    """A candidate of a step: a hypothesis that extends an alive hypothesis by one token. It is a
    node of the tree.
    """

    node: int
    """Number of the node, from 1. The candidates of a step have consecutive numbers, the best
    candidate the lowest.
    """
    parent: int
    """Number of the node whose hypothesis this candidate extends."""
    token: int
    """Id of the token that the candidate adds."""
    token_log_prob: float
    """Log-probability of this token in nats, lowered by the repetition penalty if it is used."""
    log_prob: float
    """Log-probability of the candidate in nats: the sum over its tokens."""
    fate: str
    """`ALIVE`, `FINISHED` or `PRUNED`, as decided at this step. Later hypotheses can replace a
    finished one.
    """
    score: float | None
    """Log-probability / length penalty, plus the coverage penalty if it is used. None for a
    candidate without an end token, unless it is an output.
    """


@dataclass(frozen=True)
class SearchTree:
    steps: tuple[tuple[Candidate, ...], ...]
    """The candidates of each step, best first."""
    outputs: tuple[int, ...]
    """Numbers of the nodes of the n outputs, best first."""
    limit: int
    """Maximum length of an output, counting the end token."""
    best_possible: float
    """The highest score that an alive hypothesis could still reach when the search ended; -inf if
    none was alive.
    """
    worst_of_best: float
    """The nth best score of the finished hypotheses when the search ended; -inf if fewer than n
    were finished.
    """

    @property
    def is_certain(self) -> bool:
        """True if the search ended because no alive hypothesis could change the n best. False if it
        met the limit.
        """
        return self.worst_of_best > self.best_possible or self.best_possible == beam_search.MISSING

    def paths(self) -> list[list[Candidate]]:
        """Returns for each output the candidates from its first token to its last."""
        nodes = {candidate.node: candidate for step in self.steps for candidate in step}
        paths = []
        for node in self.outputs:
            path = []
            while node != ROOT:
                path.append(nodes[node])
                node = nodes[node].parent
            paths.append(path[::-1])
        return paths


def search_tree(
    translator: Translator, source: str, **decode_hparams: Any
) -> tuple[Translation, SearchTree]:
    """Returns the translation of a source of one line by beam search, and the tree of the search.

    The hypotheses have token scores. Their sums are the log-probabilities by which the search
    ranked them. Fields that `decode_hparams` lacks have the translator's values.

    Raises UserError if the source is empty or too long, a field has a wrong value, or the model
    returns NaN.
    """
    params = with_changes(translator.decode_hparams, decode_hparams)
    translator.check(params)
    if params.is_random:
        raise UserError("sampling_method=random draws outputs without a search tree; omit it")
    inputs = source_ids(translator, source, params)
    rules = translator.rules(params)
    sources = Sources(inputs=padded([inputs]))
    if rules:
        sources["facts"] = rules.facts([source])
    scoring, cache, memory, limits = start_search(translator.model, params, sources, rules)
    # The step does not depend on the other fields.
    step = _STEPS.setdefault(translator, {}).setdefault(
        (params.beam_size, bool(params.coverage_penalty)),
        tf.function(scoring.step, autograph=False, reduce_retracing=True),
    )
    tree = record_search(scoring._replace(step=step), cache, memory, limits, params)
    hypotheses = []
    for path in tree.paths():
        ids = tuple(node.token for node in path)
        token_scores = tuple(node.token_log_prob for node in path)
        [text] = translator.vocabulary.decode([ids])
        hypotheses.append(Hypothesis(one_line(text), path[-1].score or 0.0, ids, token_scores))
    return Translation(tuple(hypotheses), tuple(inputs)), tree


def record_search(
    scoring: beam_search.Scoring,
    cache: Any,
    memory: Any,
    limits: tf.Tensor,
    decode_hparams: DecodeHParams,
) -> SearchTree:
    """Returns the tree of the search that `beam_search` does with the same arguments, for a batch
    of one sentence.

    Raises UserError if the model returns NaN.
    """
    beam_size = decode_hparams.beam_size
    state = beam_search.first_state(cache, memory, limits, decode_hparams)
    steps: list[list[Candidate]] = []
    alive = [ROOT] * beam_size  # the node of each alive hypothesis
    hypotheses: dict[int, tuple[int, ...]] = {ROOT: ()}  # the tokens of each node's hypothesis
    while True:
        log_probs = state.alive_log_probs[0].numpy().tolist()
        state, candidates = beam_search.find_candidates(state, scoring, beam_size)
        state, selection = beam_search.keep_best(state, candidates, scoring, decode_hparams)
        alive_sums = list(zip(alive, log_probs, strict=True))
        nodes = candidates_of(candidates, selection, alive_sums, len(hypotheses))
        steps.append([node for node in nodes if node.log_prob > beam_search.MISSING])
        hypotheses |= {node.node: (*hypotheses[node.parent], node.token) for node in steps[-1]}
        alive = [nodes[index].node for index in selection.alive[0].numpy().tolist()]

        is_done = beam_search.find_done(state, decode_hparams)
        if is_done.numpy().all():
            break
        state = beam_search.remove_done(state, selection.parents, is_done, decode_hparams, scoring)
    best_possible, worst_of_best = beam_search.bounds(state, decode_hparams)
    outputs = beam_search.add_outputs(state, selection.parents, is_done, decode_hparams, scoring)
    numbers = {ids: node for node, ids in hypotheses.items()}
    pairs = zip(outputs.ids[0].numpy().tolist(), outputs.scores[0].numpy().tolist(), strict=True)
    scores = {
        numbers[tuple(unpadded(ids))]: score for ids, score in pairs if score > beam_search.MISSING
    }
    # Outputs that met the length limit have a score without an end token.
    steps[-1] = [
        dataclasses.replace(node, score=scores.get(node.node, node.score)) for node in steps[-1]
    ]
    return SearchTree(
        steps=tuple(map(tuple, steps)),
        outputs=tuple(scores),
        limit=int(limits[0]),
        best_possible=float(best_possible[0]),
        worst_of_best=float(worst_of_best[0]),
    )


def candidates_of(
    candidates: beam_search.Candidates,
    selection: beam_search.Selection,
    alive: Sequence[tuple[int, float]],
    first_node: int,
) -> list[Candidate]:
    """Returns the C candidates of a step. Those with log-probability -inf do not exist; they come
    last.

    `alive` has the node and the log-probability of each alive hypothesis before this step.
    """
    rows = (row[0].numpy().tolist() for row in (*candidates, selection.scores))
    kept_alive = set(selection.alive[0].numpy().tolist())
    # The K earlier finished hypotheses come before the candidates.
    kept_finished = {index - len(alive) for index in selection.finished[0].numpy().tolist()}
    nodes = []
    for index, (parent, token, log_prob, score) in enumerate(zip(*rows, strict=True)):
        if np.isnan(log_prob):
            raise UserError(
                "the model's probabilities are not numbers (NaN); use an earlier checkpoint"
            )
        parent_node, parent_log_prob = alive[parent]
        is_end = token == EOS_ID
        if is_end:
            fate = FINISHED if index in kept_finished else PRUNED
        else:
            fate = ALIVE if index in kept_alive else PRUNED
        nodes.append(
            Candidate(
                node=first_node + index,
                parent=parent_node,
                token=token,
                token_log_prob=log_prob - parent_log_prob,
                log_prob=log_prob,
                fate=fate,
                score=score if is_end else None,
            )
        )
    return nodes
