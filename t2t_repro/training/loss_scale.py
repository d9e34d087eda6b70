"""The scale of the loss in training with float16 (Micikevicius et al. 2018, section 3.2)."""

from typing import Any

import keras
import tensorflow as tf


class NoLossScale:
    """Takes every step with the loss as it is, for precisions with the range of float32."""

    variables: tuple[Any, ...] = ()
    """Variables to save in checkpoints."""

    def value(self) -> Any:
        """Returns the factor of the loss in this step, float or float32 []."""
        return 1.0

    def accepts(self, gradient_norm: tf.Tensor) -> Any:
        """Returns whether to take the step, whose gradients have this norm; bool or bool []."""
        return True

    def update(self, strategy: Any, takes_step: Any) -> None:
        """Adjusts the factor after a step, in TensorFlow's cross-replica context of `strategy`."""


class LossScale(NoLossScale):
    """A factor of the loss that keeps small gradients above 0 in float16.

    A step in which a gradient is not finite leaves the weights unchanged and halves the factor.
    After `GOOD_STEPS` consecutive steps with finite gradients, the factor is doubled. The caller
    creates this object in the scope of the strategy.
    """

    INITIAL = 2.0**15
    GOOD_STEPS = 2000

    def __init__(self) -> None:
        self.factor = keras.Variable(
            self.INITIAL, dtype="float32", trainable=False, name="loss_scale"
        )
        self.good_steps = keras.Variable(
            0, dtype="int64", trainable=False, name="loss_scale_good_steps"
        )
        self.variables = (self.factor, self.good_steps)

    def value(self) -> tf.Tensor:
        return tf.identity(self.factor.value)

    def accepts(self, gradient_norm: tf.Tensor) -> tf.Tensor:
        return tf.math.is_finite(gradient_norm)

    def update(self, strategy: Any, takes_step: Any) -> None:
        def assign(factor: Any, good_steps: Any, takes_step: tf.Tensor) -> None:
            is_due = good_steps + 1 >= self.GOOD_STEPS
            raised_factor = tf.where(is_due, factor * 2.0, factor)
            factor.assign(tf.where(takes_step, raised_factor, factor / 2.0))
            counts_on = tf.logical_and(takes_step, tf.logical_not(is_due))
            good_steps.assign(tf.where(counts_on, good_steps + 1, 0))

        strategy.extended.update(
            self.factor.value, assign, args=(self.good_steps.value, takes_step), group=False
        )
