"""Several models as one that averages their log-probabilities.

Shapes: B batch, K hypotheses, T target length, S source length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class Ensemble:
    """Models over one vocabulary, to be searched as one; each member keeps a cache and a memory of its own.

    Its log-probability of a token is the mean of the members', so that of a text is too.
    """

    name = "ensemble"
    is_normalized = True

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        self.has_attention = all(model.has_attention for model in self.models)
        self.missing_methods = tuple(method for model in self.models for method in model.missing_methods)
        self.trainable_variables = [variable for model in self.models for variable in model.trainable_variables]

    def __call__(self, inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Log-probabilities [B, T, V] of given targets; see `Model`."""
        return mean([tf.nn.log_softmax(model(inputs, targets, seed)) for model in self.models])

    def encode(self, inputs: tf.Tensor) -> list[Any]:
        """Source ids [B, S] -> each member's memory."""
        return [model.encode(inputs) for model in self.models]

    def start(self, hypotheses: tf.Tensor) -> list[Any]:
        """Each member's empty past."""
        return [model.start(hypotheses) for model in self.models]

    def decode_step(
        self, ids: tf.Tensor, t: tf.Tensor, cache: list[Any], memory: list[Any], save_weights_to: list | None = None
    ) -> tuple[tf.Tensor, list[Any]]:
        """Log-probabilities [B, K, V] of the next token; see `Transformer.decode_step`."""
        log_probs, longer, weights = [], [], list[Any]()
        for model, past, seen in zip(self.models, cache, memory, strict=True):
            own: list[tf.Tensor] | None = None if save_weights_to is None else []
            given = {} if own is None else {"save_weights_to": own}
            logits, past = model.decode_step(ids, t, past, seen, **given)
            log_probs.append(tf.nn.log_softmax(logits))
            longer.append(past)
            weights.append(own)
        _save_mean(weights, save_weights_to)
        return mean(log_probs), longer

    def decode(self, targets: tf.Tensor, memory: list[Any], save_weights_to: list | None = None) -> tf.Tensor:
        """Log-probabilities [B, T, V] of given targets; see `Transformer.decode`."""
        log_probs, weights = [], list[Any]()
        for model, seen in zip(self.models, memory, strict=True):
            own: list[tf.Tensor] | None = None if save_weights_to is None else []
            given = {} if own is None else {"save_weights_to": own}
            log_probs.append(tf.nn.log_softmax(model.decode(targets, seen, **given)))
            weights.append(own)
        _save_mean(weights, save_weights_to)
        return mean(log_probs)


def mean(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The mean of tensors of one shape."""
    return tf.add_n(list(tensors)) / len(tensors)


def _save_mean(weights: Sequence[Sequence[tf.Tensor]], save_weights_to: list | None) -> None:
    """One tensor [B, 1, T, S] for all: the mean over members and the heads of their last layers."""
    if save_weights_to is not None:
        save_weights_to.append(mean([tf.reduce_mean(own[-1], axis=1, keepdims=True) for own in weights]))
