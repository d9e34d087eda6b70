"""Compares LSTM stacks with mixtures of experts with a model in numpy; tests noise, balancing losses and sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from decoding_models import (
    FAMILIES,
    INPUTS,
    SEED,
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
from t2t_repro.layers.auxiliary_loss import auxiliary_losses
from t2t_repro.models import size
from t2t_repro.models.model import parameter_count
from t2t_repro.rivals import experts, moe_size
from t2t_repro.rivals.moe import MoE

HPARAMS = FAMILIES["moe"]
VARIANTS: dict[str, dict[str, Any]] = {
    "two layers": {},
    "one layer": {"num_hidden_layers": 1},
    "three and one layers, no projection": {"num_encoder_layers": 3, "num_decoder_layers": 1, "cell_size": 0},
    "three matrices": {"shared_embedding_and_softmax_weights": False},
    "two matrices": {"shared_embedding_and_softmax_weights": False, "shared_embedding": True},
}


def build(changes: dict[str, Any] | None = None, precision: str = "float32", **options: Any) -> Any:
    """Returns a small model. Calls with equal arguments return models with equal random weights."""
    return small_model(replace(HPARAMS, **changes or {}), precision, **options)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns the logistic function."""
    return 1 / (1 + np.exp(-x))


def mixture(layers: NumpyLayers, name: str, x: np.ndarray) -> np.ndarray:
    """Returns the outputs of the mixture `name` without noise, for x [T, D] (equations 1, 3 and 5)."""
    gate, kernels1, kernels2 = (layers.weights[f"{name}/experts/{part}"] for part in ("gate", "kernels1", "kernels2"))
    outputs = np.zeros_like(x)
    for t, logits in enumerate(x @ gate):
        best = np.argsort(-logits)[: layers.hparams.moe_k]
        gates = np.exp(logits[best]) / np.exp(logits[best]).sum()
        for number, weight in zip(best, gates, strict=True):
            outputs[t] += weight * (np.maximum(0, x[t] @ kernels1[number]) @ kernels2[number])
    return outputs


def numpy_model(model: MoE, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the logits [T, V] and, in a list, the attention weights [T, S] of ids without padding (appendix E)."""
    layers = NumpyLayers(model, "moe/")
    table = layers.weights["embedding/table"]
    x = table[source]
    forward, backward = (
        layers.lstm(f"encoder/layer_0_{name}", x, name == "backward") for name in ("forward", "backward")
    )
    x = x + forward + backward
    x = x + sigmoid(mixture(layers, "encoder", x))
    for i in range(1, model.hparams.encoder_layers):
        x = x + layers.lstm(f"encoder/layer_{i}", x)
    embeddings = np.vstack([np.zeros_like(table[:1]), table[target[:-1]]])
    y, _, weights = layers.attentive("decoder/layer_0", embeddings, x)
    x = embeddings + y
    x = x + sigmoid(mixture(layers, "decoder", x))
    for i in range(1, model.hparams.decoder_layers):
        x = x + layers.lstm(f"decoder/layer_{i}", x)
    return x @ table.T, [weights]


@pytest.mark.parametrize("name", ["two layers", "one layer", "three and one layers, no projection"])
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(name: str) -> None:
    check_against_numpy(build(VARIANTS[name]), numpy_model)


def test_the_seed_decides_the_noise_of_the_gating_networks() -> None:
    model = build({"layer_prepostprocess_dropout": 0.0})
    for kernel in (model.encoder.experts.noise_kernel, model.decoder.experts.noise_kernel):
        kernel.assign(kernel + 3.0)
    logits = np.asarray(model(INPUTS, TARGETS, SEED))
    np.testing.assert_array_equal(model(INPUTS, TARGETS, SEED), logits)
    for other in (SEED + 1, None):
        assert not np.allclose(model(INPUTS, TARGETS, other), logits, atol=1e-3)


def test_each_mixture_adds_a_balancing_loss_that_ignores_padding() -> None:
    model = build()
    with auxiliary_losses() as losses:
        model(INPUTS, TARGETS, SEED)
        model(np.pad(INPUTS, ((0, 0), (0, 2))), np.pad(TARGETS, ((0, 0), (0, 3))), SEED)
    assert len(losses) == 4 and min(losses) > 0
    np.testing.assert_allclose(losses[2:], losses[:2], rtol=1e-4)


@pytest.mark.parametrize("name", ["two layers", "one layer", "three matrices"])
def test_decoding_by_steps_gives_the_same_logits(name: str) -> None:
    check_steps(build(VARIANTS[name]), hypotheses=2)


def test_a_state_has_the_widths_of_the_output_and_of_the_cell() -> None:
    model = build()
    assert [tuple(state.output.shape) for state in model.start(6)] == [(6, 8)] * 2
    assert [tuple(state.cell.shape) for state in model.start(6)] == [(6, 12)] * 2


@pytest.mark.parametrize("precision", ["mixed_float16", "bfloat16"])
def test_16_bits_are_close_to_float32(precision: str) -> None:
    coarse = build(precision=precision)
    check_coarse(build(), coarse)
    assert [state.cell.dtype for state in coarse.start(2)] == [tf.float32] * 2


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_parameters_equal_those_of_the_model(changes: dict[str, Any]) -> None:
    hparams = replace(HPARAMS, **changes)
    assert size.parameters(hparams, VOCAB) == parameter_count(build(changes))
    if not (hparams.shared_embedding or hparams.shared_embedding_and_softmax_weights):
        assert size.parameters(hparams, VOCAB, 30) == parameter_count(build(changes, source_vocab_size=30))


@pytest.mark.parametrize("name", ["two layers", "three and one layers, no projection"])
def test_multiplications_equal_those_of_the_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Blocks of one position contain no zeros that fill them up.
    monkeypatch.setattr(experts, "BLOCKS_PER_EXPERT", 10**6)
    model = build(VARIANTS[name])
    counts = count_multiplications(monkeypatch)
    model(INPUTS[:1], TARGETS[:1], SEED[:1])
    assert sum(counts) == moe_size.multiplications(model.hparams, VOCAB, INPUTS.shape[1], TARGETS.shape[1])


def test_the_published_model_has_the_published_size() -> None:
    from t2t_repro.hparams.moe import moe

    # 8.7 B parameters, and 85 M multiplications for a pair of tokens (Table 2). Its two-level gating needs less than
    # ours, so this test omits the gates.
    assert size.parameters(moe(), 32_000) == 8_695_226_880
    gates = 2 * 2 * 512 * 2048
    assert moe_size.multiplications(moe(), 32_000, 1, 1) - gates == pytest.approx(85e6, rel=0.002)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moe_k": 4}, "moe_k=4 must be at least 1 and less than moe_num_experts=4"),
        ({"cell_size": -1}, "cell_size=-1 must be 0 or more"),
        ({"num_heads": 4}, "num_heads=4 has no effect in the model moe"),
        ({"model": "gnmt"}, "has no effect in the model gnmt"),
    ],
)
def test_contradicting_hparams_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(HPARAMS, **changes)
