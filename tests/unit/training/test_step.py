"""Tests that a step does not depend on the number of micro-batches or devices, and that the optimizer is Adam."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from processes import Process
from t2t_repro.data.pipeline import MicroBatch
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.layers.auxiliary_loss import add_auxiliary_loss
from t2t_repro.layers.dropout import Seeds, dropout, example_seeds
from t2t_repro.models.transformer import Transformer
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.step import Adam, LossScale, TrainStep, adam, out_of_memory

VOCAB = 12
ONE = tf.distribute.MirroredStrategy(["/cpu:0"])
EMPTY = MicroBatch(np.zeros((0, 1), np.int32), np.zeros((0, 1), np.int32), np.zeros(0, np.int32))
DROPOUT = {"layer_prepostprocess_dropout": 0.1, "attention_dropout": 0.1, "relu_dropout": 0.1}
Run = Callable[[list[list[MicroBatch]]], tuple[list[float], list[np.ndarray]]]


def padded(rows: list[list[int]]) -> np.ndarray:
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, numbers in zip(ids, rows, strict=True):
        row[: len(numbers)] = numbers
    return ids


SOURCES = [[3, 4, 1], [5, 1], [6, 7, 8, 9, 1], [10, 1], [11, 3, 1]]
TARGETS = [[4, 1], [5, 6, 7, 1], [8, 1], [9, 10, 1], [3, 1]]
TOKENS = sum(map(len, TARGETS))


def micro_batch(*numbers: int) -> MicroBatch:
    return MicroBatch(padded([SOURCES[n] for n in numbers]), padded([TARGETS[n] for n in numbers]), np.array(numbers))


def values(model: Any) -> list[np.ndarray]:
    return [variable.value.numpy() for variable in model.trainable_variables]


class Descent(Adam):
    """Subtracts the gradient from the weight."""

    def update(self, variable: Any, gradient: tf.Tensor, step_size: tf.Tensor) -> None:
        variable.assign_sub(gradient)


def descent(model: Any, label_smoothing: float) -> TrainStep:
    with ONE.scope():
        return TrainStep(model, Descent(), label_smoothing, ONE)


def close(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.fixture(scope="module")
def model(tiny_hparams: HParams) -> Transformer:
    keras.utils.set_random_seed(1)
    with ONE.scope():
        return Transformer(replace(tiny_hparams, **DROPOUT), VOCAB)


@pytest.fixture(scope="module")
def descend(model: Transformer) -> Run:
    """Returns a function that takes gradient descent steps, always from the same initial weights.

    The function returns the loss of each step and the final weights.
    """
    before = values(model)
    step = descent(model, 0.1)

    def run(steps: list[list[MicroBatch]]) -> tuple[list[float], list[np.ndarray]]:
        for variable, value in zip(model.trainable_variables, before, strict=True):
            variable.assign(value)
        losses = [
            TrainStep.read(step(micro_batches, TOKENS, (1, number))).loss for number, micro_batches in enumerate(steps)
        ]
        return losses, values(model)

    return run


def test_a_step_follows_the_gradient_of_the_loss_per_token(model: Transformer, descend: Run) -> None:
    _, before = descend([])
    inputs, targets, examples = micro_batch(0, 1, 2, 3, 4)
    seed = example_seeds(np.array([1, 0], np.uint32), examples.astype(np.uint32))
    with tf.GradientTape() as tape:
        loss = smoothed_cross_entropy(model(inputs, targets, seed), targets, 0.1) / TOKENS
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    [ours], after = descend([[micro_batch(0, 1, 2, 3, 4)]])
    assert ours == pytest.approx(float(loss), rel=1e-5)
    close(after, [value - np.array(tf.convert_to_tensor(g)) for value, g in zip(before, gradients, strict=True)])
    assert max(np.abs(a - b).max() for a, b in zip(after, before, strict=True)) > 0.01


@pytest.mark.parametrize("parts", [1, 2, 5], ids=["one graph", "two rounds", "accumulated"])
def test_auxiliary_losses_are_weighted_by_the_tokens_of_their_micro_batch(parts: int) -> None:
    with ONE.scope():
        log_scale = keras.Variable(math.log(3.0))
        kernel = keras.Variable(np.zeros(VOCAB, np.float32))

    def model(inputs: Any, targets: Any, seed: Any) -> Any:
        # Each example adds a loss of its length, so that the mean over the tokens is known.
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(targets, 0), tf.float32))
        # The gradient needs the value of exp, so it is computed before the variable changes.
        add_auxiliary_loss(lengths * tf.exp(log_scale.value))
        add_auxiliary_loss(tf.constant(0.5))
        return tf.zeros_like(targets, tf.float32)[..., None] + kernel.value

    model.trainable_variables = [log_scale, kernel]  # type: ignore[attr-defined]
    numbers = {1: [(0, 1, 2, 3, 4)], 2: [(0, 1, 2), (3, 4)], 5: [(n,) for n in range(5)]}[parts]
    step = descent(model, 0.0)
    result = TrainStep.read(step([micro_batch(*group) for group in numbers], TOKENS, (1, 0)))
    tokens = [sum(len(TARGETS[number]) for number in group) for group in numbers]
    slope = sum(count * count / TOKENS for count in tokens)  # a micro-batch's loss times its share of the tokens
    assert result.auxiliary_loss == pytest.approx(3 * slope + 0.5)
    assert result.loss == pytest.approx(math.log(VOCAB))
    assert float(log_scale.numpy()) == pytest.approx(math.log(3.0) - 3 * slope)
    before = values(model)
    assert TrainStep.read(step([EMPTY], TOKENS, (1, 1))).auxiliary_loss == 0
    close(values(model), before)


@pytest.mark.parametrize(
    "micro_batches",
    [
        [micro_batch(0, 1, 2), micro_batch(3, 4)],
        [micro_batch(0, 1, 2, 3), micro_batch(4)],
        [micro_batch(4), EMPTY, micro_batch(0, 1, 2, 3), EMPTY],
        [micro_batch(n) for n in range(5)],
    ],
    ids=["two micro-batches", "unequal micro-batches", "empty micro-batches", "single examples"],
)
def test_micro_batches_add_up_to_the_whole(descend: Run, micro_batches: list[MicroBatch]) -> None:
    whole_losses, whole = descend([[micro_batch(0, 1, 2, 3, 4)]] * 2)
    losses, weights = descend([micro_batches] * 2)
    assert losses == pytest.approx(whole_losses, rel=1e-5)
    close(weights, whole)


def test_whole_and_accumulated_steps_may_follow_each_other(descend: Run) -> None:
    whole, micro_batches = [micro_batch(0, 1, 2, 3, 4)], [micro_batch(0, 1, 2), micro_batch(3, 4)]
    close(descend([micro_batches, whole, micro_batches])[1], descend([whole] * 3)[1])


@pytest.mark.parametrize("cut", [[micro_batch(0, 1, 2, 3, 4)], [micro_batch(n) for n in range(5)]])
def test_a_step_returns_the_norm_of_its_gradient_and_the_sum_of_the_votes(
    model: Transformer, cut: list[MicroBatch]
) -> None:
    step = descent(model, 0.1)
    before = values(model)
    results = [TrainStep.read(step(cut, TOKENS, (1, 1), vote)) for vote in (False, True, False)]
    assert [result.votes for result in results] == [0.0, 1.0, 0.0]
    assert [result.loss_scale for result in results] == [1.0] * 3
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    again = TrainStep.read(step(cut, TOKENS, (1, 1)))
    # Gradient descent with learning rate 1 subtracts the gradient, so the gradient is the difference of the weights.
    gradients = [value - now for value, now in zip(before, values(model), strict=True)]
    norm = math.sqrt(sum(float((gradient.astype(np.float64) ** 2).sum()) for gradient in gradients))
    assert again.gradient_norm == results[0].gradient_norm == pytest.approx(norm, rel=1e-4)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)


class Half:
    """A Transformer in float16, its training step and its loss scale."""

    def __init__(self, hparams: HParams) -> None:
        keras.utils.set_random_seed(1)
        with ONE.scope():
            self.model = Transformer(replace(hparams, **DROPOUT), VOCAB, 0, "mixed_float16")
            self.optimizer = adam(hparams)
            self.scale = LossScale()
        self.step = TrainStep(self.model, self.optimizer, 0.1, ONE, self.scale)

    def take(self) -> Any:
        return TrainStep.read(self.step([micro_batch(0, 1, 2, 3, 4)], TOKENS, (1, 1)))


def test_float16_takes_the_same_steps_as_float32_up_to_rounding(tiny_hparams: HParams, model: Transformer) -> None:
    half = Half(tiny_hparams)
    for ours, theirs in zip(half.model.trainable_variables, model.trainable_variables, strict=True):
        ours.assign(theirs.value)
    with ONE.scope():
        whole = TrainStep(model, adam(tiny_hparams), 0.1, ONE)
    before = values(model)
    for _ in range(3):
        ours, theirs = half.take(), TrainStep.read(whole([micro_batch(0, 1, 2, 3, 4)], TOKENS, (1, 1)))
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-2)
        assert ours.gradient_norm == pytest.approx(theirs.gradient_norm, rel=2e-2)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)


def test_a_gradient_that_overflows_changes_only_the_scale(tiny_hparams: HParams) -> None:
    half = Half(tiny_hparams)
    half.take()
    before, moments = values(half.model), [variable.value.numpy() for variable in half.optimizer.variables]
    half.scale.factor.assign(2.0**120)
    results = half.take()
    assert math.isfinite(results.loss) and not math.isfinite(results.gradient_norm) and results.loss_scale == 2.0**120
    for ours, theirs in zip(values(half.model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for variable, moment in zip(half.optimizer.variables, moments, strict=True):
        np.testing.assert_array_equal(variable.value.numpy(), moment)
    assert float(half.scale.factor.numpy()) == 2.0**119 and int(half.scale.good_steps.numpy()) == 0


def test_the_scale_is_doubled_after_enough_good_steps(tiny_hparams: HParams) -> None:
    half = Half(tiny_hparams)
    half.scale.good_steps.assign(LossScale.GOOD_STEPS - 2)
    half.take()
    assert float(half.scale.factor.numpy()) == LossScale.INITIAL
    half.take()
    assert float(half.scale.factor.numpy()) == 2 * LossScale.INITIAL and int(half.scale.good_steps.numpy()) == 0


TWO_REPLICAS = """
import keras, numpy as np, sys, tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.training.step import LossScale, TrainStep, adam

hparams = HParams(learning_rate_constant=0.1, learning_rate_warmup_steps=4, optimizer_adam_epsilon=1e-3)
random = np.random.default_rng(0)
table, kernel = random.normal(size=(12, 16)), random.normal(size=(16, 12))
inputs = [random.integers(1, 12, (6, length)).astype(np.int32) for length in (4, 5, 6)]
targets = [random.integers(1, 12, (6, length)).astype(np.int32) for length in (5, 4, 7)]

class Lookup:  # logits from the vector of each target and the mean vector of the source, with dropout on their sum
    def __init__(self, dtype):
        self.dtype = dtype
        self.trainable_variables = [keras.Variable(value, dtype="float32") for value in (table, kernel)]

    def __call__(self, inputs, targets, seed):
        vectors, kernel = (variable.value for variable in self.trainable_variables)
        x = tf.gather(vectors, targets) + tf.reduce_mean(tf.gather(vectors, inputs), axis=1, keepdims=True)
        x = dropout(x, 0.1, Seeds(seed))
        return tf.cast(tf.matmul(tf.cast(x, self.dtype), tf.cast(kernel, self.dtype)), tf.float32)

def run(devices, cuts, dtype="float32"):
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        model = Lookup(dtype)
        optimizer = adam(hparams)
        scale = LossScale() if dtype == "float16" else None
    step = TrainStep(model, optimizer, 0.1, strategy, scale)
    losses = []
    for number, (source, target) in enumerate(zip(inputs, targets)):
        sides = source, target, np.arange(6)
        micro_batches = list(zip(*(np.split(side, cuts[number]) for side in sides)))
        losses.append(TrainStep.read(step(micro_batches, target.size, (1, number))).loss)
    if scale:  # the next gradient overflows: all replicas skip the step and halve the scale
        before = [variable.numpy() for variable in model.trainable_variables]
        scale.factor.assign(2.0 ** 127)
        assert not np.isfinite(TrainStep.read(step(micro_batches, 1, (1, 9))).gradient_norm)
        assert all(np.array_equal(*pair) for pair in zip(before, (v.numpy() for v in model.trainable_variables)))
        assert scale.factor.numpy() == 2.0 ** 126 and scale.good_steps.numpy() == 0
    copies = [[copy.numpy() for copy in strategy.experimental_local_results(variable.value)]
              for variable in [*model.trainable_variables, *(scale.variables if scale else [])]]
    assert len(copies[0]) == len(devices)
    for variable in copies:
        assert all(np.array_equal(copy, variable[0]) for copy in variable)
    assert optimizer.iterations.value.numpy() == 3
    return losses, [variable[0] for variable in copies]

one = run(["CPU:0"], [[], [], []])
two = run(["CPU:0", "CPU:1"], [[5], [1, 3, 3], [2]])
np.testing.assert_allclose(two[0], one[0], rtol=1e-5)
for ours, theirs in zip(two[1], one[1], strict=True):
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
half = run(["CPU:0", "CPU:1"], [[5], [3], [2]], "float16")
np.testing.assert_allclose(half[0], one[0], rtol=2e-3)
for ours, theirs in zip(half[1], one[1]):
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
"""


def test_two_replicas_take_the_same_steps() -> None:
    result = Process(TWO_REPLICAS, ["script"]).result()
    assert result.returncode == 0, result.stderr[-3000:]


class Rows:
    """A model that looks up the logits of each position in a table of weights, by the target's id. Dropout follows."""

    def __init__(self, rate: float = 0.0) -> None:
        self.rate = rate
        start = np.random.default_rng(0).normal(size=(VOCAB, VOCAB))
        with ONE.scope():
            self.trainable_variables = [keras.Variable(start, dtype="float32", name="table")]

    def __call__(self, inputs: Any, targets: Any, seed: Any) -> Any:
        return dropout(tf.gather(self.trainable_variables[0].value, targets), self.rate, Seeds(seed))


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
    optimizer = adam(hparams)
    optimizer.build([variable])
    value, m, v = variable.numpy().astype(np.float64), np.zeros(3), np.zeros(3)
    gradients = np.array([[0.3, -1.0, 2.0], [0.1, 3.0, 1e-3], [-2.0, 0.5, 0.7]])
    for t, gradient in enumerate(gradients, 1):
        optimizer.update(
            variable.value, tf.constant(gradient, tf.float32), optimizer.step_size(optimizer.learning_rate)
        )
        optimizer.iterations.assign_add(1)
        m = 0.8 * m + 0.2 * gradient
        v = 0.95 * v + 0.05 * gradient**2
        rate = 4**-0.5 * min(t**-0.5, t * 2**-1.5)
        rate *= np.sqrt((value**2).sum() / 3) if is_relative else 1.0
        value -= rate * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-9)
        np.testing.assert_allclose(variable, value, rtol=1e-5)


def test_the_relative_step_of_a_weight_of_zeros_is_a_thousandth() -> None:
    variable = keras.Variable([0.0, 0.0], dtype="float32")
    optimizer = adam(HParams(optimizer_adafactor_multiply_by_parameter_scale=True))
    optimizer.build([variable])
    optimizer.update(variable.value, tf.constant([2.0, -3.0]), optimizer.step_size(tf.constant(0.5)))
    np.testing.assert_allclose(variable, [-0.5e-3, 0.5e-3], rtol=1e-4)


def test_the_seed_and_the_example_decide_dropout() -> None:
    model = Rows(rate=0.5)
    [table] = values(model)
    step = descent(model, 0.0)

    def change(seed: tuple[int, int], *micro_batches: MicroBatch) -> np.ndarray:
        model.trainable_variables[0].assign(table)
        step(micro_batches, TOKENS, seed)
        return values(model)[0] - table

    whole = change((1, 5), micro_batch(0, 1, 2, 3, 4))
    close([whole], [change((1, 5), micro_batch(3, 4), micro_batch(1), micro_batch(2, 0))])
    close([whole], [change((1, 5), micro_batch(4, 3, 2), EMPTY, micro_batch(0, 1))])
    for other in ((1, 6), (2, 5), (5, 1)):
        assert not np.allclose(change(other, micro_batch(0, 1, 2, 3, 4)), whole)
    first = change((1, 5), micro_batch(0))
    close([2 * first], [change((1, 5), micro_batch(0), micro_batch(0))])
    assert not np.allclose(change((1, 5), micro_batch(0)._replace(examples=np.array([9]))), first)


def test_the_error_for_a_full_device_names_the_flag_and_half_the_positions() -> None:
    error = str(out_of_memory("OOM when allocating tensor with shape[8192,37000]", 5000))
    assert "(OOM when allocating tensor with shape[8192,37000])" in error
    assert "give --max_tokens_per_replica=2500 with the same command" in error
    assert "--max_tokens_per_replica=1 " in str(out_of_memory("?", 1))


class Unused(keras.Model):
    """Has a weight on which its logits do not depend."""

    def __init__(self) -> None:
        super().__init__(name="unused")
        self.table = self.add_weight(shape=(VOCAB, VOCAB), name="table")
        self.extra = self.add_weight(shape=(3,), name="extra")

    def call(self, inputs: Any, targets: Any, seed: Any = None) -> tf.Tensor:
        return tf.gather(self.table, targets)


def test_a_weight_that_the_loss_does_not_use_is_named() -> None:
    with ONE.scope():
        step = TrainStep(Unused(), Descent(), 0.1, ONE)
    with pytest.raises(UserError, match="model 'unused': its logits do not depend on weight unused/extra; use the"):
        step([micro_batch(0, 1)], TOKENS, (1, 0))
