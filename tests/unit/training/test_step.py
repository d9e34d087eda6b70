"""Tests that a step does not depend on the number of micro-batches or devices, and that a float16
step is scaled.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from processes import Process
from step_models import Lookup
from t2t_repro.data.pipeline import MicroBatch
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import example_seeds, hashed
from t2t_repro.models import variants
from t2t_repro.models.model import make_model
from t2t_repro.training.loss import consistency_loss, smoothed_cross_entropy
from t2t_repro.training.loss_scale import LossScale
from t2t_repro.training.optimizer import Adam, make_optimizer
from t2t_repro.training.step import Result, TrainStep

VOCAB = 12
HPARAMS = HParams()
ONE = tf.distribute.MirroredStrategy(["/cpu:0"])
EMPTY = MicroBatch(np.zeros((0, 1), np.int32), np.zeros((0, 1), np.int32), np.zeros(0, np.int32))
SOURCES = [[3, 4, 1], [5, 1], [6, 7, 8, 9, 1], [10, 1], [11, 3, 1]]
TARGETS = [[4, 1], [5, 6, 7, 1], [8, 1], [9, 10, 1], [3, 1]]
TOKENS = sum(map(len, TARGETS))


def padded(rows: list[list[int]]) -> np.ndarray:
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, numbers in zip(ids, rows, strict=True):
        row[: len(numbers)] = numbers
    return ids


def micro_batch(*numbers: int) -> MicroBatch:
    return MicroBatch(
        padded([SOURCES[n] for n in numbers]),
        padded([TARGETS[n] for n in numbers]),
        np.array(numbers),
    )


WHOLE = [micro_batch(0, 1, 2, 3, 4)]
SINGLE = [micro_batch(n) for n in range(5)]
WITH_EMPTY = [micro_batch(4), EMPTY, micro_batch(0, 1, 2, 3), EMPTY]


def values(model: Any) -> list[np.ndarray]:
    return [variable.value.numpy() for variable in model.trainable_variables]


class Descent(Adam):
    """Subtracts the gradient from the weight."""

    def update(self, variable: Any, gradient: tf.Tensor, step_size: tf.Tensor) -> None:
        variable.assign_sub(gradient)


class Run:
    """A model, and steps from its initial weights, by default of gradient descent."""

    def __init__(
        self,
        model: Any,
        hparams: HParams = HPARAMS,
        optimizer: Adam | None = None,
        scale: LossScale | None = None,
    ) -> None:
        self.model = model
        self.start = values(model)
        with ONE.scope():
            self.step = TrainStep(model, optimizer or Descent(), hparams, ONE, scale)

    def results(self, *steps: Sequence[MicroBatch], vote: bool = False) -> list[Result]:
        """Takes steps with the seeds (1, 0), (1, 1), ..., and returns their results."""
        for variable, value in zip(self.model.trainable_variables, self.start, strict=True):
            variable.assign(value)
        return [
            TrainStep.read(self.step(step, TOKENS, (1, number), vote))
            for number, step in enumerate(steps)
        ]

    def changes(self, *steps: Sequence[MicroBatch]) -> list[np.ndarray]:
        self.results(*steps)
        return [
            after - before for after, before in zip(values(self.model), self.start, strict=True)
        ]


@pytest.fixture(scope="module")
def lookup() -> Run:
    with ONE.scope():
        return Run(Lookup(VOCAB))


def close(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_step_follows_the_gradient_of_the_loss_per_token(lookup: Run) -> None:
    inputs, targets, examples = WHOLE[0]
    lookup.results()
    with tf.GradientTape() as tape:
        logits = lookup.model(
            inputs, targets, example_seeds(np.array([1, 0], np.uint32), examples.astype(np.uint32))
        )
        loss = smoothed_cross_entropy(logits, targets, 0.1) / TOKENS
    gradients = tape.gradient(
        loss, [variable.value for variable in lookup.model.trainable_variables]
    )
    gradients = [np.array(tf.convert_to_tensor(gradient)) for gradient in gradients]
    norm = math.sqrt(sum(float((gradient.astype(np.float64) ** 2).sum()) for gradient in gradients))
    close(lookup.changes(WHOLE), [-gradient for gradient in gradients])
    for vote in (False, True):
        [result] = lookup.results(SINGLE, vote=vote)
        assert result == pytest.approx((float(loss), 0.0, norm, float(vote), 1.0, 0.001), rel=1e-4)


def test_micro_batches_add_up_to_the_whole(lookup: Run) -> None:
    losses = [result.loss for result in lookup.results(WHOLE, WHOLE, WHOLE)]
    whole = values(lookup.model)
    results = lookup.results(SINGLE, WHOLE, WITH_EMPTY)
    assert [result.loss for result in results] == pytest.approx(losses, rel=1e-5)
    close(values(lookup.model), whole)


def test_gradients_longer_than_the_limit_are_scaled_down_to_it(lookup: Run) -> None:
    [result] = lookup.results(WHOLE)
    whole = lookup.changes(WHOLE)
    for limit, factor in ((result.gradient_norm / 4, 0.25), (result.gradient_norm * 2, 1.0)):
        with ONE.scope():
            run = Run(lookup.model, optimizer=Descent(global_clipnorm=limit))
        run.start = lookup.start
        close(run.changes(SINGLE), [factor * change for change in whole])
        norm_before = run.results(WHOLE)[0].gradient_norm
        assert norm_before == pytest.approx(result.gradient_norm)


def test_r_drop_compares_two_passes_with_other_masks(tiny_hparams: HParams) -> None:
    hparams = replace(tiny_hparams, layer_prepostprocess_dropout=0.3, rdrop_alpha=5.0)
    with ONE.scope():
        model = make_model(hparams, VOCAB)
        step = TrainStep(model, make_optimizer(hparams), hparams, ONE)
    inputs, targets, examples = WHOLE[0]
    seed = example_seeds(np.array([1, 0], np.uint32), examples.astype(np.uint32))
    passes = [model(inputs, targets, seeds) for seeds in (seed, hashed(seed))]
    loss = (
        sum(float(smoothed_cross_entropy(logits, targets, 0.1)) for logits in passes) / 2 / TOKENS
    )
    consistency = float(consistency_loss(*passes, targets)) / TOKENS
    assert consistency > 0.001
    result = TrainStep.read(step(SINGLE, TOKENS, (1, 0)))
    assert (result.loss, result.auxiliary_loss) == pytest.approx(
        (loss, 2.5 * consistency), rel=1e-4
    )


def test_frozen_weights_stay_and_cost_no_memory(tiny_hparams: HParams) -> None:
    hparams = replace(tiny_hparams, frozen="embedding, encoder/*/self_attention")
    with ONE.scope():
        model = variants.transformer(tiny_hparams, VOCAB)
        step = TrainStep(model, make_optimizer(hparams), hparams, ONE)
    start = {variable.path: variable.value.numpy() for variable in model.trainable_variables}
    step(SINGLE, TOKENS, (1, 0))
    same = {
        path
        for path, value in start.items()
        if "embedding" in path or "encoder/layer_0/self" in path
    }
    for variable in model.trainable_variables:
        assert np.array_equal(variable, start[variable.path]) == (variable.path in same)
    sizes = [int(np.prod(variable.shape)) for variable in step.state if len(variable.shape)]
    assert sum(sizes) == 2 * sum(
        value.size for path, value in start.items() if path not in same
    )  # Adam's moments
    for pattern in ("encodr", "*", "embedding,encoder,decoder"):
        with pytest.raises(UserError), ONE.scope():
            TrainStep(model, make_optimizer(hparams), replace(hparams, frozen=pattern), ONE)


def test_the_seed_and_the_example_decide_dropout(lookup: Run) -> None:
    def change(seed: tuple[int, int], *micro_batches: MicroBatch) -> np.ndarray:
        lookup.results()
        lookup.step(micro_batches, TOKENS, seed)
        return values(lookup.model)[0]

    whole = change((1, 5), *WHOLE)
    close([whole], [change((1, 5), micro_batch(3, 4), micro_batch(1), micro_batch(2, 0))])
    for other in ((1, 6), (2, 5)):
        assert not np.allclose(change(other, *WHOLE), whole)
    other_example = micro_batch(0)._replace(examples=np.array([9]))
    assert not np.allclose(change((1, 5), other_example), change((1, 5), micro_batch(0)))


@pytest.mark.parametrize("numbers", [[(0, 1, 2), (3, 4)], [(n,) for n in range(5)]])
def test_auxiliary_losses_are_weighted_by_the_tokens_of_their_micro_batch(
    numbers: list[tuple[int, ...]],
) -> None:
    with ONE.scope():
        log_scale = keras.Variable(math.log(3.0))
        kernel = keras.Variable(np.zeros(VOCAB, np.float32))

    def model(inputs: Any, targets: Any, seed: Any) -> Any:
        # Each example adds a loss of its length, so that the mean over the tokens is known.
        lengths = tf.reduce_sum(tf.cast(tf.not_equal(targets, 0), tf.float32))
        # The gradient needs the value of exp, so it is computed before the variable changes.
        model.losses = [lengths * tf.exp(log_scale.value), tf.constant(0.5)]  # type: ignore[attr-defined]
        return tf.zeros_like(targets, tf.float32)[..., None] + kernel.value

    model.trainable_variables = [log_scale, kernel]  # type: ignore[attr-defined]
    run = Run(model, HParams(label_smoothing=0.0))
    [result] = run.results([micro_batch(*group) for group in numbers])
    tokens = [sum(len(TARGETS[number]) for number in group) for group in numbers]
    # A micro-batch's loss times its share of the tokens.
    slope = sum(count * count / TOKENS for count in tokens)
    assert result.auxiliary_loss == pytest.approx(3 * slope + 0.5)
    assert result.loss == pytest.approx(math.log(VOCAB))
    assert float(log_scale.numpy()) == pytest.approx(math.log(3.0) - 3 * slope)
    assert run.results([EMPTY])[0].auxiliary_loss == 0


def test_a_weight_that_the_loss_does_not_use_is_named() -> None:
    with ONE.scope():
        model = Lookup(VOCAB)
        model.trainable_variables.append(keras.Variable(0.0, name="extra"))
    with pytest.raises(
        UserError, match="model 'lookup': its logits do not depend on weight extra; use the"
    ):
        Run(model).results(WHOLE)


def test_float16_takes_the_same_steps_as_float32_and_skips_those_that_overflow(
    tiny_hparams: HParams,
) -> None:
    with ONE.scope():
        scale = LossScale()
        half = Run(Lookup(VOCAB, "float16"), optimizer=make_optimizer(tiny_hparams), scale=scale)
        single = Run(Lookup(VOCAB), optimizer=make_optimizer(tiny_hparams))

    def take(run: Run) -> Result:
        return TrainStep.read(run.step(WHOLE, TOKENS, (1, 1)))

    def scale_and_count() -> tuple[float, int]:
        return float(scale.factor.numpy()), int(scale.good_steps.numpy())

    scale.good_steps.assign(LossScale.GOOD_STEPS - 3)
    for _ in range(3):
        assert take(half)[:3] == pytest.approx(take(single)[:3], rel=1e-2)
    assert scale_and_count() == (2 * LossScale.INITIAL, 0)
    take(half)
    assert scale_and_count() == (2 * LossScale.INITIAL, 1)
    scale.factor.assign(2.0**120)
    # The last two variables of the state belong to the scale.
    variables = [*half.model.trainable_variables, *half.step.state[:-2]]
    before = [variable.value.numpy() for variable in variables]
    result = take(half)
    assert math.isfinite(result.loss)
    assert not math.isfinite(result.gradient_norm)
    assert result.loss_scale == 2.0**120 and result.is_sound
    assert not result._replace(loss_scale=1.0).is_sound
    for variable, value in zip(variables, before, strict=True):
        assert np.array_equal(variable.value.numpy(), value)
    assert scale_and_count() == (2.0**119, 0)


TWO_REPLICAS = """
import numpy as np, tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from step_models import Lookup
from t2t_repro.data.pipeline import MicroBatch
from t2t_repro.hparam import HParams
from t2t_repro.training.loss_scale import LossScale
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import TrainStep

schedule = dict(learning_rate_constant=0.1, learning_rate_warmup_steps=4)
adam = HParams(**schedule, optimizer_adam_epsilon=1e-3)
momentum = dict(optimizer="momentum", optimizer_momentum_nesterov=True)
nesterov = HParams(**schedule, **momentum, clip_grad_norm=0.1)
clipped = HParams(optimizer="sgd", learning_rate_schedule="constant", clip_grad_norm=0.1)
random = np.random.default_rng(0)
inputs = [random.integers(1, 12, (6, length)).astype(np.int32) for length in (4, 5, 6)]
targets = [random.integers(1, 12, (6, length)).astype(np.int32) for length in (5, 4, 7)]

def run(hparams, devices, cuts, dtype="float32"):
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        model, optimizer = Lookup(12, dtype), make_optimizer(hparams)
        scale = LossScale() if dtype == "float16" else None
    step = TrainStep(model, optimizer, hparams, strategy, scale)
    losses = []
    for number, (source, target) in enumerate(zip(inputs, targets)):
        sides = source, target, np.arange(6)
        parts = [np.split(side, cuts[number]) for side in sides]
        micro_batches = list(map(MicroBatch, *parts))
        losses.append(TrainStep.read(step(micro_batches, target.size, (1, number))).loss)
    if scale:  # the next gradient overflows: all replicas skip the step and halve the scale
        before = [variable.numpy() for variable in model.trainable_variables]
        scale.factor.assign(2.0 ** 127)
        assert not np.isfinite(TrainStep.read(step(micro_batches, 1, (1, 9))).gradient_norm)
        for variable, value in zip(model.trainable_variables, before):
            assert np.array_equal(variable.numpy(), value)
        assert scale.factor.numpy() == 2.0 ** 126 and scale.good_steps.numpy() == 0
    variables = [*model.trainable_variables, *(scale.variables if scale else [])]
    copies = [
        [copy.numpy() for copy in strategy.experimental_local_results(variable.value)]
        for variable in variables
    ]
    assert len(copies[0]) == len(devices)
    for variable in copies:
        assert all(np.array_equal(copy, variable[0]) for copy in variable)
    assert optimizer.iterations.value.numpy() == 3
    return losses, [variable[0] for variable in copies]

for hparams, dtype, cuts, tolerance in (
    (adam, "float32", [[5], [1, 3, 3], [2]], 1e-6),
    (adam, "float16", [[5], [3], [2]], 2e-3),
    (nesterov, "float32", [[5], [3], [2]], 1e-6),
    (clipped, "float16", [[5], [3], [2]], 2e-3),
):
    one = run(hparams, ["CPU:0"], [[], [], []])
    two = run(hparams, ["CPU:0", "CPU:1"], cuts, dtype)
    np.testing.assert_allclose(two[0], one[0], rtol=10 * tolerance)
    for ours, theirs in zip(two[1], one[1]):
        np.testing.assert_allclose(ours, theirs, atol=tolerance)
"""


def test_two_replicas_take_the_same_steps() -> None:
    result = Process(TWO_REPLICAS, ["script"]).result()
    assert result.returncode == 0, result.stderr[-3000:]
