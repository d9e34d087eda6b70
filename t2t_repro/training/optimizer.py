"""Adam (section 5.3 of the paper) and stochastic gradient descent."""

from typing import Any

import keras
import tensorflow as tf

from t2t_repro.hparam import HParams
from t2t_repro.training.schedule import Schedule


class Optimizer(keras.optimizers.Optimizer):
    """The base class of optimizers that update a weight by the sum of all replicas' gradients.

    `TrainStep` calls `step_size` and `update`, and clips gradients itself. `fit` of Keras calls
    `apply`. Weight decay applies only to weights with two or more dimensions. A subclass also has a
    base class of Keras, such as Adam.
    """

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Takes a step with the sum of the replicas' gradients. Every replica calls this method
        with its own.
        """
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        # Keras would clip before it sums the gradients of the replicas.
        if self.global_clipnorm and replicas > 1:
            parts = [tf.convert_to_tensor(gradient) for gradient in grads]
            totals = context.all_reduce(tf.distribute.ReduceOp.SUM, parts)
            totals, _ = clipped(totals, self.global_clipnorm)
            grads = [total / replicas for total in totals]
        super().apply(grads, trainable_variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates a weight by the gradient's sum over the replicas; `apply` of Keras calls this
        method.
        """
        self.update(variable, tf.convert_to_tensor(gradient), self.step_size(learning_rate))

    def _apply_weight_decay(self, variables: Any) -> None:
        """Does nothing, because `update` applies it. Keras would apply it to all weights."""

    def step_size(self, rate: tf.Tensor) -> tf.Tensor:
        """Returns the factor of all updates of this step, given the learning rate."""
        return rate

    def update(self, variable: Any, gradient: tf.Tensor, step_size: tf.Tensor) -> None:
        """Updates a weight and the optimizer's variables for it by the `step_size` of this step.

        Does not count the step.
        """
        if self.weight_decay and len(variable.shape) > 1:
            variable.assign_sub(variable * (self.weight_decay * self.learning_rate))
        self.add_gradient(variable, gradient, step_size)

    def add_gradient(self, variable: Any, gradient: tf.Tensor, step_size: tf.Tensor) -> None:
        """Updates a weight without weight decay; in this class, as Keras's optimizer does."""
        super().update_step(gradient, variable, step_size)


@keras.saving.register_keras_serializable("t2t_repro")
class Adam(Optimizer, keras.optimizers.Adam):
    """Keras's Adam with a faster update: one operation for each weight instead of fifteen.

    Args:
        has_relative_steps: True to multiply each update of a weight by the weight's root mean
            square, as Adafactor does (Shazeer and Stern 2018, section 8). The factor is at least
            `MIN_SCALE`.
        arguments, options: the arguments of keras.optimizers.Adam.
    """

    MIN_SCALE = 1e-3

    def __init__(self, *arguments: Any, has_relative_steps: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.has_relative_steps = has_relative_steps

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"has_relative_steps": self.has_relative_steps}

    def step_size(self, rate: tf.Tensor) -> tf.Tensor:
        """Returns rate * sqrt(1 - beta2^t) / (1 - beta1^t) for the learning rate `rate` in step t,
        counted from 1.
        """
        t = tf.cast(self.iterations.value + 1, tf.float32)
        return rate * tf.sqrt(1.0 - self.beta_2**t) / (1.0 - self.beta_1**t)

    def add_gradient(self, variable: Any, gradient: tf.Tensor, step_size: tf.Tensor) -> None:
        if self.has_relative_steps:
            step_size *= tf.maximum(tf.sqrt(tf.reduce_mean(tf.square(variable))), self.MIN_SCALE)
        index = self._get_variable_index(variable)  # Keras has no public names for these variables.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            # TensorFlow multiplies the rate by sqrt(1 - beta2_power) / (1 - beta1_power), which
            # `step_size` contains.
            beta1_power=0.0,
            beta2_power=0.0,
            lr=step_size,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


@keras.saving.register_keras_serializable("t2t_repro")
class SGD(Optimizer, keras.optimizers.SGD):
    """Keras's stochastic gradient descent, with or without momentum, which may be Nesterov's."""


def clipped(gradients: list[tf.Tensor], limit: float | None) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Returns gradients scaled down to a Euclidean norm of at most `limit`, all together, and their
    norm before, float32 []. None leaves them as they are.
    """
    norm = tf.linalg.global_norm(gradients)
    if limit is not None:
        gradients, _ = tf.clip_by_global_norm(gradients, limit, norm)
    return gradients, norm


def make_optimizer(hparams: HParams) -> Optimizer:
    """Returns the optimizer with the learning rate schedule and the other settings in `hparams`."""
    options: dict[str, Any] = {
        "learning_rate": Schedule(hparams),
        "global_clipnorm": hparams.clip_grad_norm or None,
        "weight_decay": hparams.weight_decay or None,
        # Without a name, Keras numbers the optimizers of a process, and a second optimizer's
        # variables would have other names than those in checkpoints.
        "name": hparams.optimizer,
    }
    match hparams.optimizer:
        case "sgd":
            return SGD(**options)
        case "momentum":
            return SGD(
                momentum=hparams.optimizer_momentum_momentum,
                nesterov=hparams.optimizer_momentum_nesterov,
                **options,
            )
    return Adam(
        beta_1=hparams.optimizer_adam_beta1,
        beta_2=hparams.optimizer_adam_beta2,
        epsilon=hparams.optimizer_adam_epsilon,
        has_relative_steps=hparams.optimizer_adafactor_multiply_by_parameter_scale,
        **options,
    )
