"""An ensemble: several models that decode together, with the mean of their log-probabilities.

Shapes: B batch, K hypotheses, H heads, T target length, S source length, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class Ensemble:
    """A `DecodingModel` made of several models, its members, which returns the mean of their
    log-probabilities.

    The memory and the cache of an ensemble are lists with one member's memory or cache in each
    element.
    """

    name = "ensemble"
    is_normalized = True

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        self.has_attention = all(model.has_attention for model in self.models)
        self.missing_methods = tuple(
            method for model in self.models for method in model.missing_methods
        )
        self.losses: list[tf.Tensor] = []
        self.trainable_variables = [
            variable for model in self.models for variable in model.trainable_variables
        ]

    def __call__(
        self, inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        return _mean([model(inputs, targets, seed) for model in self.models])

    def encode(self, inputs: tf.Tensor) -> list[Any]:
        return [model.encode(inputs) for model in self.models]

    def start(self, hypotheses: tf.Tensor) -> list[Any]:
        return [model.start(hypotheses) for model in self.models]

    def decode_step(
        self,
        ids: tf.Tensor,
        t: tf.Tensor,
        cache: list[Any],
        memory: list[Any],
        return_attention: bool = False,
    ) -> Any:
        options = {"return_attention": True} if return_attention else {}
        steps = [
            model.decode_step(ids, t, model_cache, model_memory, **options)
            for model, model_cache, model_memory in zip(self.models, cache, memory, strict=True)
        ]
        logits = _mean([step[0] for step in steps])
        new_cache = [step[1] for step in steps]
        if not return_attention:
            return logits, new_cache
        return logits, new_cache, _mean_attention([step[2] for step in steps])

    def decode(self, targets: tf.Tensor, memory: list[Any], return_attention: bool = False) -> Any:
        pairs = list(zip(self.models, memory, strict=True))
        if not return_attention:
            return _mean([model.decode(targets, model_memory) for model, model_memory in pairs])
        results = [
            model.decode(targets, model_memory, return_attention=True)
            for model, model_memory in pairs
        ]
        logits, attention = zip(*results, strict=True)
        return _mean(logits), _mean_attention(attention)


def _mean(logits: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the mean of the members' log-probabilities, given their logits."""
    return tf.add_n([tf.nn.log_softmax(member_logits) for member_logits in logits]) / len(logits)


def _mean_attention(attention: Sequence[list[dict[str, tf.Tensor]]]) -> list[dict[str, tf.Tensor]]:
    """Returns the mean cross-attention weights [B, 1, T, S] of the members, as of one layer.

    The mean is over the heads of each member's last layer, then over the members.
    """
    means = [tf.reduce_mean(layers[-1]["cross"], axis=1, keepdims=True) for layers in attention]
    return [{"cross": tf.add_n(means) / len(means)}]
