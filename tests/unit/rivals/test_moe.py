"""Compares LSTM stacks with mixtures of experts with a model in numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decoding_models import FAMILIES, check_against_numpy, small_model
from numpy_lstm import NumpyLayers
from t2t_repro.rivals.moe import MoE


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


@pytest.mark.parametrize("changes", [{}, {"num_encoder_layers": 3, "num_decoder_layers": 1, "cell_size": 0}])
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(changes: dict[str, Any]) -> None:
    check_against_numpy(small_model(replace(FAMILIES["moe"], **changes)), numpy_model)
