"""Compares GNMT with a model in numpy; tests decoding by steps, 16 bits and the size."""

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
from t2t_repro.rivals import gnmt_size
from t2t_repro.rivals.gnmt import GNMT

HPARAMS = FAMILIES["gnmt"]
VARIANTS: dict[str, dict[str, Any]] = {
    "three layers": {},
    "one layer": {"num_hidden_layers": 1},
    "two and one layers": {"num_encoder_layers": 2, "num_decoder_layers": 1},
    "three matrices": {"shared_embedding_and_softmax_weights": False},
    "two matrices": {"shared_embedding_and_softmax_weights": False, "shared_embedding": True},
}
variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def build(changes: dict[str, Any] | None = None, precision: str = "float32", **options: Any) -> Any:
    """Returns a small GNMT. Calls with equal arguments return models with equal random weights."""
    return small_model(replace(HPARAMS, **changes or {}), precision, **options)


def numpy_model(model: GNMT, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the logits [T, V] and, in a list, the attention weights [T, S] of ids without padding (section 3)."""
    layers = NumpyLayers(model, "gnmt/")
    table = layers.weights["embedding/table"]
    x = table[source]
    x = np.hstack([layers.lstm(f"encoder/layer_0_{name}", x, name == "backward") for name in ("forward", "backward")])
    for i in range(1, model.hparams.encoder_layers):
        y = layers.lstm(f"encoder/layer_{i}", x)
        x = x + y if i + 1 >= 3 else y
    embeddings = np.vstack([np.zeros_like(table[:1]), table[target[:-1]]])
    x, contexts, weights = layers.attentive("decoder/layer_0", embeddings, x)
    for i in range(1, model.hparams.decoder_layers):
        y = layers.lstm(f"decoder/layer_{i}", np.hstack([x, contexts]))
        x = x + y if i + 1 >= 3 else y
    return x @ table.T, [weights]


@pytest.mark.parametrize("name", ["three layers", "one layer", "two and one layers"])
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(name: str) -> None:
    check_against_numpy(build(VARIANTS[name]), numpy_model)


@pytest.mark.parametrize("name", ["three layers", "one layer", "three matrices"])
def test_decoding_by_steps_gives_the_same_logits(name: str) -> None:
    check_steps(build(VARIANTS[name]), hypotheses=2)


@pytest.mark.parametrize("precision", ["mixed_float16", "bfloat16"])
def test_16_bits_are_close_to_float32(precision: str) -> None:
    coarse = build(precision=precision)
    check_coarse(build(), coarse)
    cache = coarse.start(2)
    assert [state.cell.dtype for state in cache] == [tf.float32] * 3


@variants
def test_parameters_equal_those_of_the_model(changes: dict[str, Any]) -> None:
    hparams = replace(HPARAMS, **changes)
    assert size.parameters(hparams, VOCAB) == parameter_count(build(changes))
    if not (hparams.shared_embedding or hparams.shared_embedding_and_softmax_weights):
        assert size.parameters(hparams, VOCAB, 30) == parameter_count(build(changes, source_vocab_size=30))


def test_multiplications_equal_those_of_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    counts = count_multiplications(monkeypatch)
    model(INPUTS[:1], TARGETS[:1])
    assert gnmt_size.multiplications(model.hparams, VOCAB, INPUTS.shape[1], TARGETS.shape[1]) == sum(counts)


def test_the_published_model_has_about_the_published_size() -> None:
    from t2t_repro.hparams.gnmt import gnmt

    # Shazeer et al. (2017, section 5.3) state 278 M parameters, and 214 M multiplications for a pair of tokens.
    assert size.parameters(gnmt(), 32_000) == 280_826_880
    assert gnmt_size.multiplications(gnmt(), 32_000, 1, 1) == pytest.approx(214e6, rel=0.01)


def test_hparams_of_the_transformer_are_refused() -> None:
    with pytest.raises(UserError, match="num_heads=4 has no effect in the model gnmt"):
        replace(HPARAMS, num_heads=4)
