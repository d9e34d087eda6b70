"""Compares ByteNet with a model in numpy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decoding_models import FAMILIES, SEED, VOCAB, check_steps, small_model
from t2t_repro.rivals.bytenet import ByteNet, ResidualBlock

HPARAMS = FAMILIES["bytenet"]
LENGTHS = ((20, 40), (13, 2), (1, 9))
"""Lengths of sources and targets. The decoder reads beyond the end of the memory."""


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(layer.weight) + np.asarray(layer.bias)


def normalized(norm: Any, x: np.ndarray) -> np.ndarray:
    centered = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(axis=1, keepdims=True) + HPARAMS.norm_epsilon)
    return centered / deviation * np.asarray(norm.scale) + np.asarray(norm.bias)


def numpy_stack(blocks: list[ResidualBlock], x: np.ndarray, is_masked: bool) -> np.ndarray:
    """Returns the output [T, 2 d] of a stack for x [T, 2 d], with the dilations 1, 2, 4, 8, 16, 1,
    ...
    """
    for block, distance in zip(blocks, (1, 2, 4, 8, 16, 1), strict=False):
        y = linear(block.reduce, np.maximum(normalized(block.norms[0], x), 0))
        y = np.maximum(normalized(block.norms[1], y), 0)
        kernel = np.asarray(block.convolution.weight).reshape(3, y.shape[1], -1)
        convolved = np.tile(np.asarray(block.convolution.bias), (len(x), 1))
        for t in range(len(x)):
            for i in range(3):
                position = t + (i - (2 if is_masked else 1)) * distance
                if 0 <= position < len(x):
                    convolved[t] += y[position] @ kernel[i]
        x = x + linear(block.expand, np.maximum(normalized(block.norms[2], convolved), 0))
    return x


def numpy_model(model: ByteNet, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns the logits [T, V] for ids [S] and [T] without padding."""
    width = 2 * HPARAMS.hidden_size
    unfolded = int(np.ceil(1.2 * len(source)))
    x = np.zeros((unfolded, width))
    x[: len(source)] = np.asarray(model.embedding.table)[source] * model.embedding.factor
    encoded = normalized(model.encoder_norm, numpy_stack(model.encoder, x, False))
    h = np.zeros((len(target), width))
    h[1:] = np.asarray(model.target_embedding.table)[target[:-1]] * model.embedding.factor
    h[:unfolded] += encoded[: len(h)]
    h = np.maximum(normalized(model.decoder_norm, numpy_stack(model.decoder, h, True)), 0)
    h = linear(model.last, h)
    h = h if model.hparams.last_activation == "linear" else np.maximum(h, 0)
    return h @ np.asarray(model.softmax.table).T + np.asarray(model.softmax_bias)


@pytest.mark.parametrize(
    "changes",
    [
        {"last_activation": "linear"},
        {"shared_embedding_and_softmax_weights": False, "num_encoder_layers": 6},
    ],
    ids=["shared", "separate"],
)
def test_logits_equal_those_of_numpy(changes: dict[str, Any]) -> None:
    model = small_model(replace(HPARAMS, **changes), spread=0.1)
    random = np.random.default_rng(0)
    inputs, targets = (
        random.integers(1, VOCAB, (len(LENGTHS), max(lengths)))
        for lengths in zip(*LENGTHS, strict=True)
    )
    for row, (source, target) in enumerate(LENGTHS):
        inputs[row, source:] = 0
        targets[row, target:] = 0
    logits = np.asarray(model(inputs, targets))
    for row, (source, target) in enumerate(LENGTHS):
        expected = numpy_model(model, inputs[row, :source], targets[row, :target])
        np.testing.assert_allclose(logits[row, :target], expected, atol=1e-4)
    if "num_encoder_layers" in changes:
        check_steps(
            model, length=7
        )  # the last step is beyond the 6 positions of the encoder's output


@pytest.mark.parametrize(("rate", "is_same"), [(0.9999, True), (0.0, False)])
def test_dropout_of_all_embeddings_leaves_nothing_of_the_tokens(rate: float, is_same: bool) -> None:
    model = small_model(replace(HPARAMS, layer_prepostprocess_dropout=0.0, embedding_dropout=rate))
    inputs, targets = np.ones((2, 2, 5), np.int64) * [[[2]], [[3]]]  # [B, T]
    logits, other_source, other_target = (
        np.asarray(model(*ids, SEED))
        for ids in ((inputs, targets), (inputs + 1, targets), (inputs, targets + 1))
    )
    assert np.array_equal(logits, other_source) == np.array_equal(logits, other_target) == is_same
