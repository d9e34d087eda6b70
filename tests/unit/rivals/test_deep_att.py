"""Compares Deep-Att with a model in numpy; tests decoding by steps, 16 bits and the size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from decoding_models import (
    FAMILIES,
    INPUTS,
    TARGETS,
    VOCAB,
    check_against_numpy,
    check_coarse,
    check_steps,
    count_multiplications,
    small_model,
)
from numpy_lstm import NumpyLayers
from t2t_repro.errors import UserError
from t2t_repro.models import size
from t2t_repro.models.model import parameter_count
from t2t_repro.rivals import deep_att_size
from t2t_repro.rivals.deep_att import DeepAtt

HPARAMS = FAMILIES["deep_att"]
SHARED = {"shared_embedding_and_softmax_weights": True, "embedding_size": 0}
VARIANTS: dict[str, dict[str, Any]] = {
    "three matrices": {},
    "two matrices": {"shared_embedding": True},
    "one layer, one matrix": {"num_encoder_layers": 1, "num_decoder_layers": 1, **SHARED},
}


def build(changes: dict[str, Any] | None = None, precision: str = "float32", **options: Any) -> Any:
    """Returns a small Deep-Att. Calls with equal arguments return models with equal random weights."""
    return small_model(replace(HPARAMS, **changes or {}), precision, **options)


def numpy_model(model: DeepAtt, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the logits [T, V] and, in a list, the attention weights [T, S] of ids without padding (section 3.1)."""
    layers, half = NumpyLayers(model, "deep_att/"), 2 * model.hparams.hidden_size
    outputs, all_sums = [], []
    for column in range(2):
        x = layers.weights["embedding/table"][source]
        for i in range(model.hparams.encoder_layers):
            name = f"encoder/column_{column}/layer_{i}"
            sums, y = layers.sums(name, x), layers.lstm(name, x, is_reversed=(i + column) % 2 == 1)
            x = np.hstack([sums[:, :half], y])
        outputs.append(y)
        all_sums.append(sums)
    memory = np.hstack([*outputs, *all_sums]) @ layers.weights["encoder/projection"]
    table = layers.weights.get("target_embedding/table", layers.weights["embedding/table"])
    x = np.vstack([np.zeros_like(table[:1]), table[target[:-1]]])
    y, contexts, weights = layers.attentive("decoder/layer_0", x, memory)
    sums = layers.sums("decoder/layer_0", np.hstack([x, contexts]))
    for i in range(1, model.hparams.decoder_layers):
        x = np.hstack([sums[:, :half], y])
        sums, y = layers.sums(f"decoder/layer_{i}", x), layers.lstm(f"decoder/layer_{i}", x)
    return y @ layers.weights.get("softmax/table", table).T, [weights]


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(name: str) -> None:
    check_against_numpy(build(VARIANTS[name]), numpy_model)


@pytest.mark.parametrize("name", ["three matrices", "one layer, one matrix"])
def test_decoding_by_steps_gives_the_same_logits(name: str) -> None:
    check_steps(build(VARIANTS[name]), hypotheses=2)


def test_16_bits_are_close_to_float32() -> None:
    coarse = build(precision="bfloat16")
    check_coarse(build(), coarse)
    assert [state.cell.dtype for state in coarse.start(2)] == [tf.float32] * 2


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_equal_those_of_the_model(name: str) -> None:
    hparams = replace(HPARAMS, **VARIANTS[name])
    assert size.parameters(hparams, VOCAB) == parameter_count(build(VARIANTS[name]))
    if name == "three matrices":
        assert size.parameters(hparams, VOCAB, 30) == parameter_count(build(source_vocab_size=30))


def test_multiplications_equal_those_of_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    counts = count_multiplications(monkeypatch)
    model(INPUTS[:1], TARGETS[:1])
    assert deep_att_size.multiplications(model.hparams, VOCAB, INPUTS.shape[1], TARGETS.shape[1]) == sum(counts)


def test_the_context_has_the_published_width() -> None:
    from t2t_repro.hparams.deep_att import deep_att

    assert deep_att_size.memory_width(deep_att()) == 1280
    assert size.parameters(deep_att(), 32_000) == 139_905_536


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shared_embedding_and_softmax_weights": True}, "embedding_size=6 differs from hidden_size=8"),
        ({"embedding_size": -1}, "embedding_size=-1 must be 0 or more"),
        ({"filter_size": 10}, "filter_size=10 has no effect in the model deep_att"),
        ({"model": "gnmt"}, "embedding_size=6 has no effect in the model gnmt"),
    ],
)
def test_contradicting_hparams_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(HPARAMS, **changes)
