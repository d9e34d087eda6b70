"""A Transformer with tensor2tensor's weights, and the numbers that tensor2tensor computed with them.

tests/golden/data/README.md describes the numbers. This module does not import TensorFlow, so tests of JAX can use it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import zero_weights
from t2t_repro.models.transformer import Transformer

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "tensor2tensor"
HPARAMS = HParams(
    num_hidden_layers=2,
    hidden_size=32,
    num_heads=4,
    filter_size=64,
    layer_prepostprocess_dropout=0.0,
    use_target_space_embedding=True,
)
TARGET_SPACE_ID = 1


def load(name: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a file of golden numbers."""
    return dict(np.load(GOLDEN / f"{name}.npz"))


def by_our_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns tensor2tensor's variables or gradients under our names. Joins what is one variable in our model."""

    def tensor(name: str) -> np.ndarray:
        return tensors[f"transformer/{name}"]

    renamed = {
        "embedding/table": np.concatenate([tensor(f"symbol_modality_100_32/shared/weights_{i}") for i in range(16)]),
        "target_space_embedding": tensor("body/target_space_embedding/kernel"),
    }
    attention_names = {
        "encoder": {"self_attention": "self_attention"},
        "decoder": {"self_attention": "self_attention", "encdec_attention": "memory_attention"},
    }
    for stack, attentions in attention_names.items():
        for layer in range(2):
            source, target = f"body/{stack}/layer_{layer}", f"{stack}/layer_{layer}"
            for number, sublayer in enumerate([*attentions, "ffn"]):
                norm = f"{source}/{sublayer}/layer_postprocess/layer_norm/layer_norm"
                for weight in ("scale", "bias"):
                    renamed[f"{target}/residual_{number}/norm/{weight}"] = tensor(f"{norm}_{weight}")
            for number in (1, 2):
                for weight in ("kernel", "bias"):
                    renamed[f"{target}/feed_forward/{weight}{number}"] = tensor(f"{source}/ffn/conv{number}/{weight}")
            for source_name, name in attentions.items():
                attention = f"{source}/{source_name}/multihead_attention"
                q, k, v, output = (tensor(f"{attention}/{part}/kernel") for part in ("q", "k", "v", "output_transform"))
                renamed[f"{target}/{name}/output"] = output
                if name == "self_attention":
                    renamed[f"{target}/{name}/qkv"] = np.concatenate([q, k, v], axis=1)
                else:
                    renamed[f"{target}/{name}/q"] = q
                    renamed[f"{target}/{name}/kv"] = np.concatenate([k, v], axis=1)
    return {f"transformer/{name}": value for name, value in renamed.items()}


def golden_model() -> Transformer:
    """Returns our Transformer with tensor2tensor's weights."""
    with zero_weights():
        model = Transformer(HPARAMS, 100, TARGET_SPACE_ID)
    weights = by_our_names(load("model_v1_postnorm_vars"))
    assert weights.keys() == {variable.path for variable in model.trainable_variables}
    for variable in model.trainable_variables:
        variable.assign(weights[variable.path])
    return model
