"""What else has a say in the choice of an output: its prefix, what it repeats, and what it leaves untranslated.

Shapes: R sentences, K hypotheses, t positions so far, S source length, P longest prefix, V vocabulary.
"""

from __future__ import annotations

import tensorflow as tf

from t2t_repro.data.vocabulary import PAD_ID

LEAST_COVERAGE = 1e-6
"""Attention that each source token is taken to have had: the logarithm of none is infinite."""


def with_prefix(logits: tf.Tensor, changed: tf.Tensor, prefix: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
    """Logits [R, K, V] at position t: where the prefix has a token, -inf for all others.

    Args:
        logits: the model's, which the prefix's token keeps whatever is forbidden.
        changed: what holds where the prefix has no token.
        prefix: int32 [R, P], padded with 0.
    """
    forced = tf.pad(prefix, [[0, 0], [0, 1]])[:, tf.minimum(t, tf.shape(prefix)[1])]
    only = tf.one_hot(forced, tf.shape(logits)[2], on_value=0.0, off_value=float("-inf"))
    return tf.where(forced[:, None, None] == PAD_ID, changed, logits + only[:, None])


def without_repeats(logits: tf.Tensor, ids: tf.Tensor, size: int, penalty: float) -> tf.Tensor:
    """Logits [R, K, V], less `penalty` for each token that would complete an n-gram which the hypothesis has already.

    Args:
        ids: int32 [R, K, t].
        size: tokens of an n-gram, 1 or more.
    """
    shape, length = tf.shape(logits), tf.shape(ids)[2]
    windows = tf.maximum(length - size + 1, 0)  # each of `size` tokens; the last begins at t - size
    is_repeat = tf.ones_like(ids[:, :, :windows], tf.bool)
    for place in range(size - 1):
        latest = tf.maximum(length - size + 1 + place, 0)
        is_repeat &= ids[:, :, place : place + windows] == ids[:, :, latest : latest + 1]
    followers = ids[:, :, size - 1 : size - 1 + windows]  # [R, K, t - size + 1]
    hypotheses = tf.reshape(tf.range(shape[0] * shape[1]), [shape[0], shape[1], 1])
    worst = tf.math.unsorted_segment_max(  # of an n-gram that is there twice it counts once
        tf.where(is_repeat, penalty, 0.0), hypotheses * shape[2] + followers, shape[0] * shape[1] * shape[2]
    )
    return logits - tf.reshape(tf.maximum(worst, 0.0), shape)


def coverage(attention: tf.Tensor, is_token: tf.Tensor, beta: float) -> tf.Tensor:
    """beta times the sum over source tokens of log(min(attention, 1)), [R, K] (Wu et al. 2016, equation 14).

    Args:
        attention: [R, K, S], what each source token had of all positions so far.
        is_token: bool [R, S], false for padding.
    """
    logs = tf.math.log(tf.clip_by_value(attention, LEAST_COVERAGE, 1.0))
    return beta * tf.reduce_sum(tf.where(is_token[:, None], logs, 0.0), axis=2)
