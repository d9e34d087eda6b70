"""Compares the Transformer with numpy, at once and by steps, and tests where it has dropout."""

from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

from decoding_models import INPUTS, SEED, SPACE, TARGETS, VOCAB, check_against_numpy, small_model
from numpy_math import softmax
from t2t_repro.hparam import HParams
from t2t_repro.models import transformer, variants

HPARAMS = HParams(num_hidden_layers=2, hidden_size=16, filter_size=24, num_heads=2)
RELATIVE = {
    "self_attention_type": "dot_product_relative",
    "max_relative_position": 2,
    "pos": "none",
}


def numpy_transformer(
    model: Any, inputs: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the results of the model (section 3 of the paper) for one sentence, computed with
    numpy.

    Args:
        inputs: source ids [S], without padding.
        targets: target ids [T].

    Returns:
        Logits [T, V], and the cross-attention weights [H, T, S] of each decoder layer.
    """
    hparams = model.hparams
    width = hparams.hidden_size
    keys = hparams.key_channels
    far = hparams.max_relative_position

    def norm(x: np.ndarray, layer: Any) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + hparams.norm_epsilon) * np.asarray(
            layer.scale
        ) + np.asarray(layer.bias)

    def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, is_visible: Any, layer: Any) -> Any:
        q, k, v = (x.reshape(len(x), hparams.num_heads, -1).transpose(1, 0, 2) for x in (q, k, v))
        logits = q @ k.transpose(0, 2, 1)
        values = v[:, None]
        if hasattr(layer, "relative_keys"):
            rows = np.clip(np.arange(k.shape[1]) - np.arange(q.shape[1])[:, None], -far, far) + far
            logits = logits + np.einsum(
                "htd,tsd->hts", q, np.asarray(layer.relative_keys.table)[rows]
            )
            values = values + np.asarray(layer.relative_values.table)[rows]
        weights = softmax(np.where(is_visible, logits / np.sqrt(q.shape[2]), -np.inf))
        heads = (weights[..., None] * values).sum(axis=2).transpose(1, 0, 2)
        return weights, heads.reshape(heads.shape[0], -1) @ np.asarray(
            layer.output_projection.kernel
        )

    def self_attention(x: np.ndarray, layer: Any, is_masked: bool) -> np.ndarray:
        distance = np.arange(len(x)) - np.arange(len(x))[:, None]
        is_visible = np.abs(distance) <= (hparams.self_attention_neighborhood or 100) // 2
        q, k, v = np.split(x @ np.asarray(layer.qkv_projection.kernel), [keys, 2 * keys], axis=1)
        return attend(q, k, v, is_visible & ((distance <= 0) | (not is_masked)), layer)[1]

    def feed_forward(x: np.ndarray, layer: Any) -> np.ndarray:
        inner = np.maximum(x @ np.asarray(layer.kernel1) + np.asarray(layer.bias1), 0)
        return inner @ np.asarray(layer.kernel2) + np.asarray(layer.bias2)

    def residual(x: np.ndarray, path: Any, sublayer: Any) -> np.ndarray:
        return (
            x + sublayer(norm(x, path.norm))
            if hparams.norm_before
            else norm(x + sublayer(x), path.norm)
        )

    def with_positions(x: np.ndarray, layer: Any) -> np.ndarray:
        if hparams.pos == "timing":
            angles = np.arange(len(x))[:, None] * 1e4 ** (-np.arange(width // 2) / (width // 2 - 1))
            return x + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        vectors = np.zeros_like(x)
        if hparams.pos == "emb":
            vectors[: hparams.max_length] = np.asarray(layer.table)[: len(x)]
        return x + vectors

    x = np.asarray(model.embedding.table)[inputs] * width**0.5
    source_position = model.source_position
    if hparams.use_target_space_embedding:
        source_position = model.source_position.position
        x = x + np.asarray(model.source_position.table)[SPACE]
    x = with_positions(x, source_position)
    for layer in model.encoder:
        x = residual(
            x,
            layer.residuals[0],
            partial(self_attention, layer=layer.self_attention, is_masked=False),
        )
        x = residual(x, layer.residuals[1], partial(feed_forward, layer=layer.feed_forward))
    memory = norm(x, model.encoder_norm) if hparams.norm_before else x

    table = np.asarray(model.target_embedding.table)
    x = np.concatenate([np.zeros((1, width)), table[targets[:-1]] * width**0.5])
    x = with_positions(x, model.target_position)
    all_weights: list[np.ndarray] = []
    for layer in model.decoder:

        def cross_attention(y: np.ndarray, layer: Any = layer.cross_attention) -> np.ndarray:
            k, v = np.split(memory @ np.asarray(layer.kv_projection.kernel), [keys], axis=1)
            weights, output = attend(y @ np.asarray(layer.q_projection.kernel), k, v, True, layer)
            all_weights.append(weights)
            return output

        x = residual(
            x,
            layer.residuals[0],
            partial(self_attention, layer=layer.self_attention, is_masked=True),
        )
        x = residual(x, layer.residuals[1], cross_attention)
        x = residual(x, layer.residuals[2], partial(feed_forward, layer=layer.feed_forward))
    x = norm(x, model.decoder_norm) if hparams.norm_before else x
    return x @ np.asarray(model.softmax.table).T, all_weights


@pytest.mark.parametrize(
    "changes",
    [
        {"num_encoder_layers": 1},
        {"norm_before": True, "norm_epsilon": 0.1, "use_target_space_embedding": True},
        {"attention_key_channels": 6, "attention_value_channels": 22, "num_decoder_layers": 1},
        {"shared_embedding_and_softmax_weights": False, "pos": "emb", "max_length": 2},
        {
            "shared_embedding_and_softmax_weights": False,
            "shared_embedding": True,
            "self_attention_neighborhood": 2,
        },
        RELATIVE,
        {"norm_before": True, "self_attention_neighborhood": 2},
    ],
    ids=str,
)
def test_logits_and_saved_weights_equal_those_of_a_transformer_in_numpy(
    changes: dict[str, Any],
) -> None:
    check_against_numpy(small_model(replace(HPARAMS, **changes)), numpy_transformer, atol=1e-4)


def test_initializer_gain_scales_the_variance_of_the_kernels_and_nothing_else() -> None:
    weights = []
    for gain in (1.0, 0.25):
        keras.utils.set_random_seed(1)
        weights.append(
            variants.transformer(
                replace(HPARAMS, initializer_gain=gain, **RELATIVE), VOCAB
            ).trainable_variables
        )
    for weight, other in zip(*weights, strict=True):
        is_kernel = "layer_" in weight.path and len(weight.shape) == 2
        np.testing.assert_allclose(
            other, np.asarray(weight) * (0.5 if is_kernel else 1.0), rtol=1e-6
        )


def test_dropout_is_where_the_paper_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[float, tuple[int, ...]]] = []

    def record(x: Any, rate: float, seeds: Any) -> Any:
        if seeds is not None:
            calls.append((rate, tuple(x.shape)))
        return x

    monkeypatch.setattr(transformer, "dropout", record)
    rates = {"layer_prepostprocess_dropout": 0.1, "attention_dropout": 0.2, "relu_dropout": 0.3}
    variants.transformer(replace(HPARAMS, num_hidden_layers=1, **rates), VOCAB)(
        INPUTS, TARGETS, SEED
    )
    source = (0.1, (2, 5, 16))
    target = (0.1, (2, 4, 16))
    encoder = [(0.2, (2, 2, 5, 5)), source, (0.3, (2, 5, 24)), source]
    decoder = [(0.2, (2, 2, 4, 4)), target, (0.2, (2, 2, 4, 5)), target, (0.3, (2, 4, 24)), target]
    assert calls == [source, *encoder, target, *decoder]
