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
        save_weights_to: list | None = None,
    ) -> tuple[tf.Tensor, list[Any]]:
        options = self._options(save_weights_to)
        steps = [
            model.decode_step(ids, t, model_cache, model_memory, **model_options)
            for model, model_cache, model_memory, model_options in zip(
                self.models, cache, memory, options, strict=True
            )
        ]
        return _mean([logits for logits, _ in steps], options, save_weights_to), [
            cache for _, cache in steps
        ]

    def decode(
        self, targets: tf.Tensor, memory: list[Any], save_weights_to: list | None = None
    ) -> tf.Tensor:
        options = self._options(save_weights_to)
        logits = [
            model.decode(targets, model_memory, **model_options)
            for model, model_memory, model_options in zip(self.models, memory, options, strict=True)
        ]
        return _mean(logits, options, save_weights_to)

    def _options(self, save_weights_to: list | None) -> list[dict[str, list]]:
        """Returns the keyword arguments of each member: a list for its attention weights, if they
        are needed.
        """
        return [{} if save_weights_to is None else {"save_weights_to": []} for _ in self.models]


def _mean(
    logits: Sequence[tf.Tensor],
    options: Sequence[dict[str, list]] = (),
    save_weights_to: list | None = None,
) -> tf.Tensor:
    """Returns the mean of the members' log-probabilities, computed from the members' `logits`.

    If `save_weights_to` is a list, this function appends the mean attention weights [B, 1, T, S] to
    the list. The mean is over the heads of each member's last layer, then over the members.
    """
    if save_weights_to is not None:
        weights = [option["save_weights_to"][-1] for option in options]
        save_weights_to.append(
            tf.add_n([tf.reduce_mean(w, axis=1, keepdims=True) for w in weights]) / len(weights)
        )
    return tf.add_n([tf.nn.log_softmax(member_logits) for member_logits in logits]) / len(logits)
