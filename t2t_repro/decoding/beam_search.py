"""Beam search with the length penalty of Wu et al. (2016); knows nothing of text or of the Transformer.

As in tensor2tensor there are two beams: alive hypotheses, which grow, and finished ones, which have their end. A
sentence is done when no alive hypothesis can still beat its finished ones, or when its length limit is met. It then
leaves the batch. So what else is in the batch changes nothing, and nobody waits for the longest.

Shapes: B sentences given, R sentences not done yet, K beam, t positions so far, V vocabulary, L longest limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.data.vocabulary import EOS_ID, PAD_ID

NEVER = float("-inf")
"""The log-probability of hypotheses that are not there."""

Step = Callable[[tf.Tensor, tf.Tensor, Any, Any], tuple[tf.Tensor, Any]]
"""(last ids [R, K], t, cache, memory) -> logits [R, K, V], longer cache."""


Adjust = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, Any], tf.Tensor]
"""(logits [R, K, V], ids so far [R, K, t], t, memory) -> logits [R, K, V] of which candidates are chosen."""

Bonus = Callable[[Any, Any], tf.Tensor]
"""(cache, memory) -> [R, K], added to the scores of hypotheses that end here."""


class Hypotheses(NamedTuple):
    """The best outputs of each sentence, best first."""

    ids: tf.Tensor
    """int32 [B, n, L], the end token included, padded with 0."""
    scores: tf.Tensor
    """float32 [B, n], log P / length penalty; -inf where there are fewer."""


class State(NamedTuple):
    """The search after t positions."""

    t: tf.Tensor
    """int32 [], positions so far."""
    rows: tf.Tensor
    """int32 [R], which of the B sentences these are."""
    limits: tf.Tensor
    """int32 [R], most positions."""
    alive_ids: tf.Tensor
    """int32 [R, K, t]."""
    alive_log_probs: tf.Tensor
    """float32 [R, K], best first."""
    finished_ids: tf.Tensor
    """int32 [R, K, t], padded with 0."""
    finished_scores: tf.Tensor
    """float32 [R, K], best first."""
    cache: Any
    """Tensors [R * K, ...], one slice a hypothesis."""
    memory: Any
    """Tensors [R, ...], one slice a sentence."""
    result: Hypotheses
    """The sentences that are done."""


def length_penalty(length: tf.Tensor, alpha: float) -> tf.Tensor:
    """((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14); the end token counts."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def beam_search(
    step: Step,
    cache: Any,
    memory: Any,
    limits: tf.Tensor,
    beam_size: int,
    alpha: float,
    num_best: int = 1,
    normalize: bool = True,
    adjust: Adjust | None = None,
    bonus: Bonus | None = None,
) -> Hypotheses:
    """Searches for the outputs with the highest log P / length penalty.

    Args:
        step: gives the logits of the next token.
        cache: tensors [B * K, ...] that `step` reads and makes longer: what hypotheses remember.
        memory: tensors [B, ...] that `step` reads: what is known of sentences.
        limits: int32 [B], at least 1: the longest output of each sentence, its end token included.
        beam_size: K; 1 is greedy search.
        alpha: strength of the length penalty, 0 or more.
        num_best: hypotheses wanted, at most K. The search stops as soon as these cannot change.
        normalize: make logits log-probabilities; False where `step` gives log-probabilities.
        adjust: changes logits after that, by what it adds or takes off. An output's log P is then no more than before.
        bonus: of 0 or less, added to scores.

    Returns:
        Hypotheses with n = num_best. Where fewer were finished within the limit, unfinished ones follow, best first.
    """

    def advance(state: State) -> State:
        state, parents = grow(step, state, beam_size, alpha, normalize, adjust, bonus)
        return leave(state, parents, done(state, alpha, num_best), alpha, num_best, bonus)

    # All hypotheses start equal: only the first may grow, or the beam would hold K copies of it.
    state = start(cache, memory, limits, [0.0] + [NEVER] * (beam_size - 1), num_best)
    return run(advance, state)


def start(cache: Any, memory: Any, limits: tf.Tensor, log_probs: list[float], num_best: int) -> State:
    """The state before the first position; `log_probs` are of the K hypotheses of each sentence."""
    cache, memory, limits = tf.nest.map_structure(tf.convert_to_tensor, (cache, memory, limits))
    batch, beam_size = tf.shape(limits)[0], len(log_probs)
    return State(
        t=tf.constant(0),
        rows=tf.range(batch),
        limits=limits,
        alive_ids=tf.zeros([batch, beam_size, 0], tf.int32),
        alive_log_probs=tf.tile(tf.constant([log_probs]), [batch, 1]),
        finished_ids=tf.zeros([batch, beam_size, 0], tf.int32),
        finished_scores=tf.fill([batch, beam_size], NEVER),
        cache=cache,
        memory=memory,
        result=Hypotheses(
            ids=tf.zeros([batch, num_best, tf.maximum(tf.reduce_max(limits), 0)], tf.int32),
            scores=tf.fill([batch, num_best], NEVER),
        ),
    )


def run(advance: Callable[[State], State], state: State) -> Hypotheses:
    """Advances position by position until all sentences are done."""
    # Rows and positions come and go; only the ranks are fixed.
    shapes = tf.nest.map_structure(lambda tensor: tf.TensorShape([None] * tensor.shape.rank), state)
    (state,) = tf.while_loop(
        lambda state: tf.size(state.rows) > 0, lambda state: (advance(state),), (state,), (shapes,)
    )
    return state.result


def grow(
    step: Step,
    state: State,
    beam_size: int,
    alpha: float,
    normalize: bool,
    adjust: Adjust | None,
    bonus: Bonus | None,
) -> tuple[State, tf.Tensor]:
    """One more position: the best K that go on, the best K that have ended.

    Returns:
        The state, its cache not yet reordered, and the parents int32 [R, K]: which hypothesis each alive one extends.
    """
    logits, cache = step(last_ids(state), state.t, state.cache, state.memory)
    base = tf.reduce_logsumexp(logits, axis=2, keepdims=True) if normalize else 0.0
    if adjust:
        logits = adjust(logits, state.alive_ids, state.t, state.memory)
    # Of 2K candidates at most K end the output, so K are left to go on. Greedy search has one candidate: it ends where
    # the end is the likeliest token. A hypothesis gives 2K candidates at most, so its best 2K are enough: the softmax
    # over V need not be written out.
    candidates = 2 * beam_size if beam_size > 1 else 1
    own = tf.minimum(candidates, tf.shape(logits)[2])
    best_logits, tokens = tf.math.top_k(logits, own)  # [R, K, own]
    log_probs = best_logits - base + state.alive_log_probs[:, :, None]
    rows = tf.shape(state.rows)[0]
    log_probs, best = tf.math.top_k(tf.reshape(log_probs, [rows, beam_size * own]), candidates)  # [R, candidates]
    tokens = tf.gather(tf.reshape(tokens, [rows, beam_size * own]), best, batch_dims=1)
    parents = best // own
    ended = tokens == EOS_ID

    def extended(chosen: tf.Tensor) -> tf.Tensor:
        """int32 [R, k, t + 1]: the chosen candidates, written out."""
        ids = tf.gather(state.alive_ids, tf.gather(parents, chosen, batch_dims=1), batch_dims=1)
        return tf.concat([ids, tf.gather(tokens, chosen, batch_dims=1)[:, :, None]], axis=2)

    alive_log_probs, alive = tf.math.top_k(tf.where(ended, NEVER, log_probs), beam_size)
    scores = tf.where(ended, log_probs / length_penalty(state.t + 1, alpha), NEVER)
    if bonus:
        scores += tf.gather(bonus(cache, state.memory), parents, batch_dims=1)
    new_scores, new = tf.math.top_k(scores, min(beam_size, candidates))
    finished_ids = tf.concat([tf.pad(state.finished_ids, [[0, 0], [0, 0], [0, 1]]), extended(new)], axis=1)
    finished_scores, kept = tf.math.top_k(tf.concat([state.finished_scores, new_scores], axis=1), beam_size)
    state = state._replace(
        t=state.t + 1,
        alive_ids=extended(alive),
        alive_log_probs=alive_log_probs,
        finished_ids=tf.gather(finished_ids, kept, batch_dims=1),
        finished_scores=finished_scores,
        cache=cache,
    )
    return state, tf.gather(parents, alive, batch_dims=1)


def last_ids(state: State) -> tf.Tensor:
    """int32 [R, K], the latest token of each alive hypothesis; 0 at the beginning."""
    return tf.pad(state.alive_ids, [[0, 0], [0, 0], [1, 0]], constant_values=PAD_ID)[:, :, -1]


def done(state: State, alpha: float, num_best: int) -> tf.Tensor:
    """bool [R]: the sentences whose best `num_best` outputs cannot change any more."""
    # Log-probabilities only fall and the penalty divides most at the limit: no alive hypothesis can score more.
    best_possible = state.alive_log_probs[:, 0] / length_penalty(state.limits, alpha)
    return (state.t >= state.limits) | (state.finished_scores[:, num_best - 1] > best_possible)


def leave(
    state: State, parents: tf.Tensor, is_done: tf.Tensor, alpha: float, num_best: int, bonus: Bonus | None = None
) -> State:
    """Writes the sentences that are done into the result and keeps the others, with their caches in beam order."""

    def written() -> Hypotheses:
        leaving = tf.where(is_done)[:, 0]
        # Finished hypotheses come first, whatever the scores of those that are not.
        finished_scores = tf.gather(state.finished_scores, leaving)
        alive_scores = tf.gather(state.alive_log_probs, leaving) / length_penalty(state.t, alpha)
        alive_ids = tf.gather(state.alive_ids, leaving)
        if bonus:
            grown = tf.gather(bonus(state.cache, state.memory), parents, batch_dims=1)
            alive_scores, best = tf.math.top_k(alive_scores + tf.gather(grown, leaving), tf.shape(parents)[1])
            alive_ids = tf.gather(alive_ids, best, batch_dims=1)
        ids = tf.concat([tf.gather(state.finished_ids, leaving), alive_ids], axis=1)
        scores = tf.concat([finished_scores, alive_scores], axis=1)
        is_finished = tf.concat([finished_scores > NEVER, tf.zeros_like(alive_scores, tf.bool)], axis=1)
        exists = scores > NEVER
        rank = tf.argsort(tf.where(is_finished, 0, tf.where(exists, 1, 2)), stable=True)[:, :num_best]
        ids, scores = tf.gather(ids, rank, batch_dims=1), tf.gather(scores, rank, batch_dims=1)
        ids = tf.pad(ids, [[0, 0], [0, 0], [0, tf.shape(state.result.ids)[2] - state.t]])
        rows = tf.gather(state.rows, leaving)[:, None]
        return Hypotheses(
            tf.tensor_scatter_nd_update(state.result.ids, rows, ids),
            tf.tensor_scatter_nd_update(state.result.scores, rows, scores),
        )

    staying = tf.where(~is_done)[:, 0]
    some_leave = tf.reduce_any(is_done)
    result = tf.cond(some_leave, written, lambda: state.result)

    beams = (state.alive_ids, state.alive_log_probs, state.finished_ids, state.finished_scores)
    sentences = (state.rows, state.limits, *beams, state.memory)
    rows, limits, alive_ids, alive_log_probs, finished_ids, finished_scores, memory = tf.cond(
        some_leave,
        lambda: tf.nest.map_structure(lambda tensor: tf.gather(tensor, staying), sentences),
        lambda: sentences,
    )
    beam_size = tf.shape(parents, tf.int64)[1]
    hypotheses = tf.reshape(staying[:, None] * beam_size + tf.cast(tf.gather(parents, staying), tf.int64), [-1])
    cache = tf.nest.map_structure(lambda tensor: tf.gather(tensor, hypotheses), state.cache)
    return State(
        state.t, rows, limits, alive_ids, alive_log_probs, finished_ids, finished_scores, cache, memory, result
    )  # fmt: skip
