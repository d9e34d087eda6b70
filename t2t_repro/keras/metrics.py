"""Metrics of target tokens for Keras, from target ids [B, T] and logits [B, T, V]. Padding does not
count.
"""

from typing import Any

import keras
from keras import ops

from t2t_repro.training.loss import smoothed_cross_entropy


@keras.saving.register_keras_serializable("t2t_repro")
class TokenAccuracy(keras.metrics.Mean):
    """Fraction of the target tokens that are the model's most probable prediction; see
    `Evaluation.accuracy`.
    """

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        is_token = y_true != 0
        is_correct = ops.equal(ops.argmax(y_pred, axis=-1), y_true)
        super().update_state(ops.reshape(is_correct, (-1,)), ops.reshape(is_token, (-1,)))


@keras.saving.register_keras_serializable("t2t_repro")
class Perplexity(keras.metrics.Mean):
    """exp of the mean negative log-likelihood of the target tokens, without label smoothing."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        tokens = ops.cast(ops.count_nonzero(y_true), "float32")
        super().update_state(
            ops.divide_no_nan(smoothed_cross_entropy(y_pred, y_true, 0.0), tokens), tokens
        )

    def result(self) -> Any:
        return ops.exp(super().result())
