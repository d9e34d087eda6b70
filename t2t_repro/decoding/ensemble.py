"""Several models as one model that averages their log-probabilities.

Shapes: B batch, K hypotheses, H heads, T target length, S source length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class Ensemble:
    """A model that decodes with several models over one vocabulary; each member has its own cache and memory.

    The log-probability of a token is the mean over the members, so the log-probability of a text is too.
    """

    name = "ensemble"
    is_normalized = True

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        self.has_attention = all(model.has_attention for model in self.models)
        self.missing_methods = tuple(method for model in self.models for method in model.missing_methods)
        self.trainable_variables = [variable for model in self.models for variable in model.trainable_variables]

    def __call__(self, inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Returns log-probabilities [B, T, V] of given targets; see `Model`."""
        return mean([tf.nn.log_softmax(model(inputs, targets, seed)) for model in self.models])

    def encode(self, inputs: tf.Tensor) -> list[Any]:
        """Returns the members' memories of source ids [B, S]."""
        return [model.encode(inputs) for model in self.models]

    def start(self, hypotheses: tf.Tensor) -> list[Any]:
        """Returns the members' empty caches."""
        return [model.start(hypotheses) for model in self.models]

    def decode_step(
        self, ids: tf.Tensor, t: tf.Tensor, cache: list[Any], memory: list[Any], save_weights_to: list | None = None
    ) -> tuple[tf.Tensor, list[Any]]:
        """Returns log-probabilities [B, K, V] of the next token; see `DecodingModel.decode_step`."""
        log_probs, caches, weights = [], [], list[Any]()
        for model, model_cache, model_memory in zip(self.models, cache, memory, strict=True):
            options: dict[str, Any] = {} if save_weights_to is None else {"save_weights_to": []}
            logits, model_cache = model.decode_step(ids, t, model_cache, model_memory, **options)
            log_probs.append(tf.nn.log_softmax(logits))
            caches.append(model_cache)
            weights += options.values()
        if save_weights_to is not None:
            save_weights_to.append(_mean_attention(weights))
        return mean(log_probs), caches

    def decode(self, targets: tf.Tensor, memory: list[Any], save_weights_to: list | None = None) -> tf.Tensor:
        """Returns log-probabilities [B, T, V] of given targets; see `DecodingModel.decode`."""
        log_probs, weights = [], list[Any]()
        for model, model_memory in zip(self.models, memory, strict=True):
            options: dict[str, Any] = {} if save_weights_to is None else {"save_weights_to": []}
            log_probs.append(tf.nn.log_softmax(model.decode(targets, model_memory, **options)))
            weights += options.values()
        if save_weights_to is not None:
            save_weights_to.append(_mean_attention(weights))
        return mean(log_probs)


def mean(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the mean of tensors of one shape."""
    return tf.add_n(list(tensors)) / len(tensors)


def _mean_attention(weights_of_models: Sequence[Sequence[tf.Tensor]]) -> tf.Tensor:
    """Returns [B, 1, T, S], the mean over the members and over the heads of their last layers, [B, H, T, S]."""
    return mean([tf.reduce_mean(weights[-1], axis=1, keepdims=True) for weights in weights_of_models])
