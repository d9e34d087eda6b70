"""Rules that change the ranking of outputs: forbidden tokens, prefixes, and penalties for
repetitions and for words of the source that the output leaves out.

Shapes: B or R sentences, K hypotheses per sentence, t positions decoded so far, S source length, P
longest prefix, V vocabulary, F most facts about a source, n n-gram size, W = t - n + 1 n-grams in a
hypothesis.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabularies.text_rules import PAD_ID

MINIMUM_COVERAGE = 1e-6
"""The coverage penalty raises a source token's attention to at least this number, so that its
logarithm is finite.
"""


class Rules(Protocol):
    """The rules that outputs must obey if the decode hparam `well_formed` is true: which tokens may
    follow. A problem provides them (`Problem.output_rules`).

    The rules know a source by facts, positive numbers in the order of the words to which they
    belong. An output has at least one token for each fact.
    """

    min_extra: int
    """The other tokens of the shortest output, counting the end token."""

    def facts(self, lines: Sequence[str]) -> np.ndarray:
        """Returns the facts about each source line, int32 [B, F], padded with 0."""

    def graph_facts(self, lines: Any, tokenizer: Any) -> Any:
        """Applies `facts` to a tensor of strings [B]. `tokenizer` is the vocabulary as TensorFlow
        operations.
        """

    def mask(
        self, logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the logits [R, K, V] of position t, with -inf for the tokens that the rules
        forbid.

        Args:
            ids: int32 [R, K, t], the tokens of the hypotheses.
            memory: "facts", int32 [R, F + 1], the result of `facts` and a 0. "limits", int32 [R],
                the maximum length of each sentence's output, counting the end token.
        """


def with_prefix(
    logits: tf.Tensor, adjusted: tf.Tensor, prefix: tf.Tensor, t: tf.Tensor
) -> tf.Tensor:
    """Returns the logits [R, K, V] of position t. If a prefix has a token at position t, all other
    tokens get -inf.

    Args:
        logits: the model's logits. The prefix's token keeps its logit in this tensor even if other
            rules forbid it.
        adjusted: the logits after other rules, used for sentences whose prefix has no token at
            position t.
        prefix: int64 [R, P + 1], the tokens with which each sentence's outputs must begin, padded
            with at least one 0.
    """
    forced = prefix[:, tf.minimum(t, tf.shape(prefix)[1] - 1)]  # [R]: prefix token at t, or 0
    # [R, V]: 0 for the prefix token, -inf for all other tokens
    mask = tf.one_hot(forced, tf.shape(logits)[2], on_value=0.0, off_value=float("-inf"))
    return tf.where(forced[:, None, None] == PAD_ID, adjusted, logits + mask[:, None])


def without_repeats(logits: tf.Tensor, ids: tf.Tensor, size: int, penalty: float) -> tf.Tensor:
    """Returns the logits [R, K, V], lowered by `penalty` for tokens that would repeat an n-gram of
    their hypothesis.

    Args:
        ids: int64 [R, K, t], the tokens of the hypotheses.
        size: n, the number of tokens in an n-gram, at least 1.
    """
    length = tf.shape(ids)[2]
    num_ngrams = tf.maximum(length - size + 1, 0)
    # bool [R, K, W]: true for an n-gram whose first n - 1 tokens are the hypothesis's last n - 1
    # tokens
    is_match = tf.ones_like(ids[:, :, :num_ngrams], tf.bool)
    for offset in range(size - 1):
        latest = tf.maximum(length - size + 1 + offset, 0)
        is_match &= ids[:, :, offset : offset + num_ngrams] == ids[:, :, latest : latest + 1]
    endings = ids[:, :, size - 1 : size - 1 + num_ngrams]
    # Each token that ends a matching n-gram gets the penalty. If a token ends several matching
    # n-grams, the maximum gives the token only one penalty. Matches [R, K, W] --> penalties [R * K
    # * V] --> [R, K, V]
    sentences, hypotheses, vocabulary = tf.unstack(tf.shape(logits))
    rows = tf.reshape(tf.range(sentences * hypotheses), [sentences, hypotheses, 1])
    penalties = tf.math.unsorted_segment_max(
        tf.where(is_match, penalty, 0.0),
        tf.cast(rows * vocabulary, tf.int64) + endings,
        sentences * hypotheses * vocabulary,
    )
    return logits - tf.reshape(tf.maximum(penalties, 0.0), tf.shape(logits))


def coverage(attention: tf.Tensor, is_token: tf.Tensor, beta: float) -> tf.Tensor:
    """Returns the coverage penalty [R, K] of Wu et al. (2016): beta * sum of log(min(attention, 1))
    over source tokens.

    Args:
        attention: [R, K, S], the attention that each source token has received, summed over the
            output's positions.
        is_token: bool [R, S], true for source tokens, false for padding.
    """
    logs = tf.math.log(tf.clip_by_value(attention, MINIMUM_COVERAGE, 1.0))
    return beta * tf.reduce_sum(tf.where(is_token[:, None], logs, 0.0), axis=2)
