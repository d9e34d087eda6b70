"""How well a model predicts text it was not trained on: loss and perplexity per token (Table 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from t2t_repro.data.pipeline import batches_once
from t2t_repro.data.records import Records
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.step import IDS


@dataclass(frozen=True)
class Evaluation:
    """What was measured.

    Attributes:
        loss: negative log-likelihood in nats per target token, the end token counted, without label smoothing.
        tokens: target tokens.
    """

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss): per subword, so it compares with that of the same vocabulary only."""
        return math.exp(min(self.loss, 700.0))


class Evaluator:
    """Measures a model on all records of a split.

    Args:
        model: called as model(inputs, targets) -> logits.
        records: the split.
        max_tokens: positions that are evaluated together.
        max_batches: stop after so many batches; 0 is all.
    """

    def __init__(self, model: Any, records: Records, max_tokens: int, max_batches: int = 0) -> None:
        self._records, self._max_tokens, self._max_batches = records, max_tokens, max_batches

        def loss(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            return smoothed_cross_entropy(model(inputs, targets), targets, 0.0)

        self._loss = tf.function(loss, autograph=False, input_signature=[IDS, IDS])

    def __call__(self) -> Evaluation:
        """Measures the model as it is now."""
        total, tokens = 0.0, 0
        for count, (inputs, targets) in enumerate(batches_once(self._records, self._max_tokens), 1):
            total += float(self._loss(inputs, targets))
            tokens += int((targets != 0).sum())
            if count == self._max_batches:
                break
        return Evaluation(total / max(tokens, 1), tokens)
