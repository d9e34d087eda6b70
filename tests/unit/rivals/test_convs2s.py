"""Tests ConvS2S against a computation in numpy, and which inputs affect which outputs and
gradients.
"""

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from decoding_models import FAMILIES, INPUTS, TARGETS, check_against_numpy, small_model
from t2t_repro import registry
from t2t_repro.hparam import override
from t2t_repro.layers.dropout import dropout
from t2t_repro.rivals.convs2s import ConvS2S

HPARAMS = FAMILIES["convs2s"]
SEPARATE = {"shared_embedding_and_softmax_weights": False, "output_embedding_size": 10}


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    v, g, b = (np.asarray(weight) for weight in (layer.v, layer.g, layer.b))
    return x @ (v / np.linalg.norm(v, axis=0) * g) + b


def gated_convolution(layer: Any, x: np.ndarray, width: int, before: int) -> np.ndarray:
    """Returns the gated linear unit of a convolution of x [T, C] over `before` earlier positions
    and later ones.
    """
    padded = np.concatenate([np.zeros((before, x.shape[1])), x, np.zeros((width, x.shape[1]))])
    windows = np.stack([padded[t : t + width].reshape(-1) for t in range(len(x))])
    a, b = np.split(linear(layer.linear, windows), 2, axis=1)
    return a / (1 + np.exp(-b))


def numpy_model(
    model: ConvS2S, source: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the logits [T, V] and the attention weights [T, S] of each layer, for ids [S] and [T]
    without padding.
    """
    half = 0.5**0.5
    e = (
        np.asarray(model.embedding.table)[source]
        + np.asarray(model.source_position.table)[: len(source)]
    )
    x = linear(model.encoder_in, e)
    for layer in model.encoder:
        width = layer.shape[0]
        residual = x if layer.projection is None else linear(layer.projection, x)
        x = (gated_convolution(layer, x, width, (width - 1) // 2) + residual) * half
    z = linear(model.encoder_out, x)
    m = len(source)
    embedded = np.asarray(model.target_embedding.table)[target[:-1]]
    g = (
        np.concatenate([np.zeros((1, e.shape[1])), embedded])
        + np.asarray(model.target_position.table)[: len(target)]
    )
    h = linear(model.decoder_in, g)
    all_weights = []
    for layer in model.decoder:
        width = layer.shape[0]
        residual = h if layer.projection is None else linear(layer.projection, h)
        h = gated_convolution(layer, h, width, width - 1)
        d = (linear(layer.query, h) + g) * half
        odds = np.exp(d @ z.T)
        weights = odds / odds.sum(axis=1, keepdims=True)
        context = weights @ ((z + e) * half) * m * np.sqrt(1 / m)
        h = (h + linear(layer.attention_output, context)) * half
        h = (h + residual) * half
        all_weights.append(weights)
    h = linear(model.decoder_out, h)
    if model.hparams.shared_embedding_and_softmax_weights:
        return h @ np.asarray(model.embedding.table).T + np.asarray(model.softmax_bias), all_weights
    return linear(model.softmax, h), all_weights


@pytest.mark.parametrize("changes", [{}, {**SEPARATE, "num_decoder_layers": 3}])
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(
    changes: dict[str, Any],
) -> None:
    check_against_numpy(small_model(replace(HPARAMS, **changes)), numpy_model, atol=1e-4)


def test_dropout_is_at_the_embeddings_the_blocks_and_before_the_softmax(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes = []

    def recorded(x: Any, rate: float, seeds: Any) -> Any:
        shapes.append(tuple(x.shape[1:]))
        return dropout(x, rate, seeds)

    monkeypatch.setattr("t2t_repro.rivals.convs2s.dropout", recorded)
    small_model(HPARAMS)(INPUTS, TARGETS)
    encoder = [(5, 16), (5, 8), (5, 8), (5, 8)]
    decoder = [(4, 16), (4, 8), (4, 8), (4, 16)]
    assert shapes == encoder + decoder  # the last is before the softmax (section 4.2)


def test_only_the_encoder_receives_scaled_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(replace(HPARAMS, **SEPARATE))

    def gradients() -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(INPUTS, TARGETS) ** 2)
        values = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
        return [tf.convert_to_tensor(value).numpy() for value in values]

    scaled = gradients()
    monkeypatch.setattr("t2t_repro.rivals.convs2s.scale_gradient", lambda x, scale: x)
    for weight, gradient, unscaled in zip(
        model.trainable_variables, scaled, gradients(), strict=True
    ):
        name = weight.path
        is_embedding = name in ("convs2s/embedding/table", "convs2s/encoder/position/table")
        # The 2 decoder layers read the encoder output as keys and in values.
        factor = 1 / 4 if "encoder" in name and not is_embedding else 1
        assert np.allclose(gradient, factor * unscaled, rtol=1e-3, atol=1e-4) != is_embedding, name


def test_initial_variances_are_those_of_section_3_5() -> None:
    hparams = registry.hparams_class("convs2s")(
        num_hidden_layers=1, hidden_size=200, layer_prepostprocess_dropout=0.2
    )
    keras.utils.set_random_seed(1)
    model = ConvS2S(hparams, 500)
    encoder = model.encoder[0]
    decoder = model.decoder[0]
    for variance, weights in {
        0.01: [model.embedding.table, model.source_position.table],
        4 * 0.8 / 600: [encoder.linear.v, decoder.linear.v],
        0.8 / 200: [model.encoder_in.v, model.decoder_in.v],
        1 / 200: [model.encoder_out.v, model.decoder_out.v, decoder.query.v],
    }.items():
        for weight in weights:
            assert np.asarray(weight).std() == pytest.approx(variance**0.5, rel=0.02)
    np.testing.assert_allclose(model.encoder_in.weight(), model.encoder_in.v, rtol=1e-5)


def test_groups_of_convolutions_become_layers() -> None:
    ende, enfr = (registry.hparams(f"convs2s_{name}").layers for name in ("ende", "enfr"))  # type: ignore[attr-defined]
    assert ende == ((512, 3),) * 9 + ((1024, 3),) * 4 + ((2048, 1),) * 2
    assert enfr == ((512, 3),) * 6 + ((768, 3),) * 4 + ((1024, 3),) * 3 + ((2048, 1), (4096, 1))
    assert (
        override(HPARAMS, "convolutions=,kernel_height=5,num_decoder_layers=4").layers
        == ((16, 5),) * 4
    )


def test_folded_weights_give_equal_logits_and_are_not_normalized_again() -> None:
    model = small_model(HPARAMS, "bfloat16")
    linear_layer = model.encoder_in
    expected = model(INPUTS, TARGETS)
    model.fold_weights()
    np.testing.assert_array_equal(model(INPUTS, TARGETS), expected)
    folded = np.asarray(linear_layer.weight(), np.float32)
    linear_layer.v.assign(2 * linear_layer.v)
    np.testing.assert_array_equal(np.asarray(linear_layer.weight(), np.float32), 2 * folded)
