"""Tests that optimizers are Adam, with and without Adafactor's relative steps, and SGD, after Keras
has saved them.
"""

import json
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.hparam import HParams
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.schedule import Schedule


@pytest.mark.parametrize("is_relative", [False, True])
def test_the_optimizer_is_adam(is_relative: bool) -> None:
    hparams = HParams(
        hidden_size=4,
        num_heads=1,
        learning_rate_warmup_steps=2,
        optimizer_adam_beta1=0.8,
        optimizer_adam_beta2=0.95,
        optimizer_adam_epsilon=1e-9,
        optimizer_adafactor_multiply_by_parameter_scale=is_relative,
    )
    variable = keras.Variable([1.0, -2.0, 0.5], dtype="float32")
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(make_optimizer(hparams))))
    optimizer = keras.saving.deserialize_keras_object(config)
    optimizer.build([variable])
    value = variable.numpy().astype(np.float64)
    m = np.zeros(3)
    v = np.zeros(3)
    for t, gradient in enumerate(
        np.array([[0.3, -1.0, 2.0], [0.1, 3.0, 1e-3], [-2.0, 0.5, 0.7]]), 1
    ):
        optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
        m = 0.8 * m + 0.2 * gradient
        v = 0.95 * v + 0.05 * gradient**2
        rate = 4**-0.5 * min(t**-0.5, t * 2**-1.5)
        rate *= np.sqrt((value**2).sum() / 3) if is_relative else 1.0
        value -= rate * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-9)
        np.testing.assert_allclose(variable, value, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd"},
        *(
            {"optimizer": "momentum", "optimizer_momentum_nesterov": is_nesterov}
            for is_nesterov in (False, True)
        ),
    ],
)
def test_the_optimizer_is_gradient_descent(changes: dict[str, Any]) -> None:
    # Sutskever et al. 2013, equations 1 to 4, in Keras's form: the velocity includes the learning
    # rate.
    hparams = HParams(
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=0.5,
        learning_rate_warmup_steps=2,
        **changes,
    )
    variable, twin = (keras.Variable([1.0, -2.0], dtype="float32") for _ in range(2))
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(make_optimizer(hparams))))
    optimizer = keras.saving.deserialize_keras_object(config)
    optimizer.build([variable])
    momentum = 0.9 if hparams.optimizer == "momentum" else 0.0
    reference = keras.optimizers.SGD(
        Schedule(hparams), momentum, nesterov=hparams.optimizer_momentum_nesterov
    )
    value = variable.numpy().astype(np.float64)
    velocity = np.zeros(2)
    for step, gradient in enumerate(np.array([[0.3, -1.0], [0.1, 3.0], [-2.0, 0.5], [1.0, 1.0]])):
        optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
        update = -0.5 * min(1, step / 2) * gradient
        velocity = momentum * velocity + update
        value += momentum * velocity + update if hparams.optimizer_momentum_nesterov else velocity
        reference.apply([tf.constant(gradient, tf.float32)], [twin])
        np.testing.assert_allclose(variable, twin, rtol=1e-6)
        np.testing.assert_allclose(variable, value, rtol=1e-5)


def test_the_relative_step_of_a_weight_of_zeros_is_a_thousandth() -> None:
    variable = keras.Variable([0.0, 0.0], dtype="float32")
    optimizer = make_optimizer(HParams(optimizer_adafactor_multiply_by_parameter_scale=True))
    optimizer.build([variable])
    optimizer.update(
        variable.value, tf.constant([2.0, -3.0]), optimizer.step_size(tf.constant(0.5))
    )
    np.testing.assert_allclose(variable, [-0.5e-3, 0.5e-3], rtol=1e-4)


def test_weight_decay_shrinks_matrices_by_the_learning_rate() -> None:
    matrix = keras.Variable([[4.0, -8.0]], dtype="float32")
    bias = keras.Variable([4.0], dtype="float32")
    optimizer = make_optimizer(
        HParams(learning_rate_schedule="constant", learning_rate_constant=0.1, weight_decay=0.5)
    )
    optimizer.build([matrix, bias])
    for variable in (matrix, bias):
        optimizer.update(
            variable.value, tf.zeros(variable.shape), optimizer.step_size(tf.constant(0.1))
        )
    np.testing.assert_allclose(matrix, [[3.8, -7.6]], rtol=1e-6)
    np.testing.assert_allclose(bias, [4.0])
