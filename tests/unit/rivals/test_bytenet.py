"""Tests ByteNet against a computation in numpy, and which inputs affect which outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from decoding_models import (
    FAMILIES,
    INPUTS,
    check_coarse,
    check_steps,
    small_model,
)
from t2t_repro.rivals.bytenet import ByteNet, ResidualBlock
from t2t_repro.rivals.bytenet_size import dilation, unfolded_length
from t2t_repro.training.optimizer import adam
from t2t_repro.training.step import TrainStep

HPARAMS = FAMILIES["bytenet"]
TARGETS = np.array([[4, 5, 6, 7, 8, 9, 4, 1], [7, 1, 0, 0, 0, 0, 0, 0]], np.int32)


def build(changes: dict[str, Any] | None = None, precision: str = "float32") -> Any:
    """Returns a small ByteNet. Calls with equal arguments return models with equal random weights."""
    return small_model(replace(HPARAMS, **changes or {}), precision, spread=0.1)


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(layer.weight) + np.asarray(layer.bias)


def relu_of_norm(norm: Any, x: np.ndarray) -> np.ndarray:
    centered = x - x.mean(axis=1, keepdims=True)
    normalized = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + HPARAMS.norm_epsilon)
    return np.maximum(normalized * np.asarray(norm.scale) + np.asarray(norm.bias), 0)


def numpy_stack(blocks: list[ResidualBlock], x: np.ndarray, is_masked: bool) -> np.ndarray:
    """Returns the output [T, 2 d] of a stack for x [T, 2 d], with the dilations 1, 2, 4, 8, 16, 1, ..."""
    for block, distance in zip(blocks, (1, 2, 4, 8, 16, 1), strict=False):
        y = relu_of_norm(block.norms[1], linear(block.reduce, relu_of_norm(block.norms[0], x)))
        convolved = np.zeros_like(y)
        for t in range(len(x)):
            for i in range(3):
                position = t + (i - (2 if is_masked else 1)) * distance
                if 0 <= position < len(x):
                    convolved[t] += y[position] @ np.asarray(block.kernel_weight())[i]
        y = convolved + np.asarray(block.convolution.bias)
        x = x + linear(block.expand, relu_of_norm(block.norms[2], y))
    return x


def numpy_model(model: ByteNet, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns the logits [T, V] for ids [S] and [T] without padding."""
    width, unfolded = 2 * HPARAMS.hidden_size, int(np.ceil(1.2 * len(source)))
    x = np.zeros((unfolded, width))
    x[: len(source)] = np.asarray(model.embedding.table)[source] * model.embedding.factor
    x = numpy_stack(model.encoder, x, False)
    norm = model.encoder_norm
    centered = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(axis=1, keepdims=True) + HPARAMS.norm_epsilon)
    encoded = centered / deviation * np.asarray(norm.scale) + np.asarray(norm.bias)
    h = np.zeros((len(target), width))
    h[1:] = np.asarray(model.target_embedding.table)[target[:-1]] * model.embedding.factor
    h[:unfolded] += encoded[: len(h)]
    h = relu_of_norm(model.decoder_norm, numpy_stack(model.decoder, h, True))
    h = np.maximum(linear(model.last, h), 0)
    return h @ np.asarray(model.softmax.table).T + np.asarray(model.softmax_bias)


@pytest.mark.parametrize(
    "changes", [{}, {"shared_embedding_and_softmax_weights": False, "num_hidden_layers": 6}], ids=["shared", "separate"]
)
def test_logits_equal_those_of_numpy(changes: dict[str, Any]) -> None:
    model = build(changes)
    logits = np.asarray(model(INPUTS, TARGETS))
    for row, (source, target) in enumerate(((5, 8), (3, 2))):
        expected = numpy_model(model, INPUTS[row, :source], TARGETS[row, :target])
        np.testing.assert_allclose(logits[row, :target], expected, atol=1e-4)


def test_dilations_and_unfolded_lengths() -> None:
    assert [dilation(index) for index in range(7)] == [1, 2, 4, 8, 16, 1, 2]
    assert [unfolded_length(length) for length in (1, 4, 5, 6, 10, 11)] == [2, 5, 6, 8, 12, 14]
    memory = np.asarray(build().encode(INPUTS))
    assert memory.shape == (2, 6, 12)  # 6 positions for the 5 tokens, 4 for the 3 tokens of the second source
    assert np.all(np.any(memory[0] != 0, axis=1)) and np.all(np.any(memory[1, :4] != 0, axis=1))
    np.testing.assert_array_equal(memory[1, 4:], 0)


@pytest.mark.parametrize("is_masked", [False, True])
def test_an_output_depends_on_the_positions_in_the_receptive_field(is_masked: bool) -> None:
    keras.utils.set_random_seed(1)
    blocks = [ResidualBlock(index, HPARAMS, "float32", is_masked) for index in range(3)]
    x = tf.constant(np.random.default_rng(0).normal(size=(1, 40, 12)).astype("float32"))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for block in blocks:
            y = block(y, None, None)
        loss = tf.reduce_sum(y[:, 20])
    reached = np.flatnonzero(np.abs(tape.gradient(loss, x)[0]).max(axis=1)).tolist()
    # Kernel width 3 with dilations 1, 2 and 4 reaches 7 positions to both sides, or 14 earlier ones.
    assert reached == list(range(6, 21) if is_masked else range(13, 28))


def test_a_position_sees_only_earlier_targets_and_all_of_the_source() -> None:
    model = build()
    logits = np.asarray(model(INPUTS, TARGETS))
    for t in range(8):
        other = TARGETS.copy()
        other[:, t:] = 17
        changed = np.asarray(model(INPUTS, other))
        np.testing.assert_array_equal(changed[:, : t + 1], logits[:, : t + 1])
        assert t == 7 or not np.allclose(changed[:, t + 1], logits[:, t + 1])
    other = INPUTS.copy()
    other[0, 3] = 17
    assert np.all(np.abs(np.asarray(model(other, TARGETS)) - logits)[0].max(axis=1) > 1e-4)


@pytest.mark.parametrize("hypotheses", [1, 3])
def test_decoding_by_steps_gives_the_same_logits(hypotheses: int) -> None:
    check_steps(build(), hypotheses, length=8)  # longer than the 6 positions of the encoder's output


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "bfloat16"])
def test_16_bits_are_close_to_float32(precision: str) -> None:
    coarse = build(precision=precision)
    check_coarse(build(), coarse, tolerance=0.15)
    assert {tensor.dtype for tensor in coarse.start(2)} == {tf.bfloat16}


def test_a_model_learns_a_batch_by_heart() -> None:
    changes: dict[str, Any] = {
        "num_hidden_layers": 2, "learning_rate_constant": 0.02, "learning_rate_schedule": "constant",
        "optimizer_adam_epsilon": 1e-6,
    }  # fmt: skip
    model, strategy = build(changes), tf.distribute.get_strategy()
    step = TrainStep(model, adam(replace(HPARAMS, **changes)), 0.0, strategy)
    batch = (INPUTS, TARGETS, np.arange(2, dtype=np.uint32))
    losses = [TrainStep.read(step([batch], 10, (1, number))).loss for number in range(80)]
    assert losses[-1] < 0.2 < 1 < losses[0]
