"""The training of a model with measurements, for benchmarks that ask why models learn slowly."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.data.pipeline import Batch, MicroBatch
from t2t_repro.hparam import HParams
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import IDS, TrainStep

VOCAB_SIZE = 8000
SEED = 1
EVAL_TOKENS = 4096


class Run:
    """Our model, and its training.

    Args:
        hparams: all hparams of the run.
        precision: that of the products.
        factors: factors of the initial values of matrices, by a part of their names.
    """

    def __init__(self, hparams: HParams, precision: str, factors: dict[str, float]) -> None:
        keras.utils.set_random_seed(SEED)
        self.model = registry.model(hparams.model)(hparams, VOCAB_SIZE, 0, precision)
        self.gradient_norm = 0.0
        for weight in self.model.trainable_variables:
            for part, factor in factors.items():
                if part in weight.path and len(weight.shape) == 2:
                    weight.assign(weight * factor)
        self._step = TrainStep(
            self.model, make_optimizer(hparams), hparams, tf.distribute.get_strategy()
        )
        self._measured = tf.function(self._measure, autograph=False, input_signature=[IDS, IDS])

    def take_step(self, batch: Batch) -> None:
        """Takes a training step."""
        result = TrainStep.read(
            self._step(batch.micro_batches, batch.target_tokens, (SEED, batch.step))
        )
        self.gradient_norm = result.gradient_norm

    def measure(self, sources: np.ndarray, targets: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Returns two losses [] and an entropy [N], each summed over the target tokens of a batch.

        Args:
            sources: ids [B, S].
            targets: ids [B, T].

        Returns:
            The loss; the loss with each source replaced by its neighbour in the batch; and for each
            decoder layer, the entropy of the attention over the source, divided by the entropy of
            uniform attention.
        """
        loss, other_loss, entropy = self._measured(sources, targets)
        return float(loss), float(other_loss), entropy.numpy()

    def _measure(
        self, sources: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        memory = self.model.encode(sources)
        logits, layers = self.model.decode(targets, memory, return_attention=True)
        other_logits = self.model.decode(targets, self.model.encode(tf.roll(sources, 1, axis=0)))
        lengths = tf.reduce_sum(tf.cast(sources != 0, tf.float32), axis=1, keepdims=True)
        is_token = tf.cast(targets != 0, tf.float32)
        entropies = []
        for layer in layers:
            weights = layer["cross"]
            terms = tf.math.xlogy(weights, weights)
            entropy = tf.reduce_mean(-tf.reduce_sum(terms, axis=3), axis=1)
            entropies.append(tf.reduce_sum(entropy / tf.math.log(lengths) * is_token))
        losses = [smoothed_cross_entropy(x, targets, 0.0) for x in (logits, other_logits)]
        return losses[0], losses[1], tf.stack(entropies)


def measured(run: Any, dev: list[MicroBatch]) -> dict[str, Any]:
    """Returns a run's dev loss, the rise of the loss with other sources, and the entropies, each
    per target token.
    """
    tokens = sum(int((targets != 0).sum()) for _, targets, _ in dev)
    loss, other_loss, entropy = (
        sum(values) / tokens
        for values in zip(*(run.measure(*micro_batch[:2]) for micro_batch in dev), strict=True)
    )
    return {
        "loss": round(loss, 3),
        "rise": round(other_loss - loss, 3),
        "entropy": [round(float(layer), 3) for layer in entropy],
    }
