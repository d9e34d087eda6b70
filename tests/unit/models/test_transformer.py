"""Tests the Transformer: which positions affect which logits, dropout, hparams, and decoding by steps."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from decoding_models import INPUTS, TARGETS, VOCAB, check_against_numpy, check_coarse, check_steps, small_model
from numpy_math import softmax
from t2t_repro.hparam import HParams
from t2t_repro.layers import attention, feed_forward, residual
from t2t_repro.models import transformer
from t2t_repro.models.transformer import Transformer

HPARAMS = HParams(num_hidden_layers=2, hidden_size=16, filter_size=24, num_heads=2)
VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"norm_before": True},
    "learned positions": {"pos": "emb", "max_length": 2},
    "own d_k and d_v": {"attention_key_channels": 6, "attention_value_channels": 22},
    "three matrices": {"shared_embedding_and_softmax_weights": False},
    "target space": {"use_target_space_embedding": True},
    "two matrices": {"shared_embedding_and_softmax_weights": False, "shared_embedding": True},
    "neighborhood": {"self_attention_neighborhood": 2},
    "relative": {"self_attention_type": "dot_product_relative", "max_relative_position": 2, "pos": "none"},
}
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def build(changes: dict[str, Any] | None = None, precision: str = "float32", space: int = 0) -> Transformer:
    """Returns a small Transformer. Calls with equal arguments return models with equal random weights.

    Args:
        changes: the hparams that differ from HPARAMS.
        space: id of the target space.
    """
    keras.utils.set_random_seed(1)
    return Transformer(replace(HPARAMS, **changes or {}), VOCAB, space, precision)


def new_seed(first: int = 1) -> np.ndarray:
    return first + np.arange(len(INPUTS), dtype=np.uint32)


def test_initializer_gain_scales_the_variance_of_the_kernels_and_nothing_else() -> None:
    usual, smaller = build(VARIANTS["relative"]), build(VARIANTS["relative"] | {"initializer_gain": 0.25})
    for weight, other in zip(usual.trainable_variables, smaller.trainable_variables, strict=True):
        is_kernel = "layer_" in weight.path and len(weight.shape) == 2
        np.testing.assert_allclose(other, np.asarray(weight) * (0.5 if is_kernel else 1.0), rtol=1e-6)


def test_dropout_is_where_the_paper_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[float, tuple[int, ...]]] = []

    def record(x: Any, rate: float, seeds: Any) -> Any:
        if seeds is not None:
            calls.append((rate, tuple(x.shape)))
        return x

    for module in (transformer, attention, feed_forward, residual):
        monkeypatch.setattr(module, "dropout", record)
    rates = {"layer_prepostprocess_dropout": 0.1, "attention_dropout": 0.2, "relu_dropout": 0.3}
    build({"num_hidden_layers": 1, **rates})(INPUTS, TARGETS, new_seed())
    source, target = (0.1, (2, 5, 16)), (0.1, (2, 4, 16))
    encoder = [(0.2, (2, 2, 5, 5)), source, (0.3, (2, 5, 24)), source]
    decoder = [(0.2, (2, 2, 4, 4)), target, (0.2, (2, 2, 4, 5)), target, (0.3, (2, 4, 24)), target]
    assert calls == [source, *encoder, target, *decoder]


@variants
def test_steps_equal_decode_and_neither_later_targets_nor_padding_change_anything(changes: dict[str, Any]) -> None:
    model = build(changes)
    for number, variable in enumerate(v for v in model.trainable_variables if "/norm/" in v.path):
        variable.assign(np.random.default_rng(number).normal(1, 0.3, variable.shape))  # so that no two norms are equal
    check_steps(model)
    logits, other = np.asarray(model(INPUTS, TARGETS)), TARGETS.copy()
    other[:, 1:] = 17
    changed = np.asarray(model(INPUTS, other))
    np.testing.assert_array_equal(changed[:, :2], logits[:, :2])
    assert not np.allclose(changed[:, 2], logits[:, 2])
    padded = model(np.pad(INPUTS[1:, :3], ((0, 0), (0, 4))), np.pad(TARGETS[1:, :2], ((0, 0), (0, 4))))
    np.testing.assert_allclose(padded[:, :2], logits[1:, :2], atol=1e-5)


@pytest.mark.parametrize("name", ["neighborhood", "relative"])
def test_bfloat16_weights_are_close_to_float32(name: str) -> None:
    coarse = build(VARIANTS[name], "bfloat16")
    check_coarse(build(VARIANTS[name]), coarse)
    memory, cache = coarse.encode(INPUTS), coarse.start(2)
    assert {tensor.dtype for tensor in tf.nest.flatten((memory.layers, cache))} == {tf.bfloat16}


def numpy_transformer(
    model: Transformer, inputs: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the results of the model (section 3 of the paper) for one sentence, computed with numpy.

    Args:
        inputs: source ids [S], without padding.
        targets: target ids [T].

    Returns:
        Logits [T, V], and the cross-attention weights [H, T, S] of each decoder layer.
    """
    hparams = model.hparams
    width, heads = hparams.hidden_size, hparams.num_heads

    def norm(x: np.ndarray, layer: Any) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + hparams.norm_epsilon) * np.asarray(layer.scale) + np.asarray(layer.bias)

    def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, is_visible: Any, kernel: Any) -> Any:
        logits = q @ k.transpose(0, 2, 1) / np.sqrt(width / heads)
        weights = softmax(np.where(is_visible, logits, -np.inf))
        return weights, (weights @ v).transpose(1, 0, 2).reshape(-1, width) @ np.asarray(kernel)

    def split(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), heads, width // heads).transpose(1, 0, 2)

    def self_attention(x: np.ndarray, layer: Any, is_masked: bool) -> np.ndarray:
        q, k, v = map(split, np.split(x @ np.asarray(layer.qkv_kernel), 3, axis=1))
        is_visible = np.tri(len(x), dtype=bool) if is_masked else True
        return attend(q, k, v, is_visible, layer.output_kernel)[1]

    def feed_forward(x: np.ndarray, layer: Any) -> np.ndarray:
        inner = np.maximum(x @ np.asarray(layer.kernel1) + np.asarray(layer.bias1), 0)
        return inner @ np.asarray(layer.kernel2) + np.asarray(layer.bias2)

    def residual(x: np.ndarray, path: Any, sublayer: Any) -> np.ndarray:
        return x + sublayer(norm(x, path.norm)) if hparams.norm_before else norm(x + sublayer(x), path.norm)

    def with_positions(x: np.ndarray) -> np.ndarray:
        angles = np.arange(len(x))[:, None] * 1e4 ** (-np.arange(width // 2) / (width // 2 - 1))
        return x + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    x = with_positions(np.asarray(model.embedding.table)[inputs] * width**0.5)
    for layer in model.encoder:
        x = residual(x, layer.residuals[0], partial(self_attention, layer=layer.self_attention, is_masked=False))
        x = residual(x, layer.residuals[1], partial(feed_forward, layer=layer.feed_forward))
    memory = norm(x, model.encoder_norm) if model.encoder_norm else x

    table = np.asarray(model.target_embedding.table)
    x = with_positions(np.concatenate([np.zeros((1, width)), table[targets[:-1]] * width**0.5]))
    all_weights: list[np.ndarray] = []
    for layer in model.decoder:

        def cross_attention(y: np.ndarray, layer: Any = layer.cross_attention) -> np.ndarray:
            k, v = map(split, np.split(memory @ np.asarray(layer.kv_kernel), 2, axis=1))
            weights, output = attend(split(y @ np.asarray(layer.q_kernel)), k, v, True, layer.output_kernel)
            all_weights.append(weights)
            return output

        x = residual(x, layer.residuals[0], partial(self_attention, layer=layer.self_attention, is_masked=True))
        x = residual(x, layer.residuals[1], cross_attention)
        x = residual(x, layer.residuals[2], partial(feed_forward, layer=layer.feed_forward))
    x = norm(x, model.decoder_norm) if model.decoder_norm else x
    return x @ np.asarray(model.softmax.table).T, all_weights


@pytest.mark.parametrize("norm_before", [False, True])
def test_logits_and_saved_weights_equal_those_of_a_transformer_in_numpy(norm_before: bool) -> None:
    model = small_model(replace(HPARAMS, norm_before=norm_before))
    check_against_numpy(model, numpy_transformer, atol=1e-4)


USED_ELSEWHERE = {
    "model", "label_smoothing", "batch_size", "train_steps", "local_eval_frequency", "num_last_checkpoints",
    "learning_rate_schedule", "learning_rate_constant", "learning_rate_warmup_steps", "optimizer_adam_beta1",
    "optimizer_adam_beta2", "optimizer_adam_epsilon", "optimizer_adafactor_multiply_by_parameter_scale",
    "initializer_gain",  # changes only the initial weights, see the test above
    "max_relative_position",  # has no effect without self_attention_type
}  # fmt: skip
CHANGES: dict[str, Any] = {
    **dict.fromkeys(("num_hidden_layers", "num_decoder_layers"), 3),
    **dict.fromkeys(("attention_key_channels", "attention_value_channels"), 10),
    **dict.fromkeys(("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout"), 0.4),
    **dict.fromkeys(("norm_before", "shared_embedding", "use_target_space_embedding"), True),
    "num_encoder_layers": 1,
    "hidden_size": 18,
    "filter_size": 25,
    "num_heads": 4,
    "self_attention_neighborhood": 2,
    "self_attention_type": "dot_product_relative",
    "norm_epsilon": 0.1,
    "pos": "emb",
    "max_length": 2,
    "shared_embedding_and_softmax_weights": False,
}
BEFORE: dict[str, dict[str, Any]] = {
    "max_length": {"pos": "emb"},
    "shared_embedding": {"shared_embedding_and_softmax_weights": False},
}
"""For an hparam that has no effect with the defaults, other values of other hparams."""
WITH: dict[str, dict[str, Any]] = {"self_attention_type": {"max_relative_position": 2}}
"""For an hparam whose other value needs another hparam, that hparam's value."""


def test_every_hparam_is_used_by_the_model_or_elsewhere() -> None:
    assert CHANGES.keys() | USED_ELSEWHERE == {field.name for field in dataclasses.fields(HParams)}


@pytest.mark.parametrize("name", CHANGES)
def test_every_hparam_of_the_model_changes_it(name: str) -> None:
    plain, changed = build(BEFORE.get(name)), build({**BEFORE.get(name, {}), name: CHANGES[name], **WITH.get(name, {})})
    shapes = [[tuple(variable.shape) for variable in model.trainable_variables] for model in (plain, changed)]
    if shapes[0] == shapes[1]:
        random = np.random.default_rng(0)
        for variable, other in zip(plain.trainable_variables, changed.trainable_variables, strict=True):
            value = random.normal(0, 0.3, variable.shape)
            variable.assign(value)
            other.assign(value)
        logits = [np.asarray(model(INPUTS, TARGETS, new_seed())) for model in (plain, changed)]
        assert np.abs(logits[0] - logits[1]).max() > 1e-2
        if name.endswith("dropout"):
            np.testing.assert_array_equal(plain(INPUTS, TARGETS), changed(INPUTS, TARGETS))
