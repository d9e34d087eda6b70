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

from t2t_repro.data.pipeline import Part
from t2t_repro.hparam import HParams
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.schedule import Schedule

IDS = tf.TensorSpec([None, None], tf.int32)
SEED = tf.TensorSpec([2], tf.int32)
SCALAR = tf.TensorSpec([], tf.float32)

ROUNDS_AT_ONCE = 2
"""Parts of a replica that are computed in one graph: a step's two blocks where they are not cut further. With more,
gradients accumulate from graph to graph, and memory holds one part's activations at a time."""


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
        self._whole = {count: self._graph(self._run_whole, count) for count in range(1, ROUNDS_AT_ONCE + 1)}
        self._accumulate = self._graph(self._run_accumulate, 1)
        self._finish = tf.function(self._run_finish, autograph=False, input_signature=[])
        with strategy.scope():
            optimizer.build(model.trainable_variables)

    def _graph(self, function: Any, rounds: int) -> Any:
        """`function` of so many rounds, a part for each replica in each, as a graph for parts of any shape."""
        one_round = [[IDS] * self._replicas, [IDS] * self._replicas, [SEED] * self._replicas]
        return tf.function(function, autograph=False, input_signature=[[one_round] * rounds, SCALAR])

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
        rounds = []
        for start in range(0, count, replicas):
            inputs, targets = zip(*parts[start : start + replicas], strict=True)
            rounds.append([list(inputs), list(targets), list(seeds[start : start + replicas])])
        if len(rounds) <= ROUNDS_AT_ONCE:
            return self._whole[len(rounds)](rounds, tokens)
        if not self._sums:
            with self._strategy.scope():
                self._sums = [
                    tf.Variable(
                        tf.zeros(variable.shape),
                        trainable=False,
                        aggregation=tf.VariableAggregation.SUM,
                        synchronization=tf.VariableSynchronization.ON_READ,
                    )
                    for variable in self._model.trainable_variables
                ]
        loss = tf.add_n([self._accumulate([one_round], tokens) for one_round in rounds])
        self._finish()
        return loss

    def _gradients(self, rounds: Any, tokens: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss of one replica's parts, (inputs, targets, seed) each, and its gradients."""
        with tf.GradientTape() as tape:
            losses = [
                smoothed_cross_entropy(self._model(inputs, targets, seed), targets, self._label_smoothing)
                for inputs, targets, seed in rounds
            ]
            loss = tf.add_n(losses) / tokens
        gradients = tape.gradient(loss, [variable.value for variable in self._model.trainable_variables])
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _each_replica(self, function: Any, rounds: Any, tokens: tf.Tensor) -> tf.Tensor:
        """Runs `function` on each replica with its own part of each round; the sum of what it returns."""
        own = [
            [
                self._strategy.experimental_distribute_values_from_function(
                    lambda context, values=values: values[context.replica_id_in_sync_group]
                )
                for values in one_round
            ]
            for one_round in rounds
        ]
        losses = self._strategy.run(function, (own, tokens))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _run_whole(self, rounds: Any, tokens: tf.Tensor) -> tf.Tensor:
        def step(own: Any, tokens: tf.Tensor) -> tf.Tensor:
            loss, gradients = self._gradients(own, tokens)
            self._optimizer.apply(gradients, self._model.trainable_variables)
            return loss

        return self._each_replica(step, rounds, tokens)

    def _run_accumulate(self, rounds: Any, tokens: tf.Tensor) -> tf.Tensor:
        def add(own: Any, tokens: tf.Tensor) -> tf.Tensor:
            loss, gradients = self._gradients(own, tokens)
            for total, gradient in zip(self._sums, gradients, strict=True):
                total.assign_add(gradient)
            return loss

        return self._each_replica(add, rounds, tokens)

    def _run_finish(self) -> None:
        def apply() -> None:
            gradients = [tf.identity(total) for total in self._sums]
            self._optimizer.apply(gradients, self._model.trainable_variables)
            for total in self._sums:
                total.assign(tf.zeros_like(total))

        self._strategy.run(apply)
