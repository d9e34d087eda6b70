"""Tests ConvS2S against a computation in numpy, and which inputs affect which outputs and gradients."""

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
    TARGETS,
    check_against_numpy,
    check_coarse,
    check_steps,
    small_model,
)
from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import dropout
from t2t_repro.rivals.convs2s import ConvS2S, scale_gradient
from t2t_repro.rivals.weight_normalization import NormalizedLinear
from t2t_repro.training.optimizer import adam
from t2t_repro.training.step import TrainStep

HPARAMS = FAMILIES["convs2s"]
SEPARATE = {"shared_embedding_and_softmax_weights": False, "output_embedding_size": 10}
WIDER = {"num_decoder_layers": 3}
VARIANTS: dict[str, dict[str, Any]] = {"shared": {}, "separate, with a wider decoder layer": {**SEPARATE, **WIDER}}
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def build(changes: dict[str, Any] | None = None, precision: str = "float32") -> Any:
    """Returns a small ConvS2S. Calls with equal arguments return models with equal random weights."""
    return small_model(replace(HPARAMS, **changes or {}), precision)


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    v, g, b = (np.asarray(weight) for weight in (layer.v, layer.g, layer.b))
    return x @ (v / np.linalg.norm(v, axis=0) * g) + b


def gated_convolution(layer: Any, x: np.ndarray, width: int, before: int) -> np.ndarray:
    """Returns the gated linear unit of a convolution of x [T, C] over `before` earlier positions and later ones."""
    padded = np.concatenate([np.zeros((before, x.shape[1])), x, np.zeros((width, x.shape[1]))])
    windows = np.stack([padded[t : t + width].reshape(-1) for t in range(len(x))])
    a, b = np.split(linear(layer.linear, windows), 2, axis=1)
    return a / (1 + np.exp(-b))


def numpy_model(model: ConvS2S, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the logits [T, V] and the attention weights [T, S] of each layer, for ids [S] and [T] without padding."""
    half = 0.5**0.5
    e = np.asarray(model.embedding.table)[source] + np.asarray(model.source_position.table)[: len(source)]
    x = linear(model.encoder_in, e)
    for layer in model.encoder:
        width = layer.shape[0]
        residual = x if layer.projection is None else linear(layer.projection, x)
        x = (gated_convolution(layer, x, width, (width - 1) // 2) + residual) * half
    z = linear(model.encoder_out, x)
    m = len(source)
    embedded = np.asarray(model.target_embedding.table)[target[:-1]]
    g = np.concatenate([np.zeros((1, e.shape[1])), embedded]) + np.asarray(model.target_position.table)[: len(target)]
    h, all_weights = linear(model.decoder_in, g), []
    for layer in model.decoder:
        width = layer.shape[0]
        residual = h if layer.projection is None else linear(layer.projection, h)
        h = gated_convolution(layer, h, width, width - 1)
        d = (linear(layer.attention.query, h) + g) * half
        odds = np.exp(d @ z.T)
        weights = odds / odds.sum(axis=1, keepdims=True)
        context = weights @ ((z + e) * half) * m * np.sqrt(1 / m)
        h = (h + linear(layer.attention.output_projection, context)) * half
        h = (h + residual) * half
        all_weights.append(weights)
    h = linear(model.decoder_out, h)
    if model.hparams.shared_embedding_and_softmax_weights:
        return h @ np.asarray(model.embedding.table).T + np.asarray(model.softmax_bias), all_weights
    return linear(model.softmax, h), all_weights


@variants
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(changes: dict[str, Any]) -> None:
    check_against_numpy(build(changes), numpy_model, atol=1e-4)


def test_an_encoder_output_sees_the_positions_that_the_kernels_reach() -> None:
    model = build()
    source = np.arange(2, 12)[None]
    keys = np.asarray(model.encode(source).keys)
    changed = source.copy()
    changed[0, 5] = 19
    difference = np.abs(np.asarray(model.encode(changed).keys) - keys).max(axis=(0, 2))
    # Two kernels of width 3 reach one position to both sides; the kernel of width 2 reaches the next position.
    assert np.flatnonzero(difference).tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("hypotheses", [1, 3])
@variants
def test_decoding_by_steps_gives_the_same_logits(changes: dict[str, Any], hypotheses: int) -> None:
    check_steps(build(changes), hypotheses, length=4)


def test_dropout_is_at_the_embeddings_the_blocks_and_before_the_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def recorded(x: Any, rate: float, seeds: Any) -> Any:
        shapes.append(tuple(x.shape[1:]))
        return dropout(x, rate, seeds)

    monkeypatch.setattr("t2t_repro.rivals.convs2s.dropout", recorded)
    build()(INPUTS, TARGETS)
    encoder, decoder = [(5, 16), (5, 8), (5, 8), (5, 8)], [(4, 16), (4, 8), (4, 8), (4, 16)]
    assert shapes == encoder + decoder  # the last is before the softmax (section 4.2)


def test_a_gradient_is_scaled() -> None:
    x = tf.constant([0.1, -3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = scale_gradient(x, 0.25)
        loss = tf.reduce_sum(y * y)
    np.testing.assert_allclose(y, x, rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, x), 0.25 * 2 * x, rtol=1e-6)


def test_only_the_encoder_receives_scaled_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradients() -> dict[str, np.ndarray]:
        model = build(SEPARATE)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(INPUTS, TARGETS) ** 2)
        values = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        names = [weight.path for weight in model.trainable_variables]
        return {name: tf.convert_to_tensor(value).numpy() for name, value in zip(names, values, strict=True)}

    scaled = gradients()
    monkeypatch.setattr("t2t_repro.rivals.convs2s.scale_gradient", lambda x, scale: x)
    for name, gradient in gradients().items():
        is_embedding = name in ("convs2s/embedding/table", "convs2s/encoder/position/table")
        # The 2 decoder layers read the encoder output as keys and in values.
        factor = 1 / 4 if "encoder" in name and not is_embedding else 1
        assert np.allclose(scaled[name], factor * gradient, rtol=1e-3, atol=1e-4) != is_embedding, name


def test_initial_variances_are_those_of_section_3_5() -> None:
    hparams = HParams(model="convs2s", num_hidden_layers=1, hidden_size=200, layer_prepostprocess_dropout=0.2)
    keras.utils.set_random_seed(1)
    model = ConvS2S(hparams, 500)

    def std(weight: Any) -> float:
        return float(np.asarray(weight).std())

    assert std(model.embedding.table) == pytest.approx(0.1, rel=0.02)
    assert std(model.source_position.table) == pytest.approx(0.1, rel=0.02)
    for layer in (model.encoder[0], model.decoder[0]):
        assert std(layer.linear.v) == pytest.approx((4 * 0.8 / 600) ** 0.5, rel=0.02)
    for linear_layer in (model.encoder_in, model.decoder_in):
        assert std(linear_layer.v) == pytest.approx((0.8 / 200) ** 0.5, rel=0.02)
    attention = model.decoder[0].attention
    for linear_layer in (model.encoder_out, model.decoder_out, attention.query, attention.output_projection):
        assert std(linear_layer.v) == pytest.approx((1 / 200) ** 0.5, rel=0.02)


@variants
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "bfloat16"])
def test_16_bits_are_close_to_float32(precision: str, changes: dict[str, Any]) -> None:
    coarse = build(changes, precision)
    check_coarse(build(changes), coarse, tolerance=0.15)
    memory = coarse.encode(INPUTS)
    assert {tensor.dtype for tensor in (memory.keys, memory.values, *coarse.start(2))} == {tf.bfloat16}


def test_a_model_learns_a_batch_by_heart() -> None:
    sizes = {"num_hidden_layers": 1, "num_decoder_layers": 1, "convolutions": "8x3", "learning_rate_constant": 0.02}
    changes: dict[str, Any] = {**sizes, "learning_rate_schedule": "constant", "optimizer_adam_epsilon": 1e-6}
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model, optimizer = build(changes), adam(replace(HPARAMS, **changes))
    step, batch = TrainStep(model, optimizer, 0.0, strategy), (INPUTS, TARGETS, np.arange(2, dtype=np.uint32))
    losses = [TrainStep.read(step([batch], 6, (1, number))).loss for number in range(60)]
    assert losses[-1] < 0.1 < 1 < losses[0]


@variants
def test_folded_weights_give_equal_logits(changes: dict[str, Any]) -> None:
    model = build(changes)
    expected = model(INPUTS, TARGETS)
    model.fold_weights()
    linears = [layer for layer in model._flatten_layers() if isinstance(layer, NormalizedLinear)]
    assert linears and all(layer.is_folded for layer in linears)
    np.testing.assert_array_equal(model(INPUTS, TARGETS), expected)
