"""A training step (section 5.3): sums the gradients of its micro-batches, then updates the weights.

The loss of each micro-batch is divided by the number of target tokens in the whole step, which is
known beforehand. Auxiliary losses of layers are weighted by the micro-batch's share of these
tokens. Dropout's masks belong to the examples. So a step has the same result on any number of
devices and with any number of micro-batches, except for rounding.

Shapes: B examples of a micro-batch, S source length, T target length, V vocabulary size.
"""

import fnmatch
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops

from t2t_repro.data.pipeline import MicroBatch
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import example_seeds, hashed
from t2t_repro.training.loss import consistency_loss, smoothed_cross_entropy
from t2t_repro.training.loss_scale import LossScale, NoLossScale
from t2t_repro.training.optimizer import Optimizer, clipped

IDS = tf.TensorSpec([None, None], tf.int64)
"""Token ids [B, S] or [B, T]. On a GPU, TensorFlow runs operations of int64 there, but most
operations of int32 on the CPU.
"""
EXAMPLES = tf.TensorSpec([None], tf.uint32)
STEP_SEED = tf.TensorSpec([2], tf.uint32)
SCALAR = tf.TensorSpec([], tf.float32)


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

    @property
    def is_sound(self) -> bool:
        """False if the loss or the gradient norm is not finite.

        With a loss scale, gradients sometimes overflow. The step is then skipped and the scale is
        lowered, so this is no error.
        """
        may_overflow = self.loss_scale > 1.0
        return math.isfinite(self.loss) and (may_overflow or math.isfinite(self.gradient_norm))


class TrainStep:
    """Takes training steps. The caller creates the model, the optimizer and the loss scale in the
    strategy's scope.

    A replica adds up the gradients of one micro-batch after another, so that memory holds the
    activations of only one of them.

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
        self._model = model
        self._optimizer = optimizer
        self._hparams = hparams
        self._strategy = strategy
        self._loss_scale = loss_scale or NoLossScale()
        self._weights = trained_weights(model, hparams.frozen)
        with strategy.scope():
            optimizer.build(self._weights)
            self._losses = _sum_of_replica([2])
            self._scaled_gradients = [_sum_of_replica(weight.shape) for weight in self._weights]
        self.state = [*optimizer.variables, *self._loss_scale.variables]
        """Variables that change from step to step, without the weights: the optimizer's and the
        loss scale's.
        """
        round_spec = [MicroBatch(IDS, IDS, EXAMPLES)] * strategy.num_replicas_in_sync
        self._accumulate = tf.function(
            self._accumulate_round,
            input_signature=[round_spec, STEP_SEED, SCALAR],
            autograph=False,
        )
        self._update = tf.function(self._update_replicas, input_signature=[SCALAR], autograph=False)

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
        step_seed = tf.constant(seed, tf.uint32)
        tokens = tf.constant(num_tokens, tf.float32)
        replicas = self._strategy.num_replicas_in_sync
        for start in range(0, len(micro_batches), replicas):
            self._accumulate(list(micro_batches[start : start + replicas]), step_seed, tokens)
        return self._update(tf.constant(vote, tf.float32))

    @staticmethod
    def read(returned: tf.Tensor) -> Result:
        """Waits for a step to finish, and returns its result. `returned` is the output of
        `__call__` for the step.
        """
        return Result(*map(float, returned.numpy()))

    def _accumulate_round(
        self, micro_batches: list[MicroBatch], step_seed: tf.Tensor, tokens: tf.Tensor
    ) -> None:
        """Every replica computes one of the micro-batches."""
        micro_batch = self._strategy.experimental_distribute_values_from_function(
            lambda context: micro_batches[context.replica_id_in_sync_group]
        )
        self._strategy.run(self._add_gradients, (micro_batch, step_seed, tokens))

    def _add_gradients(
        self, micro_batch: MicroBatch, step_seed: tf.Tensor, tokens: tf.Tensor
    ) -> None:
        """Adds the losses and gradients of a micro-batch to the sums of its replica.

        `step_seed` is the run's random seed and the step. `tokens` is the number of target tokens
        in the whole step.
        """
        with tf.GradientTape() as tape:
            loss, auxiliary_loss = self._losses_of(micro_batch, step_seed, tokens)
            scaled_loss = (loss + auxiliary_loss) * self._loss_scale.value()
        gradients = tape.gradient(scaled_loss, [weight.value for weight in self._weights])
        refuse_unused_weights(self._model, self._weights, gradients)
        self._losses.assign_add(tf.stack([loss, auxiliary_loss]))
        for total, gradient in zip(self._scaled_gradients, gradients, strict=True):
            # The gradient of an embedding table has only the rows of the micro-batch's tokens.
            total.assign_add(tf.convert_to_tensor(gradient))

    def _losses_of(
        self, micro_batch: MicroBatch, step_seed: tf.Tensor, tokens: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a micro-batch's part of the step's loss and of its auxiliary loss, float32 []."""
        inputs, targets, examples = micro_batch
        seed = example_seeds(step_seed, examples)
        passes, auxiliary_loss = passes_of_batch(
            self._model, self._hparams.rdrop_alpha, (inputs, targets, seed), tokens
        )
        losses = [
            smoothed_cross_entropy(logits, targets, self._hparams.label_smoothing)
            for logits in passes
        ]
        return tf.add_n(losses) / len(passes) / tokens, auxiliary_loss

    def _update_replicas(self, vote: tf.Tensor) -> tf.Tensor:
        results = self._strategy.run(self._update_weights, (vote,))
        return self._strategy.experimental_local_results(results)[0]

    def _update_weights(self, vote: tf.Tensor) -> tf.Tensor:
        """Updates the weights by the sum of all replicas' gradients, and sets the sums to 0.

        Returns float32 [6], the fields of `Result` in order.
        """
        context = tf.distribute.get_replica_context()
        figures = tf.concat([self._losses, vote[None]], axis=0)
        gradients = [tf.identity(total) for total in self._scaled_gradients]
        figures, *gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, [figures, *gradients])
        loss, auxiliary_loss, votes = tf.unstack(figures)

        scale = self._loss_scale.value()
        gradients = [gradient / scale for gradient in gradients]
        gradients, norm = clipped(gradients, self._optimizer.global_clipnorm)

        takes_step = self._loss_scale.accepts(norm)
        rate = tf.convert_to_tensor(self._optimizer.learning_rate)
        step_size = self._optimizer.step_size(rate)
        context.merge_call(self._apply, args=(gradients, step_size, takes_step))
        iterations = self._optimizer.iterations.value
        iterations.assign_add(tf.cast(takes_step, iterations.dtype))

        for total in [self._losses, *self._scaled_gradients]:
            total.assign(tf.zeros_like(total))
        return tf.stack([loss, auxiliary_loss, norm, votes, scale, rate])

    def _apply(self, strategy: Any, gradients: list[Any], step_size: Any, takes_step: Any) -> None:
        """Updates every replica's copy of each weight, in TensorFlow's cross-replica context."""

        def update(weight: Any, gradient: tf.Tensor, step_size: Any, takes_step: Any) -> None:
            ops.cond(
                takes_step,
                lambda: self._optimizer.update(weight, gradient, step_size),
                lambda: None,
            )

        for weight, gradient in zip(self._weights, gradients, strict=True):
            strategy.extended.update(
                weight.value, update, args=(gradient, step_size, takes_step), group=False
            )
        self._loss_scale.update(strategy, takes_step)


def passes_of_batch(
    model: Any, rdrop_alpha: float, batch: Any, tokens: tf.Tensor
) -> tuple[list[Any], Any]:
    """Returns the logits of each pass of a micro-batch through the model, float32 [B, T, V], and
    the micro-batch's part of the step's auxiliary loss, float32 [].

    `batch` has inputs [B, S], targets [B, T], and the seed of each example [B]. `tokens` is the
    number of target tokens in the whole step.
    """
    inputs, targets, seed = batch
    seeds = seeds_of_passes(seed, rdrop_alpha)
    passes = []
    layer_losses = []
    for pass_seed in seeds:
        passes.append(model(inputs, targets, pass_seed))
        layer_losses += model.losses
    share = tf.cast(tf.math.count_nonzero(targets), tf.float32) / tokens
    auxiliary_loss = sum(layer_losses) * share / len(passes)
    return passes, auxiliary_loss + rdrop_loss(passes, targets, rdrop_alpha) / tokens


def seeds_of_passes(seed: Any, rdrop_alpha: float) -> list[Any]:
    """Returns the seeds of each pass through the model: R-Drop needs two, with other masks."""
    return [seed, hashed(seed)] if rdrop_alpha else [seed]


def rdrop_loss(passes: list[Any], targets: Any, rdrop_alpha: float) -> Any:
    """Returns R-Drop's loss, summed over all target tokens; 0 without R-Drop."""
    if not rdrop_alpha:
        return 0.0
    logits, other_logits = passes
    # Half of it, because the cross-entropy is the mean of the two passes, not their sum.
    return rdrop_alpha / 2 * consistency_loss(logits, other_logits, targets)


def refuse_unused_weights(model: Any, weights: list[Any], gradients: list[Any]) -> None:
    """Raises UserError if the loss does not depend on a weight, so that its gradient is None."""
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is None:
            raise UserError(
                f"model {model.name!r}: its logits do not depend on weight {weight.path}; use "
                "the weight in call, or remove it"
            )


def trained_weights(model: Any, frozen: str) -> list[Any]:
    """Returns the weights of a model that no pattern of the hparam `frozen` matches.

    Raises UserError if a pattern matches no weight, or the patterns match all.
    """
    weights = list(model.trainable_variables)
    frozen_paths: set[str] = set()
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
        frozen_paths |= paths
    trained = [weight for weight in weights if weight.path not in frozen_paths]
    if not trained:
        raise UserError(
            f"--freeze={frozen}: matches all weights, so nothing would be trained; omit a part"
        )
    return trained


def _sum_of_replica(shape: Sequence[int]) -> tf.Variable:
    """Returns a new variable, 0 everywhere, of which each replica has a copy with its own value."""
    return tf.Variable(
        tf.zeros(shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
