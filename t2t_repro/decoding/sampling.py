"""Outputs drawn from the model's distribution, in place of a search; what is drawn depends on no other sentence.

As in a search, a sentence whose outputs have all ended leaves the batch. Shapes: R sentences not done yet, K outputs
drawn of each, t positions so far, V vocabulary, L longest limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabulary import EOS_ID, PAD_ID
from t2t_repro.decoding.beam_search import (
    NEVER,
    Adjust,
    Hypotheses,
    State,
    Step,
    last_ids,
    leave,
    length_penalty,
    run,
    start,
)


def random_numbers(seed: int, line: int, piece: int, length: int, count: int) -> np.ndarray:
    """What decides `count` outputs of a line: float32 [count, length] in 0 .. 1, more and longer ones beginning alike.

    Args:
        line: the line's number in the text.
        piece: which part of a line that was cut.
    """
    streams = (np.random.Philox(counter=[0, 0, output, piece], key=[seed, line]) for output in range(count))
    return np.stack([np.random.Generator(stream).random(length, np.float32) for stream in streams])


def sample(
    step: Step,
    cache: Any,
    memory: dict[str, Any],
    limits: tf.Tensor,
    count: int,
    alpha: float,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    normalize: bool = True,
    adjust: Adjust | None = None,
) -> Hypotheses:
    """Draws outputs token by token; their scores are the model's own, whatever temperature and cuts were.

    Args:
        step, cache, limits, alpha, normalize, adjust: as for `beam_search`, with K = count.
        memory: with "random", float32 [B, K, L] in 0 .. 1, which decides what is drawn.
        temperature: what logits are divided by.
        top_k: draw from so many likeliest tokens; 0 is all.
        top_p: draw from the fewest likeliest tokens with this probability together.

    Returns:
        Hypotheses with n = count in the order they were drawn; those that met the limit come last.
    """

    def advance(state: State) -> State:
        logits, cache = step(last_ids(state), state.t, state.cache, state.memory)
        base = tf.reduce_logsumexp(logits, axis=2) if normalize else 0.0
        if adjust:
            logits = adjust(logits, state.alive_ids, state.t, state.memory)
        is_alive = state.alive_log_probs > NEVER
        tokens = tf.where(
            is_alive, draw(logits / temperature, state.memory["random"][:, :, state.t], top_k, top_p), PAD_ID
        )
        log_probs = state.alive_log_probs + tf.gather(logits, tokens, batch_dims=2) - base
        ids = tf.concat([state.alive_ids, tokens[:, :, None]], axis=2)
        ended = is_alive & (tokens == EOS_ID)
        state = state._replace(
            t=state.t + 1,
            alive_ids=ids,
            alive_log_probs=tf.where(is_alive & ~ended, log_probs, NEVER),
            finished_ids=tf.where(ended[:, :, None], ids, tf.pad(state.finished_ids, [[0, 0], [0, 0], [0, 1]])),
            finished_scores=tf.where(ended, log_probs / length_penalty(state.t + 1, alpha), state.finished_scores),
            cache=cache,
        )
        over = (state.t >= state.limits) | tf.reduce_all(state.alive_log_probs == NEVER, axis=1)
        parents = tf.range(count)[None] + tf.zeros_like(tokens)
        return leave(state, parents, over, alpha, count)

    return run(advance, start(cache, memory, limits, [0.0] * count, count))


def draw(logits: tf.Tensor, random: tf.Tensor, top_k: int, top_p: float) -> tf.Tensor:
    """The token at which the cumulative probability passes a random number: int32 [R, K].

    Args:
        logits: [R, K, V].
        random: [R, K] in 0 .. 1.
    """
    tokens = None
    if top_k or top_p < 1:
        vocabulary = tf.shape(logits)[2]
        logits, tokens = tf.math.top_k(logits, tf.minimum(top_k, vocabulary) if top_k else vocabulary)
    probabilities = tf.nn.softmax(logits)
    cumulative = tf.cumsum(probabilities, axis=2)
    if top_p < 1:  # a token is kept where those before it do not suffice
        kept = tf.cast(cumulative - probabilities < top_p, tf.float32)
        cumulative = tf.cumsum(probabilities * kept, axis=2)
    wanted = random[:, :, None] * cumulative[:, :, -1:]
    # Rounding may take `wanted` up to the whole sum; what is drawn is then the last token that can be.
    place = tf.minimum(
        tf.math.count_nonzero(cumulative <= wanted, axis=2, dtype=tf.int32),
        tf.math.count_nonzero(cumulative < cumulative[:, :, -1:], axis=2, dtype=tf.int32),
    )
    return place if tokens is None else tf.gather(tokens, place, batch_dims=2)
