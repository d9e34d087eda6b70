"""Compares ByteNet with a model in numpy, and tests its dynamic unfolding and receptive field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from decoding_models import FAMILIES, INPUTS, small_model
from t2t_repro.rivals.bytenet import ByteNet, ResidualBlock, unfolded_length

HPARAMS = FAMILIES["bytenet"]
TARGETS = np.array([[4, 5, 6, 7, 8, 9, 4, 1], [7, 1, 0, 0, 0, 0, 0, 0]], np.int32)


def build(changes: dict[str, Any] | None = None) -> Any:
    """Returns a small ByteNet."""
    return small_model(replace(HPARAMS, **changes or {}), spread=0.1)


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


def test_unfolded_lengths() -> None:
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
