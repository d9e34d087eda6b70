"""A model's outputs as decode_hparams ask for them, and its log-probabilities of given ones: ids in, ids out.

The served graph and the translator run the same two functions.

Shapes: B batch, S source length, T target length, K hypotheses, n outputs, P longest prefix, L longest output, H heads.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from t2t_repro.data.vocabulary import PAD_ID
from t2t_repro.decoding.beam_search import Hypotheses, beam_search
from t2t_repro.decoding.rules import coverage, with_prefix, without_repeats
from t2t_repro.decoding.sampling import sample
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.model import DecodingModel


def search(
    model: DecodingModel,
    params: DecodeHParams,
    inputs: tf.Tensor,
    prefix: tf.Tensor | None = None,
    random: tf.Tensor | None = None,
) -> Hypotheses:
    """The best outputs of each source, or some that are drawn.

    Args:
        inputs: int32 [B, S], each row ended by the end token and padded with 0.
        prefix: int32 [B, P], padded with 0: how each output begins.
        random: float32 [B, n, L] in 0 .. 1, which decides what is drawn.

    Returns:
        Hypotheses with n = params.num_best.
    """
    hypotheses = params.num_best if params.is_random else params.beam_size
    limits = tf.math.count_nonzero(inputs, axis=1, dtype=tf.int32) + params.extra_length
    memory, cache = {"model": model.encode(inputs)}, {"model": model.start(tf.shape(inputs)[0] * hypotheses)}
    if prefix is not None:
        memory["prefix"] = prefix
        limits += tf.math.count_nonzero(prefix, axis=1, dtype=tf.int32)
    if params.coverage_penalty:
        memory["is_token"] = inputs != PAD_ID
        cache["attention"] = tf.zeros([tf.shape(inputs)[0] * hypotheses, tf.shape(inputs)[1]])

    def step(ids: tf.Tensor, t: tf.Tensor, cache: Any, memory: Any) -> tuple[tf.Tensor, Any]:
        if not params.coverage_penalty:
            logits, past = model.decode_step(ids, t, cache["model"], memory["model"])
            return logits, {"model": past}
        weights: list[tf.Tensor] = []
        logits, past = model.decode_step(ids, t, cache["model"], memory["model"], save_weights_to=weights)
        attention = tf.reduce_mean(weights[-1], axis=1)  # of the last layer, over its heads: [R, K, S]
        return logits, {
            "model": past,
            "attention": cache["attention"] + tf.reshape(attention, tf.shape(cache["attention"])),
        }

    def adjust(logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: Any) -> tf.Tensor:
        changed = logits + tf.one_hot(PAD_ID, tf.shape(logits)[2], float("-inf"), 0.0)  # padding is no output
        if params.repeat_ngram_size:
            changed = without_repeats(changed, ids, params.repeat_ngram_size, params.repeat_ngram_penalty)
        return changed if prefix is None else with_prefix(logits, changed, memory["prefix"], t)

    def bonus(cache: Any, memory: Any) -> tf.Tensor:
        rows, length = tf.unstack(tf.shape(memory["is_token"]))
        attention = tf.reshape(cache["attention"], [rows, hypotheses, length])
        return coverage(attention, memory["is_token"], params.coverage_penalty)

    normalize = not model.is_normalized
    if params.is_random:
        memory["random"] = random
        cuts = params.sampling_temp, params.sampling_keep_top_k, params.sampling_keep_top_p
        return sample(step, cache, memory, limits, hypotheses, params.alpha, *cuts, normalize, adjust)
    added = bonus if params.coverage_penalty else None
    return beam_search(step, cache, memory, limits, hypotheses, params.alpha, params.num_best, normalize, adjust, added)


def target_log_probs(model: Any, inputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """How likely each token of given targets is, after those before it, and where the model looks to predict it.

    Args:
        model: a `Model`; if it has attention, also a `DecodingModel`.
        inputs: int32 [B, S], each row ended by the end token and padded with 0.
        targets: int32 [B, T], the same.

    Returns:
        Log-probabilities float32 [B, T] in nats, 0 for padding, and int32 [B, T], the source position that the last
        decoder layer attends to most, in the mean of its heads; [B, 0] if the model has no attention.
    """
    weights: list[tf.Tensor] = []
    if model.has_attention:
        logits = model.decode(targets, model.encode(inputs), save_weights_to=weights)
    else:
        logits = model(inputs, targets)
    log_probs = tf.gather(logits, targets, batch_dims=2)
    if not model.is_normalized:
        log_probs -= tf.reduce_logsumexp(logits, axis=2)
    if weights:
        looked_at = tf.argmax(tf.reduce_mean(weights[-1], axis=1), axis=2, output_type=tf.int32)
    else:
        looked_at = tf.zeros([tf.shape(targets)[0], 0], tf.int32)
    return tf.where(targets == PAD_ID, 0.0, log_probs), looked_at
