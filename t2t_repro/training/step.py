"""A training step: sums gradients over micro-batches and replicas, then updates the weights.

The loss of each micro-batch is divided by the number of target tokens in the whole step, which is
known beforehand. Auxiliary losses of layers are weighted by the micro-batch's share of these
tokens. Dropout's masks belong to the examples. So a step has the same result on any number of
devices and with any number of micro-batches, except for rounding. A round consists of one
micro-batch for each replica.
"""

import fnmatch
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.data.pipeline import MicroBatch
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import example_seeds, hashed
from t2t_repro.training.loss import consistency_loss, smoothed_cross_entropy
from t2t_repro.training.optimizer import LossScale, Optimizer

IDS = tf.TensorSpec([None, None], tf.int64)
"""Token ids. On a GPU, TensorFlow runs operations of int64 there, but most operations of int32 on
the CPU.
"""
EXAMPLES = tf.TensorSpec([None], tf.uint32)
STEP_SEED = tf.TensorSpec([2], tf.uint32)
SCALAR = tf.TensorSpec([], tf.float32)

ROUNDS_AT_ONCE = 2
"""Maximum number of rounds (one micro-batch for each replica) in one TensorFlow graph. A step with
more rounds calls a graph of one round repeatedly and adds up the gradients, so that memory holds
the activations of only one round. A step consists of two blocks of examples (see `data.batching`).
With one replica, a block is usually one micro-batch, so that a step has two rounds. With graphs of
one round only, steps of transformer_tiny took 1% to 3% longer (AMD Zen 5).
"""


class Result(NamedTuple):
    loss: float
    """Loss per target token, with label smoothing and without auxiliary losses."""
    auxiliary_loss: float
    """Sum of the auxiliary losses of all layers and of R-Drop's loss; 0 if there are none."""
    gradient_norm: float
    """Euclidean norm of all gradients together, before clipping. With "mixed_float16", it is not
    finite if the step was skipped.
    """
    votes: float
    """Number of replicas whose worker process wants to stop the run."""
    loss_scale: float
    """Factor by which this step multiplied the loss, see `LossScale`; 1 unless the precision is
    "mixed_float16".
    """
    learning_rate: float


class TrainStep:
    """Takes training steps. The caller creates the model, the optimizer and the loss scale in the
    strategy's scope.

    The model is called as model(inputs, targets, seed) -> logits. The optimizer need not be built.
    Of `hparams`, only label_smoothing, rdrop_alpha and frozen count. `loss_scale` is None for other
    precisions than "mixed_float16".
    """

    def __init__(
        self,
        model: Any,
        optimizer: Optimizer,
        hparams: HParams,
        strategy: Any,
        loss_scale: LossScale | None = None,
    ) -> None:
        self._model, self._optimizer, self._hparams, self._strategy = (
            model,
            optimizer,
            hparams,
            strategy,
        )
        self._loss_scale, self._replicas = loss_scale, strategy.num_replicas_in_sync
        self._weights = trained_weights(model, hparams.frozen)
        self._sums: list[Any] = []
        """Variables for the sums of the two losses and of each gradient over a step's rounds;
        created at the first step with more than ROUNDS_AT_ONCE rounds.
        """
        self._whole = {
            count: self._graph(self._whole_step, count) for count in range(1, ROUNDS_AT_ONCE + 1)
        }
        self._accumulate = self._graph(self._add_round, 1)
        self._finish = self._graph(self._finish_step, 0)
        with strategy.scope():
            optimizer.build(self._weights)
        self.state = [*optimizer.variables, *(loss_scale.variables if loss_scale else [])]
        """Variables that change from step to step, without the weights: those of the optimizer and
        the loss scale.
        """

    def __call__(
        self,
        micro_batches: Sequence[MicroBatch],
        num_tokens: int,
        seed: Sequence[int],
        vote: bool = False,
    ) -> tf.Tensor:
        """Takes one training step.

        Args:
            micro_batches: the step's examples, in a number of micro-batches that is a multiple of
                the replicas'.
            num_tokens: number of target tokens in the step; padding does not count.
            seed: the run's random seed and the step, from which dropout's masks derive.
            vote: whether this worker wants to stop the run.

        Returns:
            float32 [6], the fields of `Result` in order, for `read`. On a GPU, the step may still
            be running when this method returns.
        """
        scalars = (
            tf.constant(seed, tf.uint32),
            tf.constant(num_tokens, tf.float32),
            tf.constant(vote, tf.float32),
        )
        rounds = [
            [
                list(side)
                for side in zip(*micro_batches[start : start + self._replicas], strict=True)
            ]
            for start in range(0, len(micro_batches), self._replicas)
        ]
        if len(rounds) <= ROUNDS_AT_ONCE:
            return self._whole[len(rounds)](rounds, *scalars)
        self._sums = self._sums or self._zeros()
        for one_round in rounds:
            self._accumulate([one_round], *scalars)
        return self._finish([], *scalars)

    @staticmethod
    def read(returned: tf.Tensor) -> Result:
        """Waits for a step to finish, and returns its result. `returned` is the output of
        `__call__` for the step.
        """
        return Result(*map(float, returned.numpy()))

    def _whole_step(
        self, rounds: Any, step_seed: tf.Tensor, tokens: tf.Tensor, votes: tf.Tensor
    ) -> tf.Tensor:
        losses, gradients = self._gradients(rounds, step_seed, tokens)
        return self._update(losses, gradients, votes)

    def _add_round(
        self, rounds: Any, step_seed: tf.Tensor, tokens: tf.Tensor, votes: tf.Tensor
    ) -> None:
        losses, gradients = self._gradients(rounds, step_seed, tokens)
        for total, value in zip(self._sums, (losses, *gradients), strict=True):
            total.assign_add(value)

    def _finish_step(
        self, rounds: Any, step_seed: tf.Tensor, tokens: tf.Tensor, votes: tf.Tensor
    ) -> tf.Tensor:
        losses, *gradients = [tf.identity(total) for total in self._sums]
        returned = self._update(losses, gradients, votes)
        for total in self._sums:
            total.assign(tf.zeros_like(total))
        return returned

    def _gradients(
        self, rounds: Any, step_seed: tf.Tensor, tokens: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Returns one replica's part of the step's two losses, float32 [2], and the scaled
        gradients of their sum.

        `rounds` has (inputs, targets, examples) of each of the replica's micro-batches, and
        `step_seed` the run's random seed and the step. The loss is divided by `tokens`, the number
        of target tokens in the whole step.
        """
        weights = self._weights
        with tf.GradientTape() as tape:
            loss, auxiliary_loss = self._losses(rounds, step_seed, tokens)
            total = loss + auxiliary_loss
            scaled = total * self._loss_scale.factor.value if self._loss_scale else total
        gradients = tape.gradient(scaled, [weight.value for weight in weights])
        if unused := [
            weight.path
            for weight, gradient in zip(weights, gradients, strict=True)
            if gradient is None
        ]:
            raise UserError(
                f"model {self._model.name!r}: its logits do not depend on weight {unused[0]}; use "
                "the weight in call, or remove it"
            )
        return tf.stack([loss, auxiliary_loss]), [
            tf.convert_to_tensor(gradient) for gradient in gradients
        ]

    def _losses(
        self, rounds: Any, step_seed: tf.Tensor, tokens: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns one replica's part of the step's loss and of its auxiliary loss, float32 []. See
        `_gradients`.
        """
        losses, auxiliary, rdrop_alpha = [], [tf.constant(0.0)], self._hparams.rdrop_alpha
        for inputs, targets, examples in rounds:
            seed = example_seeds(step_seed, examples)
            passes, part = passes_of_batch(
                self._model, rdrop_alpha, (inputs, targets, seed), tokens
            )
            for logits in passes:
                losses.append(
                    smoothed_cross_entropy(logits, targets, self._hparams.label_smoothing)
                    / len(passes)
                )
            auxiliary += part
        return tf.add_n(losses) / tokens, tf.add_n(auxiliary)

    def _update(self, losses: tf.Tensor, gradients: list[tf.Tensor], votes: tf.Tensor) -> tf.Tensor:
        """Sums the losses, the gradients and the votes over all replicas, then updates the weights.

        Every replica must call this method. Returns float32 [6], the fields of `Result` in order.
        """
        context = tf.distribute.get_replica_context()
        figures = tf.concat([losses, votes[None]], axis=0)
        figures, *gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, [figures, *gradients])
        loss, auxiliary_loss, votes = tf.unstack(figures)
        scale = tf.constant(1.0)
        if self._loss_scale:
            scale = tf.identity(self._loss_scale.factor.value)
            gradients = [gradient / scale for gradient in gradients]
        norm = tf.linalg.global_norm(gradients)
        is_finite = tf.math.is_finite(norm)
        if self._optimizer.global_clipnorm:
            gradients, _ = tf.clip_by_global_norm(gradients, self._optimizer.global_clipnorm, norm)
        rate = tf.convert_to_tensor(self._optimizer.learning_rate)
        context.merge_call(
            self._apply, args=(gradients, self._optimizer.step_size(rate), is_finite)
        )
        iterations = self._optimizer.iterations.value
        iterations.assign_add(tf.cast(is_finite, iterations.dtype) if self._loss_scale else 1)
        return tf.stack([loss, auxiliary_loss, norm, votes, scale, rate])

    def _apply(self, strategy: Any, gradients: list[Any], step_size: Any, is_finite: Any) -> None:
        """Updates each weight by its gradient, the sum over all replicas. For TensorFlow's
        cross-replica context.
        """

        def update(
            weight: Any, gradient: tf.Tensor, step_size: tf.Tensor, is_finite: tf.Tensor
        ) -> None:
            apply = functools.partial(self._optimizer.update, weight, gradient, step_size)
            if self._loss_scale:
                tf.cond(is_finite, apply, lambda: None)
            else:
                apply()

        for weight, gradient in zip(self._weights, gradients, strict=True):
            strategy.extended.update(
                weight.value, update, args=(gradient, step_size, is_finite), group=False
            )
        if self._loss_scale:
            self._loss_scale.update(strategy, is_finite)

    def _graph(self, function: Any, rounds: int) -> Any:
        """Returns a graph that runs a method (rounds, step_seed, tokens, votes) on each replica for
        `rounds` rounds.
        """
        one_round = [[spec] * self._replicas for spec in (IDS, IDS, EXAMPLES)]
        signature = [[one_round] * rounds, STEP_SEED, SCALAR, SCALAR]

        def for_replicas(values: list[tf.Tensor]) -> Any:
            """Gives each replica its own of the `values`."""
            return self._strategy.experimental_distribute_values_from_function(
                lambda context: values[context.replica_id_in_sync_group]
            )

        def run(rounds: Any, *arguments: tf.Tensor) -> Any:
            rounds = [list(map(for_replicas, one_round)) for one_round in rounds]
            results = self._strategy.run(function, (rounds, *arguments))
            return self._strategy.experimental_local_results(results)[0]

        return tf.function(run, autograph=False, input_signature=signature)

    def _zeros(self) -> list[Any]:
        """Returns new variables for the sums of the two losses and of each gradient. Each replica
        has its own copy.
        """
        shapes = [(2,), *(weight.shape for weight in self._weights)]
        kind = {
            "aggregation": tf.VariableAggregation.SUM,
            "synchronization": tf.VariableSynchronization.ON_READ,
        }
        with self._strategy.scope():
            return [tf.Variable(tf.zeros(shape), trainable=False, **kind) for shape in shapes]


def passes_of_batch(
    model: Any, rdrop_alpha: float, batch: Any, tokens: tf.Tensor
) -> tuple[list[Any], list[Any]]:
    """Returns the logits of each pass of a batch through the model, and the batch's parts of the
    auxiliary losses.

    R-Drop needs two passes, with different dropout masks. `batch` has inputs, targets, and the seed
    of each example. `tokens` is the number of target tokens in the whole step.
    """
    inputs, targets, seed = batch
    seeds = [seed, hashed(seed)] if rdrop_alpha else [seed]
    passes, layer_losses, auxiliary = [], [], []
    for pass_seed in seeds:
        passes.append(model(inputs, targets, pass_seed))
        layer_losses += model.losses
    if layer_losses:
        share = tf.cast(tf.math.count_nonzero(targets), tf.float32) / tokens
        auxiliary.append(tf.add_n(layer_losses) * share / len(passes))
    if rdrop_alpha:  # half of it, since the cross-entropy is the mean of the passes, not their sum
        auxiliary.append(rdrop_alpha / 2 * consistency_loss(passes[0], passes[1], targets) / tokens)
    return passes, auxiliary


def trained_weights(model: Any, frozen: str) -> list[Any]:
    """Returns the weights of a model that no pattern of the hparam `frozen` matches.

    Raises UserError if a pattern matches no weight, or the patterns match all.
    """
    weights = trained = list(model.trainable_variables)
    for pattern in filter(None, (part.strip("/ ") for part in frozen.split(","))):
        paths = {
            weight.path
            for weight in weights
            if fnmatch.fnmatchcase(f"/{weight.path}/", f"*/{pattern}/*")
        }
        if not paths:
            parts = sorted({part for weight in weights for part in weight.path.split("/")[1:-1]})
            raise UserError(
                f"--freeze={frozen}: no weight's name has {pattern!r}; it may have "
                f"{', '.join(parts)}"
            )
        trained = [weight for weight in trained if weight.path not in paths]
    if not trained:
        raise UserError(
            f"--freeze={frozen}: matches all weights, so nothing would be trained; omit a part"
        )
    return trained
