"""Random outputs, drawn from the model's distribution token by token.

The outputs of a sentence do not depend on the other sentences. As in beam search, a sentence leaves the batch when all
its outputs have ended.

Shapes: B sentences at the start, R sentences that are not done, K outputs per sentence, t positions so far, V
vocabulary, L longest limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.data.text_rules import EOS_ID, PAD_ID
from t2t_repro.decoding.beam_search import (
    MISSING,
    Hypotheses,
    Scoring,
    State,
    advance_until_done,
    last_ids,
    length_penalty,
    remove_done,
    start_state,
)
from t2t_repro.hparam import DecodeHParams


def random_numbers(seed: int, line: int, segment: int, length: int, count: int) -> np.ndarray:
    """Returns float32 [count, length] in [0, 1), which decide the random outputs of a segment of a line.

    With a larger count or length the array is larger and begins with the same numbers.

    Args:
        line: the line's number in its file.
        segment: the segment's number in its line; 0 for a line that is translated whole.
    """
    streams = (np.random.Philox(counter=[0, 0, output, segment], key=[seed, line]) for output in range(count))
    return np.stack([np.random.Generator(stream).random(length, np.float32) for stream in streams])


def sample(
    scoring: Scoring, cache: Any, memory: dict[str, Any], limits: tf.Tensor, decode_hparams: DecodeHParams
) -> Hypotheses:
    """Draws outputs. Temperature, top-k and top-p change how often an output is drawn, but not its score.

    Args:
        scoring, cache, limits: as for `beam_search`, without a bonus.
        memory: as for `beam_search`, with "random", float32 [B, K, L] in [0, 1): the numbers that decide each token.
        decode_hparams: `num_best` (K), `alpha` and the fields `sampling_...` are used.

    Returns:
        K outputs per sentence in the order in which they were drawn; those without an end token come last.
    """
    count, alpha = decode_hparams.num_best, decode_hparams.alpha

    def advance(state: State) -> State:
        # [R, K] --> [R, K, V]
        logits, cache = scoring.step(last_ids(state), state.t, state.cache, state.memory)
        normalizer = tf.reduce_logsumexp(logits, axis=2) if scoring.normalize else 0.0  # [R, K]
        if scoring.adjust:
            logits = scoring.adjust(logits, state.alive_ids, state.t, state.memory)
        # [R, K, V] --> [R, K]
        is_alive = state.alive_log_probs > MISSING
        tokens = tf.where(is_alive, draw(logits, state.memory["random"][:, :, state.t], decode_hparams), PAD_ID)
        log_probs = state.alive_log_probs + tf.gather(logits, tokens, batch_dims=2) - normalizer
        is_end = is_alive & (tokens == EOS_ID)
        # [R, K, t] --> [R, K, t + 1]
        ids = tf.concat([state.alive_ids, tokens[:, :, None]], axis=2)
        finished_ids = tf.pad(state.finished_ids, [[0, 0], [0, 0], [0, 1]])
        state = state._replace(
            t=state.t + 1,
            alive_ids=ids,
            alive_log_probs=tf.where(is_alive & ~is_end, log_probs, MISSING),
            finished_ids=tf.where(is_end[:, :, None], ids, finished_ids),
            finished_scores=tf.where(is_end, log_probs / length_penalty(state.t + 1, alpha), state.finished_scores),
            cache=cache,
        )
        is_done = (state.t >= state.limits) | tf.reduce_all(state.alive_log_probs == MISSING, axis=1)  # [R]
        parents = tf.range(count)[None] + tf.zeros_like(tokens)  # [R, K]: each output extends itself
        return remove_done(state, parents, is_done, decode_hparams, scoring)

    return advance_until_done(advance, start_state(cache, memory, limits, [0.0] * count, count))


def draw(logits: tf.Tensor, random: tf.Tensor, decode_hparams: DecodeHParams) -> tf.Tensor:
    """Returns int32 [R, K], the tokens that the random numbers draw from the distributions.

    Args:
        logits: [R, K, V].
        random: [R, K] in [0, 1).
        decode_hparams: temperature, top-k and top-p.
    """
    top_k, top_p = decode_hparams.sampling_keep_top_k, decode_hparams.sampling_keep_top_p
    logits, tokens = logits / decode_hparams.sampling_temp, None
    if top_k or top_p < 1:
        vocabulary = tf.shape(logits)[2]
        logits, tokens = tf.math.top_k(logits, tf.minimum(top_k, vocabulary) if top_k else vocabulary)
    probabilities = tf.nn.softmax(logits)
    cumulative = tf.cumsum(probabilities, axis=2)
    if top_p < 1:  # keep a token if the tokens before it have a smaller probability than top_p
        is_kept = tf.cast(cumulative - probabilities < top_p, tf.float32)
        cumulative = tf.cumsum(probabilities * is_kept, axis=2)
    threshold = random[:, :, None] * cumulative[:, :, -1:]
    # The token at which the cumulative probability passes the threshold. If rounding has raised the threshold to the
    # total, the last token with a probability.
    index = tf.minimum(
        tf.math.count_nonzero(cumulative <= threshold, axis=2, dtype=tf.int32),
        tf.math.count_nonzero(cumulative < cumulative[:, :, -1:], axis=2, dtype=tf.int32),
    )
    return index if tokens is None else tf.gather(tokens, index, batch_dims=2)
