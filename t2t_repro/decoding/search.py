"""Generation of outputs by beam search or sampling, and scoring of given targets. Texts are arrays
of token ids.

The translator and the exported model for serving call these functions.

Shapes: B batch, S source length, T target length, K hypotheses, n outputs, P longest prefix, L
longest output, F most facts about a source, R sentences that are not done, V vocabulary, H heads.
"""

from typing import Any

import tensorflow as tf

from t2t_repro.data.vocabularies.text_rules import PAD_ID
from t2t_repro.decoding.beam_search import Hypotheses, Scoring, beam_search
from t2t_repro.decoding.rules import Rules, coverage, with_prefix, without_repeats
from t2t_repro.decoding.sampling import sample
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.model import DecodingModel

Sources = dict[str, Any]
"""A batch of sources, and what the search needs to know about each of them. All arrays but the
first may be missing.

- "inputs": the sources, int32 [B, S], each ended by the end token and padded with 0.
- "prefix": int32 [B, P], padded with 0: the tokens with which the outputs of each source must
  begin.
- "random": float32 [B, n, L] in [0, 1), the random number for each token of each output, if outputs
  are drawn.
- "facts": int32 [B, F], the facts about each source that the rules need; see `Rules.facts`.
"""


def generate_outputs(
    model: DecodingModel,
    decode_hparams: DecodeHParams,
    sources: Sources,
    rules: Rules | None = None,
) -> Hypotheses:
    """Returns n outputs of each source, with ids of int32, found by beam search or, if `is_random`,
    drawn at random.
    """
    search = sample if decode_hparams.is_random else beam_search
    hypotheses = search(*start_search(model, decode_hparams, sources, rules), decode_hparams)
    return Hypotheses(tf.cast(hypotheses.ids, tf.int32), hypotheses.scores)


def start_search(
    model: DecodingModel, decode_hparams: DecodeHParams, sources: Sources, rules: Rules | None
) -> tuple[Scoring, dict[str, Any], dict[str, Any], tf.Tensor]:
    """Encodes the sources, and returns the arguments of `beam_search` and `sample`, without the
    decode hparams.
    """
    inputs = tf.cast(sources["inputs"], tf.int64)
    batch, length = tf.unstack(tf.shape(inputs))
    hypotheses = batch * (
        decode_hparams.n if decode_hparams.is_random else decode_hparams.beam_size
    )
    limits = tf.math.count_nonzero(inputs, axis=1) + decode_hparams.extra_length
    memory = {"model": model.encode(inputs)}
    cache = {"model": model.start(hypotheses)}
    if "prefix" in sources:
        memory["prefix"] = tf.cast(tf.pad(sources["prefix"], [[0, 0], [0, 1]]), tf.int64)
        limits += tf.math.count_nonzero(memory["prefix"], axis=1)
    if rules:
        # Every source has room for an output, even if extra_length is 0 or the end of a long source
        # was dropped.
        facts = sources["facts"]
        limits = tf.maximum(limits, tf.math.count_nonzero(facts, axis=1) + rules.min_extra)
        memory |= {"facts": tf.pad(facts, [[0, 0], [0, 1]]), "limits": tf.cast(limits, tf.int32)}
    if decode_hparams.coverage_penalty:
        memory["is_token"] = inputs != PAD_ID
        cache["attention"] = tf.zeros(
            [hypotheses, length]
        )  # the attention received so far by each source token
    if decode_hparams.is_random:
        memory["random"] = sources["random"]
    scoring = _scoring(model, decode_hparams, rules, has_prefix="prefix" in sources)
    return scoring, cache, memory, limits


def _scoring(
    model: DecodingModel, decode_hparams: DecodeHParams, rules: Rules | None, has_prefix: bool
) -> Scoring:
    """Returns functions that call the model, apply the penalties in `decode_hparams`, and force
    prefixes.

    `has_prefix` is true if there are prefixes, which these functions find in memory["prefix"].
    """
    beta = decode_hparams.coverage_penalty
    ngram_size = decode_hparams.repeat_ngram_size

    def step(ids: tf.Tensor, t: tf.Tensor, cache: Any, memory: Any) -> tuple[tf.Tensor, Any]:
        arguments = ids, t, cache["model"], memory["model"]
        if not beta:
            logits, model_cache = model.decode_step(*arguments)
            return logits, {"model": model_cache}
        logits, model_cache, weights = model.decode_step(*arguments, return_attention=True)
        # The last layer's attention, averaged over its heads: [R, H, K, S] --> [R, K, S] --> [R *
        # K, S]
        attention = tf.reshape(
            tf.reduce_mean(weights[-1]["cross"], axis=1), tf.shape(cache["attention"])
        )
        return logits, {"model": model_cache, "attention": cache["attention"] + attention}

    def adjust(logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: Any) -> tf.Tensor:
        allowed = logits + tf.one_hot(
            PAD_ID, tf.shape(logits)[2], float("-inf"), 0.0
        )  # -inf for padding
        if ngram_size:
            allowed = without_repeats(allowed, ids, ngram_size, decode_hparams.repeat_ngram_penalty)
        if rules:
            allowed = rules.mask(allowed, tf.cast(ids, tf.int32), t, memory)
        return with_prefix(logits, allowed, memory["prefix"], t) if has_prefix else allowed

    def bonus(cache: Any, memory: Any) -> tf.Tensor:
        sentences, length = tf.unstack(tf.shape(memory["is_token"]))
        attention = tf.reshape(cache["attention"], [sentences, decode_hparams.beam_size, length])
        return coverage(attention, memory["is_token"], beta)

    has_rules = bool(ngram_size or rules or has_prefix or decode_hparams.is_random)
    return Scoring(
        step, not model.is_normalized, adjust if has_rules else None, bonus if beta else None
    )


def target_log_probs(
    model: Any, inputs: tf.Tensor, targets: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns for each target token its log-probability, and the source token that gets the most
    attention.

    Args:
        model: a `DecodingModel` with attention, or any `Model` without attention.
        inputs: the sources, int32 [B, S], each ended by the end token and padded with 0.
        targets: the targets, int32 [B, T], each ended by the end token and padded with 0.

    Returns:
        Log-probabilities in nats, float32 [B, T], 0 for padding. And for each target token the
        position of the source token with the largest attention weight in the last decoder layer,
        averaged over its heads: int64 [B, T], or [B, 0] if the model has no attention.
    """
    inputs = tf.cast(inputs, tf.int64)
    targets = tf.cast(targets, tf.int64)
    weights: list[dict[str, tf.Tensor]] = []
    if model.has_attention:
        memory = model.encode(inputs)
        logits, weights = model.decode(targets, memory, return_attention=True)  # for all V tokens
    else:
        logits = model(inputs, targets)
    log_probs = tf.gather(logits, targets, batch_dims=2)  # [B, T], for the target's tokens
    if not model.is_normalized:
        log_probs -= tf.reduce_logsumexp(logits, axis=2)
    if weights:
        # The mean over the heads, then the position of the largest weight: [B, H, T, S] --> [B, T,
        # S] --> [B, T]
        attention = tf.argmax(tf.reduce_mean(weights[-1]["cross"], axis=1), axis=2)
    else:
        attention = tf.zeros([tf.shape(targets)[0], 0], tf.int64)
    return tf.where(targets == PAD_ID, 0.0, log_probs), attention
