"""One training step: gradients of the step's parts, summed over parts and replicas, then Adam (section 5.3).

The loss of each part is divided by the tokens of the whole step, which the plan knows. So the step is the same on any
number of devices, and in any number of parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_repro.hparam import HParams
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.schedule import Schedule

IDS = tf.TensorSpec([None, None], tf.int32)
SEED = tf.TensorSpec([2], tf.int32)
SCALAR = tf.TensorSpec([], tf.float32)

Part = tuple[np.ndarray, np.ndarray]
"""Source ids [B, S] and target ids [B, T], int32, 0 for padding."""


def adam(hparams: HParams) -> Any:
    """Keras's Adam with the constants and the schedule of `hparams`."""
    return keras.optimizers.Adam(
        learning_rate=Schedule(hparams),
        beta_1=hparams.optimizer_adam_beta1,
        beta_2=hparams.optimizer_adam_beta2,
        epsilon=hparams.optimizer_adam_epsilon,
        name="adam",  # or Keras numbers its optimizers, and a checkpoint fits the first of a process alone
    )


class TrainStep:
    """Takes steps with a model and an optimizer that were made under a strategy.

    Args:
        model: called as model(inputs, targets, seed) -> logits.
        optimizer: a Keras optimizer.
        label_smoothing: see `smoothed_cross_entropy`.
        strategy: a `tf.distribute` strategy.
    """

    def __init__(self, model: Any, optimizer: Any, label_smoothing: float, strategy: Any) -> None:
        self._model, self._optimizer, self._strategy = model, optimizer, strategy
        self._label_smoothing = label_smoothing
        self._replicas = strategy.num_replicas_in_sync
        self._sums: list[Any] = []
        specs = [IDS] * self._replicas
        signature = [specs, specs, [SEED] * self._replicas, SCALAR]
        self._whole = tf.function(self._run_whole, autograph=False, input_signature=signature)
        self._accumulate = tf.function(self._run_accumulate, autograph=False, input_signature=signature)
        self._finish = tf.function(self._run_finish, autograph=False, input_signature=[])
        with strategy.scope():
            optimizer.build(model.trainable_variables)

    def __call__(self, parts: Sequence[Part], num_tokens: int, seed: Sequence[int]) -> tf.Tensor:
        """Takes one step.

        Args:
            parts: the step's examples, in a multiple of the replicas' number of parts.
            num_tokens: target tokens of the step, padding not counted.
            seed: decides the step's dropout.

        Returns:
            The step's smoothed loss per target token, float32 [].
        """
        count, replicas = len(parts), self._replicas
        seeds = np.random.SeedSequence(list(seed)).generate_state(2 * count).astype(np.int32).reshape(count, 2)
        tokens = tf.constant(num_tokens, tf.float32)
        rounds = [
            ([part[0] for part in parts[i : i + replicas]], [part[1] for part in parts[i : i + replicas]],
             list(seeds[i : i + replicas]), tokens)
            for i in range(0, count, replicas)
        ]  # fmt: skip
        if len(rounds) == 1:
            return self._whole(*rounds[0])
        if not self._sums:
            with self._strategy.scope():
                self._sums = [
                    tf.Variable(tf.zeros(variable.shape), trainable=False, aggregation=tf.VariableAggregation.SUM,
                                synchronization=tf.VariableSynchronization.ON_READ)
                    for variable in self._model.trainable_variables
                ]  # fmt: skip
        loss = tf.add_n([self._accumulate(*arguments) for arguments in rounds])
        self._finish()
        return loss

    def _gradients(self, inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor, tokens: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            logits = self._model(inputs, targets, seed)
            loss = smoothed_cross_entropy(logits, targets, self._label_smoothing) / tokens
        return loss, tape.gradient(loss, [variable.value for variable in self._model.trainable_variables])

    def _each_replica(self, function: Any, inputs: Any, targets: Any, seeds: Any, tokens: tf.Tensor) -> tf.Tensor:
        """Runs `function` on each replica with its own part; the sum of what it returns."""
        values = [
            self._strategy.experimental_distribute_values_from_function(
                lambda context, values=values: values[context.replica_id_in_sync_group]
            )
            for values in (inputs, targets, seeds)
        ]
        losses = self._strategy.run(function, (*values, tokens))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _run_whole(self, inputs: Any, targets: Any, seeds: Any, tokens: tf.Tensor) -> tf.Tensor:
        def step(*arguments: tf.Tensor) -> tf.Tensor:
            loss, gradients = self._gradients(*arguments)
            self._optimizer.apply(gradients, self._model.trainable_variables)
            return loss

        return self._each_replica(step, inputs, targets, seeds, tokens)

    def _run_accumulate(self, inputs: Any, targets: Any, seeds: Any, tokens: tf.Tensor) -> tf.Tensor:
        def add(*arguments: tf.Tensor) -> tf.Tensor:
            loss, gradients = self._gradients(*arguments)
            for total, gradient in zip(self._sums, gradients, strict=True):
                total.assign_add(tf.convert_to_tensor(gradient))
            return loss

        return self._each_replica(add, inputs, targets, seeds, tokens)

    def _run_finish(self) -> None:
        def apply() -> None:
            gradients = [tf.identity(total) for total in self._sums]
            self._optimizer.apply(gradients, self._model.trainable_variables)
            for total in self._sums:
                total.assign(tf.zeros_like(total))

        self._strategy.run(apply)
