"""The hparams that only some of the built-in models use, and their checks.

All models use the hparams that are not listed here: those of training, `hidden_size`, `num_hidden_layers` and others.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from t2t_repro.convolution_layers import convolution_layers
from t2t_repro.errors import UserError

if TYPE_CHECKING:
    from t2t_repro.hparam import HParams

TRANSFORMER = (
    *("filter_size", "num_heads", "attention_key_channels", "attention_value_channels", "max_relative_position"),
    *("self_attention_neighborhood", "self_attention_type", "norm_before", "norm_epsilon", "pos"),
    *("use_target_space_embedding", "attention_dropout", "relu_dropout"),
)
EXPERTS = ("moe_num_experts", "moe_k", "moe_loss_coef")
MODEL_HPARAMS: dict[str, tuple[str, ...]] = {
    "transformer": TRANSFORMER,
    "transformer_moe": (*TRANSFORMER, *EXPERTS),
    "convs2s": ("convolutions", "kernel_height", "output_embedding_size"),
    "gnmt": (),
    "bytenet": ("kernel_height", "norm_epsilon"),
    "deep_att": ("embedding_size",),
    "moe": ("filter_size", "cell_size", *EXPERTS),
}
"""For each built-in model, the hparams that it uses and that not all models use."""


def uses(hparams: HParams, name: str) -> bool:
    """Returns whether the model `hparams.model` uses the hparam `name`. A custom model may use all hparams."""
    is_specific = any(name in names for names in MODEL_HPARAMS.values())
    return not is_specific or name in MODEL_HPARAMS.get(hparams.model, [name])


def check_model_hparams(hparams: HParams) -> None:
    """Raises UserError if a built-in model cannot use the hparams: if it ignores one that is not at its default, if
    the experts of a mixture are fewer than it needs, or if sizes contradict each other.
    """
    if hparams.model not in MODEL_HPARAMS:
        return
    for field in dataclasses.fields(hparams):
        if not uses(hparams, field.name) and getattr(hparams, field.name) != field.default:
            raise UserError(
                f"{field.name}={getattr(hparams, field.name)} has no effect in the model {hparams.model}; omit it, or "
                "choose an hparams set of this model (--registry_help lists them)"
            )
    if uses(hparams, "moe_k") and not 0 < hparams.moe_k < hparams.moe_num_experts:
        raise UserError(
            f"moe_k={hparams.moe_k} must be at least 1 and less than moe_num_experts={hparams.moe_num_experts}"
        )
    if hparams.model == "convs2s":
        convolution_layers(hparams)
    for name in ("output_embedding_size", "embedding_size"):
        _check_embedding(hparams, name)


def _check_embedding(hparams: HParams, name: str) -> None:
    """Raises UserError if embeddings and softmax share a matrix, but hparam `name` gives them different widths."""
    if hparams.shared_embedding_and_softmax_weights and getattr(hparams, name) not in (0, hparams.hidden_size):
        raise UserError(
            f"{name}={getattr(hparams, name)} differs from hidden_size={hparams.hidden_size}, so embeddings and the "
            "pre-softmax projection cannot share a matrix; set shared_embedding_and_softmax_weights=false, or omit "
            f"{name}"
        )
