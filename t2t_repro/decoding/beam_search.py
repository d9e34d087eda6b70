"""Beam search with the length penalty of Wu et al. (2016). This module does not depend on text or
the Transformer.

As in tensor2tensor, each sentence has two beams: alive hypotheses, which grow by one token per
step, and finished hypotheses, which end with the end token. A sentence is done when none of its
alive hypotheses can beat its finished hypotheses any more, or when it reaches its length limit. The
search then removes the sentence from the batch, so that short sentences do not wait for the longest
one. The outputs of a sentence do not depend on the other sentences.

Tokens and indices are int64. On a GPU, TensorFlow would run most operations of int32 on the CPU,
and copy their inputs and outputs at each position.

Shapes: B sentences at the start, R sentences that are not done, K beam size, C candidates per
sentence, t positions decoded so far, V vocabulary, n outputs per sentence, L longest limit. D of
the R sentences are done after a step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.decoding.top_k import argmax, top_k
from t2t_repro.hparam import DecodeHParams

MISSING = float("-inf")
"""Log-probability and score of a hypothesis that does not exist."""


class Scoring(NamedTuple):
    """The functions with which beam search and sampling score tokens and hypotheses."""

    step: Callable[[tf.Tensor, tf.Tensor, Any, Any], tuple[tf.Tensor, Any]]
    """Function of (last token of each hypothesis [R, K], t, cache, memory). Returns the logits of
    each hypothesis's next token [R, K, V], and the cache with the new position added.
    """
    normalize: bool = True
    """True if `step` returns logits, false if `step` returns log-probabilities."""
    adjust: Callable[[tf.Tensor, tf.Tensor, tf.Tensor, Any], tf.Tensor] | None = None
    """Function of (logits [R, K, V], tokens of the hypotheses [R, K, t], t, memory). Returns the
    logits by which the search ranks tokens. No adjusted logit may exceed the logarithm of the
    softmax's denominator, so that all log-probabilities stay 0 or less, which `bounds` needs.
    """
    bonus: Callable[[Any, Any], tf.Tensor] | None = None
    """Function of (cache, memory). Returns a number for each hypothesis [R, K], 0 or less, such as
    a coverage penalty. The search adds it to the hypothesis's score when the hypothesis ends or
    reaches the length limit.
    """


class Hypotheses(NamedTuple):
    """The n outputs of each sentence and their scores. Beam search puts the best output first."""

    ids: tf.Tensor
    """Token ids, int [B, n, L]. Each output includes its end token and is padded with 0."""
    scores: tf.Tensor
    """float32 [B, n]: log-probability / length penalty + `Scoring.bonus`; -inf for outputs that do
    not exist.
    """


class State(NamedTuple):
    """The state of beam search or sampling after t positions."""

    t: tf.Tensor
    """int32 [], number of positions decoded so far."""
    rows: tf.Tensor
    """int64 [R], the index in the original batch of each sentence that is not done."""
    limits: tf.Tensor
    """int64 [R], maximum output length of each sentence, counting the end token."""
    alive_ids: tf.Tensor
    """int64 [R, K, 1 + t], for each alive hypothesis a 0, then its tokens."""
    alive_log_probs: tf.Tensor
    """float32 [R, K], log-probabilities of the alive hypotheses; in beam search, best first."""
    finished_ids: tf.Tensor
    """int64 [R, K, 1 + t], for each finished hypothesis a 0, then its tokens, padded with 0."""
    finished_scores: tf.Tensor
    """float32 [R, K], scores of the finished hypotheses; in beam search, best first."""
    cache: Any
    """Tensors [R * K, ...] with a row for each alive hypothesis, such as the keys and values of
    earlier positions.
    """
    memory: Any
    """Tensors [R, ...] with a row for each sentence, such as the encoded source."""
    result: Hypotheses
    """The outputs of the sentences that are done. Each sentence has the row that it had in the
    original batch.
    """


PER_SENTENCE = (
    "rows",
    "limits",
    "alive_ids",
    "alive_log_probs",
    "finished_ids",
    "finished_scores",
    "memory",
)
"""Names of the fields of `State` whose tensors have a row for each sentence that is not done."""


class Candidates(NamedTuple):
    """The C best hypotheses that extend an alive hypothesis of a sentence by one token, best first."""  # noqa: E501

    parents: tf.Tensor
    """int64 [R, C], index of the alive hypothesis that each candidate extends."""
    tokens: tf.Tensor
    """int64 [R, C], the token that each candidate adds."""
    log_probs: tf.Tensor
    """float32 [R, C], log-probability of each candidate, including its new token."""


class Selection(NamedTuple):
    """The candidates that become alive or finished hypotheses of a sentence, best first."""

    alive: tf.Tensor
    """int32 [R, K], index of the candidate that becomes each alive hypothesis."""
    finished: tf.Tensor
    """int32 [R, K], for each finished hypothesis, its index in the list of the K earlier finished
    hypotheses and the C candidates.
    """
    parents: tf.Tensor
    """int64 [R, K], index of the old alive hypothesis that each new alive hypothesis extends."""
    scores: tf.Tensor
    """float32 [R, C], score of each candidate; -inf for candidates without an end token."""


def length_penalty(length: tf.Tensor, alpha: float) -> tf.Tensor:
    """Returns ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14); the length includes the
    end token.
    """
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def beam_search(
    scoring: Scoring, cache: Any, memory: Any, limits: tf.Tensor, decode_hparams: DecodeHParams
) -> Hypotheses:
    """Returns each sentence's n outputs with the highest scores.

    A score is log-probability / length penalty, plus the number from `scoring.bonus` unless that
    function is None.

    If fewer than n outputs get an end token within the length limit, the best outputs without an
    end token follow.

    Args:
        cache: tensors [B * K, ...] with a row for each hypothesis, which `scoring.step` reads and
            extends.
        memory: tensors [B, ...] with a row for each sentence, which `scoring.step` reads.
        limits: int [B], 1 or more: the maximum length of each sentence's outputs, counting the end
            token.
        decode_hparams: the search uses `beam_size` (K), `alpha` and `n`.
    """

    def advance(state: State) -> State:
        # The C best extensions of each sentence's K hypotheses by one token: logits [R, K, V] -->
        # [R, C]
        state, candidates = find_candidates(state, scoring, decode_hparams.beam_size)
        # The K best alive hypotheses and the K best finished ones of each sentence: [R, C] --> [R,
        # K]
        state, selection = keep_best(state, candidates, scoring, decode_hparams)
        # The D sentences that are done leave the batch: [R, ...] --> [R - D, ...]
        return remove_done(
            state, selection.parents, find_done(state, decode_hparams), decode_hparams, scoring
        )

    return advance_until_done(advance, first_state(cache, memory, limits, decode_hparams))


def first_state(cache: Any, memory: Any, limits: tf.Tensor, decode_hparams: DecodeHParams) -> State:
    """Returns the state of beam search or sampling before the first position; the arguments are
    those of `beam_search`.

    Sampling has K = n hypotheses.
    """
    cache, memory, limits = tf.nest.map_structure(tf.convert_to_tensor, (cache, memory, limits))
    # All K hypotheses start empty. In beam search, only the first may grow (log P = 0, not -inf):
    # the others would become copies of it.
    is_random = decode_hparams.is_random
    num_best = decode_hparams.n
    log_probs = (
        [0.0] * num_best if is_random else [0.0] + [MISSING] * (decode_hparams.beam_size - 1)
    )
    batch = tf.shape(limits)[0]
    beam_size = len(log_probs)
    empty = tf.fill([batch, beam_size, 1], tf.constant(PAD_ID, tf.int64))
    return State(
        t=tf.constant(0),
        rows=tf.cast(tf.range(batch), tf.int64),
        limits=tf.cast(limits, tf.int64),
        alive_ids=empty,
        alive_log_probs=tf.tile(tf.constant([log_probs]), [batch, 1]),
        finished_ids=empty,
        finished_scores=tf.fill([batch, beam_size], MISSING),
        cache=cache,
        memory=memory,
        result=Hypotheses(
            ids=tf.zeros(
                [batch, num_best, tf.cast(tf.maximum(tf.reduce_max(limits), 0), tf.int32)], tf.int64
            ),
            scores=tf.fill([batch, num_best], MISSING),
        ),
    )


def advance_until_done(advance: Callable[[State], State], state: State) -> Hypotheses:
    """Calls `advance`, which decodes one position, until all sentences are done. Returns the
    sentences' outputs.
    """
    # The loop needs shapes that fit all steps. Numbers of sentences and positions change, so only
    # ranks are fixed. In the memory, only the number of sentences changes.
    shapes = tf.nest.map_structure(lambda tensor: tf.TensorShape([None] * tensor.shape.rank), state)
    memory_shapes = tf.nest.map_structure(
        lambda tensor: tf.TensorShape([None, *tensor.shape[1:]]), state.memory
    )
    shapes = shapes._replace(memory=memory_shapes)
    (state,) = tf.while_loop(
        lambda state: tf.size(state.rows) > 0, lambda state: (advance(state),), (state,), (shapes,)
    )
    return state.result


def find_candidates(state: State, scoring: Scoring, beam_size: int) -> tuple[State, Candidates]:
    """Returns the state with the new cache, and the C best extensions of each sentence's hypotheses
    by one token.
    """
    logits, cache = scoring.step(
        last_ids(state, beam_size), state.t, state.cache, state.memory
    )  # [R, K, V]
    state = state._replace(cache=cache)

    # C = 2K: at most one candidate of each of the K hypotheses has the end token, so at least K
    # candidates have another token. Greedy search (K = 1) needs only one candidate, because it
    # stops when this candidate has the end token.
    count = 2 * beam_size if beam_size > 1 else 1
    # Log-probabilities are computed only for the best tokens: logit - normalizer + the hypothesis's
    # log-probability.
    offsets = state.alive_log_probs[:, :, None]
    if scoring.normalize:
        offsets -= log_normalizer(logits)
    if scoring.adjust:
        logits = scoring.adjust(logits, state.alive_ids[:, :, 1:], state.t, state.memory)
    # At most K of the C + K best extensions have a padding token, one of each hypothesis.
    log_probs, parents, tokens = top_k(logits, offsets, count + beam_size)
    log_probs, best = tf.math.top_k(tf.where(tokens == PAD_ID, MISSING, log_probs), count)
    parents, tokens = (tf.gather(indices, best, batch_dims=1) for indices in (parents, tokens))
    return state, Candidates(parents, tokens, log_probs)


def keep_best(
    state: State, candidates: Candidates, scoring: Scoring, decode_hparams: DecodeHParams
) -> tuple[State, Selection]:
    """Returns the state after one more position, with the K best alive and the K best finished
    hypotheses.

    The rows of its cache are still in the order of the old hypotheses; `Selection.parents` has
    their new order.
    """
    beam_size = decode_hparams.beam_size
    # The tokens of the candidates: [R, K, 1 + t] --> [R, C, 2 + t]
    ids = tf.gather(state.alive_ids, candidates.parents, batch_dims=1)
    ids = tf.concat([ids, candidates.tokens[:, :, None]], axis=2)
    is_end = candidates.tokens == EOS_ID  # [R, C]

    # Alive: the K best of the C candidates without an end token: [R, C] --> [R, K]
    alive_log_probs, alive = tf.math.top_k(
        tf.where(is_end, MISSING, candidates.log_probs), beam_size
    )

    # Finished: the K best of K earlier ones and the C candidates with an end token: [R, K + C] -->
    # [R, K]
    scores = tf.where(
        is_end, candidates.log_probs / length_penalty(state.t + 1, decode_hparams.alpha), MISSING
    )
    if scoring.bonus:
        scores += tf.gather(
            scoring.bonus(state.cache, state.memory), candidates.parents, batch_dims=1
        )
    finished_scores, finished = tf.math.top_k(
        tf.concat([state.finished_scores, scores], axis=1), beam_size
    )
    finished_ids = tf.concat([with_padding(state.finished_ids), ids], axis=1)  # [R, K + C, 2 + t]
    state = state._replace(
        t=state.t + 1,
        alive_ids=tf.gather(ids, alive, batch_dims=1),
        alive_log_probs=alive_log_probs,
        finished_ids=tf.gather(finished_ids, finished, batch_dims=1),
        finished_scores=finished_scores,
    )
    return state, Selection(
        alive, finished, tf.gather(candidates.parents, alive, batch_dims=1), scores
    )


def log_normalizer(logits: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the softmax's denominator, log(sum(exp(logits))), [R, K, 1] for
    logits [R, K, V].
    """
    # TensorFlow computes tf.nn.softmax in one pass over the vocabulary, but tf.reduce_logsumexp in
    # four, which take twice as long. The largest logit's probability cannot underflow.
    best = argmax(logits)[:, :, None]
    probability = tf.gather(tf.nn.softmax(logits), best, batch_dims=2)
    return tf.gather(logits, best, batch_dims=2) - tf.math.log(probability)


def last_ids(state: State, hypotheses: int) -> tf.Tensor:
    """Returns int64 [R, K], the last token of each of the K alive hypotheses, or 0 at the first
    position.
    """
    # The graph must know K: with it, shapes of the model's tensors are constants and cost no
    # operations.
    return tf.ensure_shape(state.alive_ids[:, :, -1], [None, hypotheses])


def with_padding(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids [R, K, 1 + t] with a 0 added to each row. On a GPU, TensorFlow cannot pad int64."""  # noqa: E501
    return tf.concat([ids, tf.zeros_like(ids[:, :, :1])], axis=2)


def bounds(state: State, decode_hparams: DecodeHParams) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the highest score that an alive hypothesis of each sentence can still reach, and its
    nth best score.

    Both are float32 [R]. The nth best score is -inf if the sentence has fewer than n finished
    hypotheses.
    """
    # An alive hypothesis's log-probability is negative and can only fall, and the score is this
    # log-probability divided by the length penalty, which is largest at the length limit.
    best_possible = state.alive_log_probs[:, 0] / length_penalty(state.limits, decode_hparams.alpha)
    worst_of_best = state.finished_scores[:, decode_hparams.n - 1]
    return best_possible, worst_of_best


def find_done(state: State, decode_hparams: DecodeHParams) -> tf.Tensor:
    """Returns bool [R], true for sentences whose n best outputs cannot change any more."""
    best_possible, worst_of_best = bounds(state, decode_hparams)
    is_at_end = (tf.cast(state.t, tf.int64) >= state.limits) | (
        state.alive_log_probs[:, 0] == MISSING
    )
    return is_at_end | (worst_of_best > best_possible)


def remove_done(
    state: State,
    parents: tf.Tensor,
    is_done: tf.Tensor,
    decode_hparams: DecodeHParams,
    scoring: Scoring,
) -> State:
    """Returns the state without the sentences that are done. Their outputs are added to the state's
    result.

    In the new state's cache, each hypothesis has the row of its parent, the earlier hypothesis that
    it extends.
    """
    beam_size = parents.shape[1]
    keeps_order = beam_size == 1  # greedy search: the cache changes only when sentences are removed
    names = (*PER_SENTENCE, "cache") if keeps_order else PER_SENTENCE
    sentences = {name: getattr(state, name) for name in names}

    def remove() -> tuple[Hypotheses, dict[str, Any], tf.Tensor]:
        remaining = tf.where(~is_done)[:, 0]
        # Keep the rows of the sentences that are not done: [R, ...] --> [R - D, ...]
        rest = tf.nest.map_structure(lambda tensor: tf.gather(tensor, remaining), sentences)
        rows = remaining[:, None] * beam_size + tf.gather(parents, remaining)
        return add_outputs(state, parents, is_done, decode_hparams, scoring), rest, rows

    def keep() -> tuple[Hypotheses, dict[str, Any], tf.Tensor]:
        rows = tf.cast(tf.range(tf.shape(parents)[0]), tf.int64)
        return state.result, sentences, rows[:, None] * beam_size + parents

    # The parents' rows of the cache, [R - D, K]. Row r * K + k of the cache is for hypothesis k of
    # sentence r.
    result, sentences, rows = tf.cond(tf.reduce_any(is_done), remove, keep)
    state = state._replace(result=result, **sentences)
    if keeps_order:
        return state
    rows = tf.reshape(rows, [-1])
    return state._replace(
        cache=tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), state.cache)
    )


def add_outputs(
    state: State,
    parents: tf.Tensor,
    is_done: tf.Tensor,
    decode_hparams: DecodeHParams,
    scoring: Scoring,
) -> Hypotheses:
    """Returns `state.result` together with the outputs of the sentences that are done."""
    # Select the rows of the D sentences that are done: [R, ...] --> [D, ...]
    done = tf.where(is_done)[:, 0]
    finished_scores = tf.gather(state.finished_scores, done)
    alive_scores = tf.gather(state.alive_log_probs, done) / length_penalty(
        state.t, decode_hparams.alpha
    )
    alive_ids = tf.gather(state.alive_ids, done)
    if scoring.bonus:
        # The cache's rows are still in the order of the parents, so a hypothesis takes its parent's
        # bonus [R, K].
        alive_bonus = tf.gather(scoring.bonus(state.cache, state.memory), parents, batch_dims=1)
        alive_scores, order = tf.math.top_k(
            alive_scores + tf.gather(alive_bonus, done), tf.shape(parents)[1]
        )
        alive_ids = tf.gather(alive_ids, order, batch_dims=1)

    # Select n outputs that exist, finished before unfinished ones, whatever their scores:
    # [D, K] + [D, K] --> [D, 2K] --> [D, n]
    ids = tf.concat([tf.gather(state.finished_ids, done), alive_ids], axis=1)
    scores = tf.concat([finished_scores, alive_scores], axis=1)
    order = tf.argsort(tf.where(scores > MISSING, 0.0, 1.0), stable=True)
    count = decode_hparams.n
    ids, scores = (tf.gather(outputs, order, batch_dims=1)[:, :count] for outputs in (ids, scores))

    # Pad the outputs to length L and write them to the sentences' rows of the result: [D, n, 1 + t]
    # --> [D, n, L]
    padding = tf.zeros([tf.shape(ids)[0], count, tf.shape(state.result.ids)[2] - state.t], tf.int64)
    ids = tf.concat([ids[:, :, 1:], padding], axis=2)
    rows = tf.gather(state.rows, done)[:, None]
    return Hypotheses(
        tf.tensor_scatter_nd_update(state.result.ids, rows, ids),
        tf.tensor_scatter_nd_update(state.result.scores, rows, scores),
    )
