"""Compares GNMT with a model in numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decoding_models import FAMILIES, check_against_numpy, small_model
from numpy_lstm import NumpyLayers
from t2t_repro.rivals.gnmt import GNMT


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


@pytest.mark.parametrize(("encoder", "decoder"), [(3, 3), (1, 1), (2, 1)])
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(encoder: int, decoder: int) -> None:
    hparams = replace(FAMILIES["gnmt"], num_encoder_layers=encoder, num_decoder_layers=decoder)
    check_against_numpy(small_model(hparams), numpy_model)
