"""Compares GNMT, Deep-Att and MoE with models in numpy, at once and by steps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decoding_models import FAMILIES, check_against_numpy, small_model
from numpy_experts import mixture
from numpy_lstm import NumpyLayers
from t2t_repro.rivals.attentive_lstm import AdditiveAttention
from t2t_repro.rivals.lstm import LSTM, Init

ONE_MATRIX = {"shared_embedding_and_softmax_weights": True, "embedding_size": 0}
SIMPLE = {"cell_size": 0, "attention_mechanism": "bahdanau"}
SEPARATE = {"shared_embedding_and_softmax_weights": False}


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns the logistic function."""
    return 1 / (1 + np.exp(-x))


def gnmt(layers: NumpyLayers, x: np.ndarray, previous: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the top layer's outputs [T, D] and the attention weights [T, S] of GNMT (section 3)."""  # noqa: E501
    x = np.hstack(
        [
            layers.lstm(f"encoder/layer_0_{name}", x, name == "backward")
            for name in ("forward", "backward")
        ]
    )
    for i in range(1, layers.hparams.encoder_layers):
        y = layers.lstm(f"encoder/layer_{i}", x)
        x = x + y if i + 1 >= 3 else y
    x, contexts, weights = layers.attentive("decoder/layer_0", previous, x)
    for i in range(1, layers.hparams.decoder_layers):
        y = layers.lstm(f"decoder/layer_{i}", np.hstack([x, contexts]))
        x = x + y if i + 1 >= 3 else y
    return x, weights


def moe(layers: NumpyLayers, x: np.ndarray, previous: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the top layer's outputs [T, D] and the attention weights [T, S] of MoE (appendix E)."""  # noqa: E501

    def mixed(name: str, x: np.ndarray) -> np.ndarray:
        kernels = [
            layers.weights[f"{name}/experts/{part}"] for part in ("gate", "kernels1", "kernels2")
        ]
        group_gate = layers.weights.get(f"{name}/experts/group_gate")
        return x + sigmoid(mixture(*kernels, layers.hparams.moe_k, x, group_gate))

    x = (
        x
        + layers.lstm("encoder/layer_0_forward", x)
        + layers.lstm("encoder/layer_0_backward", x, is_reversed=True)
    )
    x = mixed("encoder", x)
    for i in range(1, layers.hparams.encoder_layers):
        x = x + layers.lstm(f"encoder/layer_{i}", x)
    y, _, weights = layers.attentive("decoder/layer_0", previous, x)
    x = mixed("decoder", previous + y)
    for i in range(1, layers.hparams.decoder_layers):
        x = x + layers.lstm(f"decoder/layer_{i}", x)
    return x, weights


def deep_att(
    layers: NumpyLayers, embedded: np.ndarray, previous: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the top layer's outputs [T, D] and the attention weights [T, S] of Deep-Att (section
    3.1).
    """
    half = 2 * layers.hparams.hidden_size
    outputs = []
    all_sums = []
    activation = np.tanh if layers.hparams.sums_activation == "tanh" else np.asarray
    for column in range(2):
        x = embedded
        for i in range(layers.hparams.encoder_layers):
            name = f"encoder/column_{column}/layer_{i}"
            sums = layers.sums(name, x)
            y = layers.lstm(name, x, is_reversed=(i + column) % 2 == 1)
            x = np.hstack([activation(sums[:, :half]), y])
        outputs.append(y)
        all_sums.append(activation(sums))
    memory = np.hstack([*outputs, *all_sums]) @ layers.weights["encoder/projection"]
    y, contexts, weights = layers.attentive("decoder/layer_0", previous, memory)
    sums = layers.sums("decoder/layer_0", np.hstack([previous, contexts]))
    for i in range(1, layers.hparams.decoder_layers):
        x = np.hstack([activation(sums[:, :half]), y])
        sums = layers.sums(f"decoder/layer_{i}", x)
        y = layers.lstm(f"decoder/layer_{i}", x)
    return y, weights


@pytest.mark.parametrize(
    ("stacks", "changes"),
    [
        (gnmt, {}),
        (gnmt, {"num_hidden_layers": 1, "multiply_embedding_mode": "sqrt_depth", **SEPARATE}),
        (moe, {}),
        (moe, {"num_encoder_layers": 3, "num_decoder_layers": 1, "moe_groups": 0, **SIMPLE}),
        (deep_att, {}),
        (deep_att, {"sums_activation": "tanh", "output_factor": 3.0}),
        (deep_att, {"num_encoder_layers": 1, "num_decoder_layers": 1, **ONE_MATRIX}),
    ],
)
def test_logits_and_attention_weights_equal_those_of_a_model_in_numpy(
    stacks: Callable[..., tuple[np.ndarray, np.ndarray]], changes: dict[str, Any]
) -> None:
    def numpy_model(
        model: Any, source: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        layers = NumpyLayers(model, f"{model.name}/")
        sources = layers.weights["embedding/table"]
        table = layers.weights.get("target_embedding/table", sources)
        factor = (
            sources.shape[1] ** 0.5 if model.hparams.multiply_embedding_mode == "sqrt_depth" else 1
        )
        previous = factor * np.vstack([np.zeros_like(table[:1]), table[target[:-1]]])
        y, weights = stacks(layers, factor * sources[source], previous)
        return model.hparams.output_factor * y @ layers.weights.get("softmax/table", table).T, [
            weights
        ]

    check_against_numpy(small_model(replace(FAMILIES[stacks.__name__], **changes)), numpy_model)


def test_the_forget_gate_is_open_at_first_and_the_vector_of_attention_has_the_variance_of_a_kernel() -> (  # noqa: E501
    None
):
    bias = LSTM(3, 8).bias
    np.testing.assert_array_equal(bias, np.repeat([0, 1, 0, 0], 8))
    vector = np.asarray(AdditiveAttention(1000, 2, init=Init(gain=0.25)).vector)
    assert np.var(vector) == pytest.approx(0.25 * 2 / 1001, rel=0.15)
