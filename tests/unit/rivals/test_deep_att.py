"""Compares Deep-Att with a model in numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decoding_models import FAMILIES, check_against_numpy, small_model
from numpy_lstm import NumpyLayers
from t2t_repro.rivals.deep_att import DeepAtt

ONE_MATRIX = {"shared_embedding_and_softmax_weights": True, "embedding_size": 0}


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


@pytest.mark.parametrize(
    "changes", [{}, {"shared_embedding": True}, {"num_encoder_layers": 1, "num_decoder_layers": 1, **ONE_MATRIX}]
)
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(changes: dict[str, Any]) -> None:
    check_against_numpy(small_model(replace(FAMILIES["deep_att"], **changes)), numpy_model)
