"""Tests ConvS2S against a computation in numpy, and which inputs affect which outputs and gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import dropout
from t2t_repro.models.convs2s import ConvS2S, scale_gradient
from t2t_repro.training.step import TrainStep, adam

HPARAMS = HParams(
    model="convs2s", num_hidden_layers=3, num_decoder_layers=2, hidden_size=16, convolutions="8x3*2+12x2", max_length=20
)
VOCAB = 20
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], np.int32)
TARGETS = np.array([[4, 5, 6, 1], [7, 1, 0, 0]], np.int32)
SEPARATE = {"shared_embedding_and_softmax_weights": False, "output_embedding_size": 10}
WIDER = {"num_decoder_layers": 3}
VARIANTS: dict[str, dict[str, Any]] = {"shared": {}, "separate, with a wider decoder layer": {**SEPARATE, **WIDER}}
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def build(changes: dict[str, Any] | None = None, precision: str = "float32") -> ConvS2S:
    """Returns a small model with random weights. Calls with equal `changes` to HPARAMS return equal models."""
    keras.utils.set_random_seed(1)
    model = ConvS2S(replace(HPARAMS, **changes or {}), VOCAB, 0, precision)
    draw = np.random.default_rng(0)
    for weight in model.trainable_variables:
        weight.assign(weight + draw.normal(0, 0.2, weight.shape).astype("float32"))
    return model


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
def test_logits_and_attention_equal_those_of_numpy(changes: dict[str, Any]) -> None:
    model, saved = build(changes), []  # type: ignore[var-annotated]
    logits = np.asarray(model.decode(TARGETS, model.encode(INPUTS), save_weights_to=saved))
    np.testing.assert_array_equal(logits, model(INPUTS, TARGETS))
    assert [tuple(weights.shape) for weights in saved] == [(2, 1, 4, 5)] * model.hparams.decoder_layers
    for row, (source, target) in enumerate(((5, 4), (3, 2))):
        expected, expected_weights = numpy_model(model, INPUTS[row, :source], TARGETS[row, :target])
        np.testing.assert_allclose(logits[row, :target], expected, atol=1e-4)
        for weights, numpys in zip(saved, expected_weights, strict=True):
            np.testing.assert_allclose(weights[row, 0, :target, :source], numpys, atol=1e-5)
            np.testing.assert_array_equal(weights[row, :, :, source:], 0)
            assert np.ptp(numpys, axis=0).max() > 0.01


@variants
def test_a_position_sees_only_earlier_targets(changes: dict[str, Any]) -> None:
    model = build(changes)
    logits = np.asarray(model(INPUTS, TARGETS))
    for t in range(4):
        other = TARGETS.copy()
        other[:, t:] = 17
        changed = np.asarray(model(INPUTS, other))
        np.testing.assert_array_equal(changed[:, : t + 1], logits[:, : t + 1])
        assert t == 3 or not np.allclose(changed[:, t + 1], logits[:, t + 1])


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
def test_decoding_with_a_cache_gives_the_same_logits(changes: dict[str, Any], hypotheses: int) -> None:
    model, length = build(changes), 4
    draw = np.random.default_rng(hypotheses)
    tokens = draw.integers(1, VOCAB, (length, 2, hypotheses))
    parents = draw.integers(0, hypotheses, (length, 2, hypotheses))
    memory, cache = model.encode(INPUTS), model.start(2 * hypotheses)
    all_memory = model.encode(np.repeat(INPUTS, hypotheses, axis=0))
    ids, histories = np.zeros((2, hypotheses), np.int64), np.zeros((2, hypotheses, 0), np.int64)
    for t in range(length):
        saved: list[Any] = []
        logits, cache = model.decode_step(ids, t, cache, memory, saved)
        targets = np.pad(histories, ((0, 0), (0, 0), (0, 1)), constant_values=1).reshape(-1, t + 1)
        expected_weights: list[Any] = []
        expected = np.asarray(model.decode(targets, all_memory, save_weights_to=expected_weights))[:, t]
        np.testing.assert_allclose(logits, expected.reshape(2, hypotheses, VOCAB), atol=1e-5)
        for weights, others in zip(saved, expected_weights, strict=True):
            np.testing.assert_allclose(weights[:, 0], np.reshape(others[:, 0, t], (2, hypotheses, 5)), atol=1e-5)
        order = (parents[t] + hypotheses * np.arange(2)[:, None]).reshape(-1)
        cache = tf.nest.map_structure(lambda tensor, order=order: tf.gather(tensor, order), cache)
        histories = np.take_along_axis(histories, parents[t][:, :, None], axis=1)
        ids = tokens[t]
        histories = np.concatenate([histories, ids[:, :, None]], axis=2)


def test_padding_and_other_examples_change_nothing_even_with_dropout() -> None:
    model, seed = build({"layer_prepostprocess_dropout": 0.3}), np.array([7], np.uint32)
    for seeds in (None, seed):
        unpadded = model(INPUTS[1:, :3], TARGETS[1:, :2], seeds)
        padded = model(np.pad(INPUTS[1:], ((0, 0), (0, 4))), np.pad(TARGETS[1:], ((0, 0), (0, 4))), seeds)
        np.testing.assert_allclose(padded[:, :2], unpadded, atol=1e-5)
    both = model(INPUTS, TARGETS, np.array([3, 7], np.uint32))
    np.testing.assert_allclose(both[1:, :2], unpadded, atol=1e-5)
    assert model(INPUTS[:0], TARGETS[:0]).shape == (0, 4, VOCAB)


def test_the_seed_decides_dropout() -> None:
    model = build()
    logits = np.asarray(model(INPUTS, TARGETS, np.array([1, 2], np.uint32)))
    np.testing.assert_array_equal(model(INPUTS, TARGETS, np.array([1, 2], np.uint32)), logits)
    for other in (np.array([3, 4], np.uint32), None):
        assert not np.allclose(model(INPUTS, TARGETS, other), logits, atol=1e-3)


def test_dropout_is_at_the_embeddings_the_blocks_and_before_the_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def recorded(x: Any, rate: float, seeds: Any) -> Any:
        shapes.append(tuple(x.shape[1:]))
        return dropout(x, rate, seeds)

    monkeypatch.setattr("t2t_repro.models.convs2s.dropout", recorded)
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
    monkeypatch.setattr("t2t_repro.models.convs2s.scale_gradient", lambda x, scale: x)
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
    exact, coarse = build(changes), build(changes, precision)
    for variable, other in zip(coarse.trainable_variables, exact.trainable_variables, strict=True):
        variable.assign(other.value)
        other.assign(variable.value)
    logits, expected = (np.asarray(model(INPUTS, TARGETS)) for model in (coarse, exact))
    assert logits.dtype == np.float32
    assert 0 < np.abs(logits - expected).max() < 0.15
    memory, cache = coarse.encode(INPUTS), coarse.start(2)
    assert {tensor.dtype for tensor in tf.nest.flatten((memory[1:], cache))} == {tf.bfloat16}
    for t, ids in enumerate(np.pad(TARGETS, ((0, 0), (1, 0)))[:, :-1].T):
        step, cache = coarse.decode_step(ids[:, None], t, cache, memory)
        np.testing.assert_allclose(step[:, 0], logits[:, t], atol=0.1)


def test_a_model_learns_a_batch_by_heart() -> None:
    sizes = {"num_hidden_layers": 1, "num_decoder_layers": 1, "convolutions": "8x3", "learning_rate_constant": 0.02}
    changes: dict[str, Any] = {**sizes, "learning_rate_schedule": "constant", "optimizer_adam_epsilon": 1e-6}
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model, optimizer = build(changes), adam(replace(HPARAMS, **changes))
    step, batch = TrainStep(model, optimizer, 0.0, strategy), (INPUTS, TARGETS, np.arange(2, dtype=np.uint32))
    losses = [TrainStep.read(step([batch], 6, (1, number))).loss for number in range(60)]
    assert losses[-1] < 0.1 < 1 < losses[0]
