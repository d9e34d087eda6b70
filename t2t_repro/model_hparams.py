"""The hparams that only some of the built-in models use.

All models use the hparams that are not listed here: those of training, `hidden_size`, `num_hidden_layers` and others.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from t2t_repro.errors import UserError

if TYPE_CHECKING:
    from t2t_repro.hparam import HParams

MODEL_HPARAMS = {
    "transformer": (
        *("filter_size", "num_heads", "attention_key_channels", "attention_value_channels", "max_relative_position"),
        *("self_attention_neighborhood", "self_attention_type", "norm_before", "norm_epsilon", "pos"),
        *("use_target_space_embedding", "attention_dropout", "relu_dropout"),
    ),
}
"""For each built-in model, the hparams that it uses and that not all models use."""


def refuse_unused(hparams: HParams) -> None:
    """Raises UserError if an hparam that the built-in model `hparams.model` does not use is not at its default."""
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
