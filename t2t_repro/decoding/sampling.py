"""Random outputs, drawn from the model's distribution token by token.

The outputs of a sentence do not depend on the other sentences. As in beam search, a sentence is
removed from the batch when all its outputs have ended or reached the length limit.

Shapes: B sentences at the start, R sentences that are not done, K outputs per sentence, t positions
decoded so far, V vocabulary, L longest limit.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.decoding.beam_search import (
    MISSING,
    Hypotheses,
    Scoring,
    State,
    advance_until_done,
    first_state,
    last_ids,
    length_penalty,
    remove_done,
    with_padding,
)
from t2t_repro.hparam import DecodeHParams


def random_numbers(seed: int, line: int, segment: int, length: int, count: int) -> np.ndarray:
    """Returns the random numbers in [0, 1) from which the outputs of a segment are drawn, float32
    [count, length].

    The numbers depend only on the arguments. A larger `count` or `length` adds numbers and does not
    change the others.

    `line` and `segment` are the numbers, from 0, of the segment's line in the file and of the
    segment in its line. An output has `length` random numbers, one for each position.
    """
    streams = (
        np.random.Philox(counter=[0, 0, output, segment], key=[seed, line])
        for output in range(count)
    )
    return np.stack([np.random.Generator(stream).random(length, np.float32) for stream in streams])


def sample(
    scoring: Scoring,
    cache: Any,
    memory: dict[str, Any],
    limits: tf.Tensor,
    decode_hparams: DecodeHParams,
) -> Hypotheses:
    """Returns random outputs. Temperature, top-k and top-p change how often an output is drawn, but
    not its score.

    Args:
        scoring: the model, as `beam_search` uses it, but `scoring.bonus` must be None.
        cache: what the model keeps of earlier positions; its tensors are [B * K, ...].
        memory: what the model knows about the sources, and "random", float32 [B, K, L] in [0, 1):
            the random number for each token. Its tensors are [B, ...].
        limits: int64 [B], the maximum length of each sentence's outputs, counting the end token.
        decode_hparams: the function uses `n` (K), `alpha` and the fields `sampling_...`.

    Returns:
        K outputs per sentence in the order in which they were drawn, but outputs without an end
        token come last.
    """
    count = decode_hparams.n

    def advance(state: State) -> State:
        # The logits of each output's next token [R, K, V], and the logarithm of their softmax's
        # denominator [R, K].
        logits, cache = scoring.step(last_ids(state, count), state.t, state.cache, state.memory)
        normalizer = tf.reduce_logsumexp(logits, axis=2) if scoring.normalize else 0.0
        if scoring.adjust:
            logits = scoring.adjust(logits, state.alive_ids[:, :, 1:], state.t, state.memory)
        # Draw the next token of each output, padding for outputs that have ended: [R, K, V] --> [R,
        # K]
        is_alive = state.alive_log_probs > MISSING
        drawn = draw(logits, state.memory["random"][:, :, state.t], decode_hparams)
        tokens = tf.where(is_alive, drawn, tf.constant(PAD_ID, tf.int64))
        log_probs = state.alive_log_probs + tf.gather(logits, tokens, batch_dims=2) - normalizer
        is_end = is_alive & (tokens == EOS_ID)
        scores = log_probs / length_penalty(state.t + 1, decode_hparams.alpha)
        # Append the tokens to the outputs: [R, K, 1 + t] --> [R, K, 2 + t]
        ids = tf.concat([state.alive_ids, tokens[:, :, None]], axis=2)
        state = state._replace(
            t=state.t + 1,
            alive_ids=ids,
            alive_log_probs=tf.where(is_alive & ~is_end, log_probs, MISSING),
            finished_ids=tf.where(is_end[:, :, None], ids, with_padding(state.finished_ids)),
            finished_scores=tf.where(is_end, scores, state.finished_scores),
            cache=cache,
        )
        # A sentence is done at its length limit, or when all its outputs have ended: bool [R]
        has_ended = tf.reduce_all(state.alive_log_probs == MISSING, axis=1)
        is_done = has_ended | (tf.cast(state.t, tf.int64) >= state.limits)
        # Each output is its own parent: [R, K]
        parents = tf.tile(tf.range(count, dtype=tf.int64)[None], [tf.shape(tokens)[0], 1])
        return remove_done(state, parents, is_done, decode_hparams, scoring)

    return advance_until_done(advance, first_state(cache, memory, limits, decode_hparams))


def draw(logits: tf.Tensor, random: tf.Tensor, decode_hparams: DecodeHParams) -> tf.Tensor:
    """Returns the next token of each output, int64 [R, K], drawn at random from the softmax of the
    logits.

    Args:
        logits: [R, K, V].
        random: [R, K] in [0, 1), the random number for each token.
        decode_hparams: has temperature, top-k and top-p.
    """
    top_k = decode_hparams.sampling_keep_top_k
    top_p = decode_hparams.sampling_keep_top_p
    logits /= decode_hparams.sampling_temp
    is_sorted = top_k > 0 or top_p < 1
    if is_sorted:
        vocabulary = tf.shape(logits)[2]
        count = tf.minimum(top_k, vocabulary) if top_k else vocabulary
        logits, tokens = tf.math.top_k(logits, count)
    probabilities = tf.nn.softmax(logits)
    cumulative = tf.cumsum(probabilities, axis=2)
    if top_p < 1:  # keep a token if the likelier tokens have a total probability below top_p
        is_kept = tf.cast(cumulative - probabilities < top_p, tf.float32)
        cumulative = tf.cumsum(probabilities * is_kept, axis=2)
    threshold = random[:, :, None] * cumulative[:, :, -1:]
    # Draw the first token whose cumulative probability is larger than the threshold. If rounding
    # has made the threshold equal to the total probability, draw the last token whose probability
    # is not 0.
    index = tf.minimum(
        tf.math.count_nonzero(cumulative <= threshold, axis=2),
        tf.math.count_nonzero(cumulative < cumulative[:, :, -1:], axis=2),
    )
    return tf.cast(tf.gather(tokens, index, batch_dims=2), tf.int64) if is_sorted else index
