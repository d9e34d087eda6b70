"""The hparams that only some of the built-in models use.

All models use the hparams that are not listed here: those of training, `hidden_size`, `num_hidden_layers` and others.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from t2t_repro.errors import UserError

if TYPE_CHECKING:
    from t2t_repro.hparam import HParams

TRANSFORMER = (
    *("filter_size", "num_heads", "attention_key_channels", "attention_value_channels", "max_relative_position"),
    *("self_attention_neighborhood", "self_attention_type", "norm_before", "norm_epsilon", "pos"),
    *("use_target_space_embedding", "attention_dropout", "relu_dropout"),
)
EXPERTS = ("moe_num_experts", "moe_k", "moe_loss_coef")
MODEL_HPARAMS = {"transformer": TRANSFORMER, "transformer_moe": (*TRANSFORMER, *EXPERTS)}
"""For each built-in model, the hparams that it uses and that not all models use."""


def check_model_hparams(hparams: HParams) -> None:
    """Raises UserError if a built-in model cannot use the hparams: if it ignores one that is not at its default, or if
    the experts of a mixture are fewer than it needs.
    """
    if hparams.model not in MODEL_HPARAMS:
        return
    used = MODEL_HPARAMS[hparams.model]
    for field in dataclasses.fields(hparams):
        is_specific = any(field.name in names for names in MODEL_HPARAMS.values())
        if is_specific and field.name not in used and getattr(hparams, field.name) != field.default:
            raise UserError(
                f"{field.name}={getattr(hparams, field.name)} does nothing in the model {hparams.model}; omit it, or "
                "choose an hparams set of this model (--registry_help lists them)"
            )
    if "moe_k" in used and not 0 < hparams.moe_k < hparams.moe_num_experts:
        raise UserError(
            f"moe_k={hparams.moe_k} must be at least 1 and less than moe_num_experts={hparams.moe_num_experts}"
        )
