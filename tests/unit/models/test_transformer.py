"""The Transformer as section 3 has it: its sizes, what each position sees, and its two ways of decoding."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.training.step import TrainStep

HPARAMS = HParams(num_hidden_layers=2, hidden_size=16, filter_size=24, num_heads=2)
VOCAB = 20
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], np.int32)
TARGETS = np.array([[4, 5, 6, 1], [7, 1, 0, 0]], np.int32)
VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"norm_before": True},
    "learned positions": {"pos": "emb", "max_length": 2},
    "own d_k and d_v": {"attention_key_channels": 6, "attention_value_channels": 22},
    "three matrices": {"shared_embedding_and_softmax_weights": False},
    "target space": {"use_target_space_embedding": True},
    "neighborhood": {"self_attention_neighborhood": 2},
}
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def build(changes: dict[str, Any] | None = None, precision: str = "float32", space: int = 0) -> Transformer:
    """A small model, its weights the same each time."""
    keras.utils.set_random_seed(1)
    return Transformer(replace(HPARAMS, **changes or {}), VOCAB, space, precision)


def seed(first: int = 1, second: int = 2) -> np.ndarray:
    return np.array([first, second], np.int32)


def parameters(hparams: HParams, vocab_size: int) -> int:
    """Counts the weights of a model without giving them memory."""
    with keras.StatelessScope(initialize_variables=False):
        model = Transformer(hparams, vocab_size)
    return sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)


def section3(
    vocab: int, n: int, d_model: int, d_ff: int, h: int, d_k: int, d_v: int, positions: int = 0, stack_norms: int = 0
) -> int:
    """The number of weights by the paper's formulas."""
    attention = h * (2 * d_model * d_k + d_model * d_v) + h * d_v * d_model
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return vocab * d_model + n * (encoder_layer + decoder_layer) + 2 * positions * d_model + stack_norms * norm


def test_parameters_of_base_and_big() -> None:
    base, big = registry.hparams("transformer_base"), registry.hparams("transformer_big")
    assert parameters(base, 37_000) == section3(37_000, 6, 512, 2048, 8, 64, 64) == 63_045_632
    assert parameters(big, 36_000) == section3(36_000, 6, 1024, 4096, 16, 64, 64)
    assert round(parameters(big, 36_000) / 1e6) == 213


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, 65),
        ({"num_heads": 1}, 65),
        ({"num_heads": 32}, 65),
        ({"attention_key_channels": 8 * 16}, 58),
        ({"attention_key_channels": 8 * 32}, 60),
        ({"num_hidden_layers": 2}, 36),
        ({"num_hidden_layers": 4}, 50),
        ({"num_hidden_layers": 8}, 80),
        ({"hidden_size": 256}, 28),
        ({"hidden_size": 1024}, 168),
        ({"filter_size": 1024}, 53),
        ({"filter_size": 4096}, 90),
    ],
)
def test_parameters_of_table_3(changes: dict[str, Any], millions: int) -> None:
    hparams = replace(registry.hparams("transformer_base"), **changes)
    assert round(parameters(hparams, 41_100) / 1e6) == millions


def test_parameters_beyond_the_paper() -> None:
    sizes = (VOCAB, 2, 16, 24, 2)
    assert parameters(HPARAMS, VOCAB) == section3(*sizes, 8, 8)
    learned = replace(HPARAMS, pos="emb", max_length=30)
    assert parameters(learned, VOCAB) == section3(*sizes, 8, 8, positions=30)
    assert parameters(replace(HPARAMS, norm_before=True), VOCAB) == section3(*sizes, 8, 8, stack_norms=2)
    channels = replace(HPARAMS, attention_key_channels=6, attention_value_channels=22)
    assert parameters(channels, VOCAB) == section3(*sizes, 3, 11)
    untied = replace(HPARAMS, shared_embedding_and_softmax_weights=False)
    assert parameters(untied, VOCAB) == section3(*sizes, 8, 8) + 2 * VOCAB * 16


def test_no_two_weights_have_the_same_name() -> None:
    model = build({"norm_before": True, "pos": "emb", "shared_embedding_and_softmax_weights": False})
    names = [variable.path for variable in model.trainable_variables]
    assert len(set(names)) == len(names)


@variants
def test_a_position_sees_no_target_from_its_own_on(changes: dict[str, Any]) -> None:
    model = build(changes)
    logits = np.asarray(model(INPUTS, TARGETS))
    assert logits.shape == (2, 4, VOCAB)
    for t in range(4):
        other = TARGETS.copy()
        other[:, t:] = 17
        seen = np.asarray(model(INPUTS, other))
        np.testing.assert_array_equal(seen[:, : t + 1], logits[:, : t + 1])
        assert t == 3 or not np.allclose(seen[:, t + 1], logits[:, t + 1])


@pytest.mark.parametrize(
    ("changes", "hypotheses"),
    [*((changes, 3) for changes in VARIANTS.values()), (VARIANTS["own d_k and d_v"], 1)],
    ids=[*VARIANTS, "one hypothesis"],
)
def test_cached_decoding_gives_the_same_logits(changes: dict[str, Any], hypotheses: int) -> None:
    model, length = build(changes), 3
    random = np.random.default_rng(hypotheses)
    chosen = random.integers(1, VOCAB, (length, 2, hypotheses)).astype(np.int32)
    parents = random.integers(0, hypotheses, (length, 2, hypotheses))

    @tf.function
    def stepwise() -> list[Any]:
        memory, cache = model.encode(tf.constant(INPUTS)), model.start(2 * hypotheses)
        ids, logits = tf.zeros([2, hypotheses], tf.int32), []
        for t in range(length):
            step_logits, cache = model.decode_step(ids, tf.constant(t), cache, memory)
            logits.append(step_logits)
            order = (parents[t] + hypotheses * np.arange(2)[:, None]).reshape(-1)
            cache = tf.nest.map_structure(lambda tensor, order=order: tf.gather(tensor, order), cache)
            ids = tf.constant(chosen[t])
        return logits

    logits = stepwise()
    histories = np.zeros((2, hypotheses, 0), np.int32)
    for t in range(length):
        for k in range(hypotheses):
            targets = np.pad(histories[:, k], ((0, 0), (0, 1)), constant_values=1)
            expected = np.asarray(model(INPUTS, targets))[:, t]
            np.testing.assert_allclose(logits[t][:, k], expected, atol=1e-5)
        histories = np.take_along_axis(histories, parents[t][:, :, None], axis=1)
        histories = np.concatenate([histories, chosen[t][:, :, None]], axis=2)


@variants
def test_padding_changes_nothing(changes: dict[str, Any]) -> None:
    model = build(changes)
    alone = model(INPUTS[1:, :3], TARGETS[1:, :2])
    padded = model(np.pad(INPUTS[1:], ((0, 0), (0, 4))), np.pad(TARGETS[1:], ((0, 0), (0, 4))))
    np.testing.assert_allclose(padded[:, :2], alone, atol=1e-5)


def norm(x: np.ndarray, layer: Any) -> np.ndarray:
    x = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + layer.epsilon)
    return x * np.asarray(layer.scale) + np.asarray(layer.bias)


def softmax(x: np.ndarray) -> np.ndarray:
    odds = np.exp(x - x.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def attention_over_memory(
    model: Transformer, targets: np.ndarray, keys_values: list[tuple[np.ndarray, np.ndarray]]
) -> list[np.ndarray]:
    """Of each decoder layer, in numpy, for one pair: targets [T], each layer's k and v [H, S, d_k] -> [H, T, S]."""
    hparams = model.hparams
    width, heads, before = hparams.hidden_size, hparams.num_heads, hparams.norm_before
    channels, length = width // heads, len(targets)

    def split(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), heads, channels).transpose(1, 0, 2)

    def concatenate(x: np.ndarray) -> np.ndarray:
        return x.transpose(1, 0, 2).reshape(-1, width)

    def residual(x: np.ndarray, sublayer: Any, layer: Any) -> np.ndarray:
        return x + sublayer(norm(x, layer.norm)) if before else norm(x + sublayer(x), layer.norm)

    table = np.asarray(model.target_embedding.table)
    x = np.concatenate([np.zeros((1, width)), table[targets[:-1]] * width**0.5])
    angles = np.arange(length)[:, None] * 1e4 ** (-np.arange(width // 2) / (width // 2 - 1))
    x = x + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    found: list[np.ndarray] = []
    for layer, (memory_k, memory_v) in zip(model.decoder, keys_values, strict=True):
        own, other, feed = layer.self_attention, layer.cross_attention, layer.feed_forward

        def look_back(y: np.ndarray, own: Any = own) -> np.ndarray:
            q, k, v = map(split, np.split(y @ np.asarray(own.qkv_kernel), 3, axis=1))
            logits = q @ k.transpose(0, 2, 1) / channels**0.5
            weights = softmax(np.where(np.tri(length, dtype=bool), logits, -np.inf))
            return concatenate(weights @ v) @ np.asarray(own.output_kernel)

        def look_over(
            y: np.ndarray, other: Any = other, k: np.ndarray = memory_k, v: np.ndarray = memory_v
        ) -> np.ndarray:
            q = split(y @ np.asarray(other.q_kernel))
            found.append(softmax(q @ k.transpose(0, 2, 1) / channels**0.5))
            return concatenate(found[-1] @ v) @ np.asarray(other.output_kernel)

        def feed_forward(y: np.ndarray, feed: Any = feed) -> np.ndarray:
            inner = np.maximum(y @ np.asarray(feed.kernel1) + np.asarray(feed.bias1), 0)
            return inner @ np.asarray(feed.kernel2) + np.asarray(feed.bias2)

        for sublayer, path in zip((look_back, look_over, feed_forward), layer.residuals, strict=True):
            x = residual(x, sublayer, path)
    return found


@pytest.mark.parametrize("norm_before", [False, True])
def test_saved_attention_is_where_each_layer_looks(norm_before: bool) -> None:
    model = build({"norm_before": norm_before})
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        spread = 0.5 if len(variable.shape) == 2 else 0.1  # large biases make all positions alike
        variable.assign(variable + random.normal(0, spread, variable.shape))
    saved: list[Any] = []
    memory = model.encode(INPUTS)
    logits = model.decode(TARGETS, memory, save_weights_to=saved)
    np.testing.assert_array_equal(logits, model(INPUTS, TARGETS))
    assert [tuple(weights.shape) for weights in saved] == [(2, 2, 4, 5)] * 2
    for row, (source, target) in enumerate(((5, 4), (3, 2))):
        keys_values = [
            (np.asarray(keys)[row, :, :source], np.asarray(values)[row, :, :source]) for keys, values in memory.layers
        ]
        expected = attention_over_memory(model, TARGETS[row, :target], keys_values)
        for ours, theirs in zip(saved, expected, strict=True):
            np.testing.assert_allclose(ours[row, :, :target, :source], theirs, atol=1e-5)
            np.testing.assert_array_equal(ours[row, :, :, source:], 0)
            assert np.ptp(theirs, axis=1).max() > 0.01


def test_order_and_company() -> None:
    model = build()
    logits = np.asarray(model(INPUTS, TARGETS))
    np.testing.assert_allclose(model(INPUTS[::-1], TARGETS[::-1])[::-1], logits, atol=1e-5)
    swapped = INPUTS[:, [1, 0, 2, 3, 4]]
    assert not np.allclose(model(swapped, TARGETS), logits, atol=1e-3)


def test_an_empty_batch() -> None:
    assert build()(INPUTS[:0], TARGETS[:0]).shape == (0, 4, VOCAB)


@pytest.mark.parametrize("norm_before", [False, True])
def test_bfloat16_is_close_to_float32(norm_before: bool) -> None:
    exact, coarse = (build({"norm_before": norm_before}, kind) for kind in ("float32", "mixed_bfloat16"))
    for variable, other in zip(coarse.trainable_variables, exact.trainable_variables, strict=True):
        assert variable.dtype == "float32"
        np.testing.assert_array_equal(variable, other)
    logits, expected = (np.asarray(model(INPUTS, TARGETS)) for model in (coarse, exact))
    assert logits.dtype == np.float32
    assert 0 < np.abs(logits - expected).max() < 0.1


def test_dropout_follows_from_the_seed() -> None:
    model = build()
    logits = np.asarray(model(INPUTS, TARGETS, seed()))
    np.testing.assert_array_equal(model(INPUTS, TARGETS, seed()), logits)
    for other in (seed(2, 2), seed(1, 3), None):
        assert not np.allclose(model(INPUTS, TARGETS, other), logits, atol=1e-3)
    np.testing.assert_array_equal(model(INPUTS, TARGETS), model(INPUTS, TARGETS))


ELSEWHERE = {"model", "label_smoothing", "batch_size", "train_steps", "local_eval_frequency", "num_last_checkpoints"}
ELSEWHERE |= {"learning_rate_schedule", "learning_rate_constant", "learning_rate_warmup_steps"}
ELSEWHERE |= {"optimizer_adam_beta1", "optimizer_adam_beta2", "optimizer_adam_epsilon"}
CHANGES: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 18,
    "filter_size": 25,
    "num_heads": 4,
    "attention_key_channels": 10,
    "attention_value_channels": 10,
    "self_attention_neighborhood": 2,
    "norm_before": True,
    "norm_epsilon": 0.1,
    "pos": "emb",
    "max_length": 2,
    "shared_embedding_and_softmax_weights": False,
    "use_target_space_embedding": True,
    "layer_prepostprocess_dropout": 0.4,
    "attention_dropout": 0.4,
    "relu_dropout": 0.4,
}


def test_each_field_is_the_models_or_anothers() -> None:
    assert CHANGES.keys() | ELSEWHERE == {field.name for field in dataclasses.fields(HParams)}


@pytest.mark.parametrize("name", CHANGES)
def test_each_field_matters(name: str) -> None:
    before = {"pos": "emb"} if name == "max_length" else {}
    plain, changed = build(before), build({**before, name: CHANGES[name]})
    shapes = [[tuple(variable.shape) for variable in model.trainable_variables] for model in (plain, changed)]
    if shapes[0] == shapes[1]:
        random = np.random.default_rng(0)
        for variable, other in zip(plain.trainable_variables, changed.trainable_variables, strict=True):
            value = random.normal(0, 0.3, variable.shape)
            variable.assign(value)
            other.assign(value)
        logits = [np.asarray(model(INPUTS, TARGETS, seed())) for model in (plain, changed)]
        assert np.abs(logits[0] - logits[1]).max() > 1e-2
        if name.endswith("dropout"):
            np.testing.assert_array_equal(plain(INPUTS, TARGETS), changed(INPUTS, TARGETS))


def test_the_target_space_is_one_row_of_32() -> None:
    changes = {"use_target_space_embedding": True}
    logits = [np.asarray(build(changes, space=space)(INPUTS, TARGETS)) for space in (0, 8, 31)]
    assert not np.allclose(logits[0], logits[1], atol=1e-3)
    assert not np.allclose(logits[1], logits[2], atol=1e-3)
    np.testing.assert_array_equal(build(space=0)(INPUTS, TARGETS), build(space=8)(INPUTS, TARGETS))


def long_pair(source: int, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Source and target ids of two sentences without padding."""
    ids = np.random.default_rng(source).integers(2, VOCAB, (2, source + target)).astype(np.int32)
    return ids[:, :source], ids[:, source:]


@pytest.mark.parametrize("r", [1, 4])
def test_self_attention_alone_is_restricted(r: int) -> None:
    model, reach = build({"self_attention_neighborhood": r}), r // 2
    inputs, targets = long_pair(50, 60)
    memory = model.encode(tf.constant(inputs))
    other = inputs.copy()
    other[:, 20] = 1
    layers = HPARAMS.num_hidden_layers
    changed = np.abs(memory.layers[0].keys - model.encode(tf.constant(other)).layers[0].keys).max(axis=(0, 1, 3)) > 0
    assert np.flatnonzero(changed).tolist() == list(range(20 - layers * reach, 20 + layers * reach + 1))
    logits = np.asarray(model(inputs, targets))
    assert (np.abs(np.asarray(model(other, targets)) - logits).max(axis=(0, 2)) > 0).all()
    other = targets.copy()
    other[:, 20] = 1
    changed = np.abs(np.asarray(model(inputs, other)) - logits).max(axis=(0, 2)) > 0
    assert np.flatnonzero(changed).tolist() == list(range(21, 21 + layers * reach + 1))


def test_a_neighborhood_as_long_as_the_text_restricts_nothing() -> None:
    inputs, targets = long_pair(40, 35)
    logits = build()(inputs, targets)
    np.testing.assert_allclose(build({"self_attention_neighborhood": 80})(inputs, targets), logits, atol=1e-5)
    assert not np.allclose(build({"self_attention_neighborhood": 8})(inputs, targets), logits, atol=1e-3)


@pytest.mark.parametrize("r", [1, 5, 90])
def test_cached_decoding_far_beyond_a_neighborhood(r: int) -> None:
    model = build({"self_attention_neighborhood": r})
    inputs, targets = long_pair(9, 75)
    expected = np.asarray(model(inputs, targets))
    memory, cache = model.encode(tf.constant(inputs)), model.start(2)
    for t, ids in enumerate([np.zeros(2, np.int32), *targets.T[:-1]]):
        logits, cache = model.decode_step(tf.constant(ids[:, None]), tf.constant(t), cache, memory)
        np.testing.assert_allclose(logits[:, 0], expected[:, t], atol=1e-5)
    assert all(tensor.shape[2] == min(75, r // 2 + 1) for past in cache for tensor in past)


def test_a_restricted_model_learns() -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        changes = {"self_attention_neighborhood": 4, "attention_dropout": 0.1, "num_hidden_layers": 1}
        model = build(changes, "mixed_bfloat16")
        step = TrainStep(model, keras.optimizers.Adam(0.01), 0.1, strategy)
    losses = [TrainStep.read(step([long_pair(40, 37)], 2 * 37, (1, number))).loss for number in range(25)]
    assert losses[-1] < 0.8 * losses[0]
