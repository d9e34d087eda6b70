"""Tests that weights of tensor2tensor get our names, and that no variable is lost."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golden_model import HPARAMS
from t2t_folders import weights, write_t2t_checkpoint
from t2t_repro.checkpoints.reader import Checkpoint, refuse_misfit
from t2t_repro.errors import UserError
from t2t_repro.models.model import model_without_values
from t2t_repro.tensor2tensor.variables import T2TVariables, by_our_names

Variables = dict[str, np.ndarray]
EMBEDDING = "transformer/symbol_modality_100_32/shared"


def read(folder: Path, variables: Variables, step: int = 20) -> T2TVariables:
    return T2TVariables([write_t2t_checkpoint(folder, variables, step)])


def renamed(variables: Variables, old: str, new: str) -> Variables:
    return {name.replace(old, new): value for name, value in variables.items()}


def require_fit(old: T2TVariables) -> None:
    """Raises UserError unless the weights are those of the Transformer that their sizes describe."""  # noqa: E501
    source, target = old.vocab_sizes()
    hparams = replace(HPARAMS, **old.sizes())
    model = model_without_values(
        hparams, target, source_vocab_size=source if source != target else 0
    )
    refuse_misfit(model, Checkpoint(old.weights, ""), old.path)


def test_every_weight_of_the_golden_model_gets_our_name(tmp_path: Path) -> None:
    slots = {f"training/{name}/Adam": value for name, value in weights().items()}
    others = {"training/beta1_power": np.ones(()), "losses_avg/problem_0/total_loss": np.ones(())}
    old_kernels = {
        name: value[None] if name.endswith("/kernel") else value
        for name, value in weights().items()
    }
    old = read(tmp_path, old_kernels | slots | others, 250_000)
    assert old.step == 250_000
    assert old.unused == {
        "optimizer variables": len(slots) + 1,
        "averages of losses": 1,
        "step counters": 1,
    }
    expected = by_our_names(weights(), "")  # the golden model tests the names
    assert old.weights.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(old.weights[name], value)
        assert old.weights[name].dtype == np.float32
    sizes = old.sizes()
    assert sizes == {name: getattr(HPARAMS, name) for name in sizes}
    assert {"num_heads", "pos"}.isdisjoint(sizes)  # the weights do not say


def shallow_decoder(variables: Variables) -> Variables:
    return {name: value for name, value in variables.items() if "decoder/layer_1/" not in name}


def pre_norm(variables: Variables) -> Variables:
    variables = renamed(variables, "layer_postprocess", "layer_prepostprocess")
    for number, stack in enumerate(("encoder", "decoder")):
        for kind in ("scale", "bias"):
            name = f"transformer/body/{stack}/layer_prepostprocess/layer_norm/layer_norm_{kind}"
            variables[name] = np.full(32, number, np.float32)
    return variables


def shared_source_and_target(variables: Variables) -> Variables:
    return variables | {
        "transformer/symbol_modality_100_32/softmax/weights_0": np.ones((100, 32), np.float32)
    }


def separate(variables: Variables) -> Variables:
    table = np.concatenate([variables.pop(f"{EMBEDDING}/weights_{number}") for number in range(16)])
    return variables | {
        "transformer/symbol_modality_90_32/input_emb/weights_0": table[:90],
        "transformer/symbol_modality_100_32/target_emb/weights_0": table,
        "transformer/symbol_modality_100_32/softmax/weights_0": -table,
    }


def learned_positions(variables: Variables) -> Variables:
    return variables | {
        "transformer/body/inputs_positional_embedding": np.full((9, 32), 1.0),
        "transformer/body/targets_positional_embedding": np.full((9, 32), 2.0),
    }


def relative(variables: Variables) -> Variables:
    scope = "multihead_attention/dot_product_attention_relative/relative_positions"
    return variables | {
        f"transformer/body/{stack}/layer_{layer}/self_attention/{scope}_{kind}/embeddings": np.ones(
            (7, 8)
        )
        for stack in ("encoder", "decoder")
        for layer in range(2)
        for kind in ("keys", "values")
    }


def own_channels(variables: Variables) -> Variables:
    return {
        name: value[:, :16] if name.endswith(("/q/kernel", "/k/kernel")) else value
        for name, value in variables.items()
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            shallow_decoder,
            {"num_hidden_layers": 2, "num_encoder_layers": 0, "num_decoder_layers": 1},
        ),
        (pre_norm, {"norm_before": True}),
        (
            shared_source_and_target,
            {"shared_embedding_and_softmax_weights": False, "shared_embedding": True},
        ),
        (separate, {"shared_embedding_and_softmax_weights": False, "shared_embedding": False}),
        (learned_positions, {"pos": "emb", "max_length": 9}),
        (
            relative,
            {
                "self_attention_type": "dot_product_relative",
                "max_relative_position": 3,
                "num_heads": 4,
            },
        ),
        (own_channels, {"attention_key_channels": 16, "attention_value_channels": 0}),
    ],
)
def test_each_form_of_the_model_is_recognized_and_filled(
    tmp_path: Path, change: Callable[[Variables], Variables], expected: dict
) -> None:
    old = read(tmp_path, change(weights()))
    sizes = old.sizes()
    assert {name: sizes[name] for name in expected} == expected
    require_fit(old)


def test_sources_and_targets_are_not_confused(tmp_path: Path) -> None:
    old = read(tmp_path, separate(learned_positions(pre_norm(weights()))))
    source, target, softmax, positions, target_positions = (
        old.weights[f"transformer/{name}/table"]
        for name in (
            "embedding",
            "target_embedding",
            "softmax",
            "encoder/position",
            "decoder/position",
        )
    )
    assert old.vocab_sizes() == (90, 100)
    np.testing.assert_array_equal(source, target[:90])
    np.testing.assert_array_equal(softmax, -target)
    assert (positions == 1).all() and (target_positions == 2).all()
    assert (old.weights["transformer/decoder/norm/scale"] == 1).all()


WITHOUT = "transformer/body/decoder/layer_1/encdec_attention/multihead_attention/k/kernel"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {name: value for name, value in weights().items() if name != WITHOUT},
            "memory_attention/kv has shape [32, 32]",
        ),
        (
            weights() | {"transformer/body/moe/gate": np.ones(3)},
            "has a variable transformer/body/moe/gate, which",
        ),
        (
            renamed(weights(), "transformer/", "lstm_seq2seq/"),
            "has no weight transformer/embedding/table",
        ),
        (
            renamed(weights(), "symbol_modality", "class_label_modality"),
            "variable transformer/class_label_modality",
        ),
        (
            separate(weights()) | {f"{EMBEDDING}/weights_0": np.ones((10, 32), np.float32)},
            "a second variable like",
        ),
    ],
)
def test_other_variables_are_refused(tmp_path: Path, variables: Variables, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        require_fit(read(tmp_path, variables))
