"""Translates tensor2tensor's hparams of a Transformer into ours, and compares them with the
weights.
"""

from dataclasses import replace
from typing import Any

from t2t_repro.errors import UserError, shortened
from t2t_repro.hparam import SCHEDULE_FACTORS, HParams

SUPPORTED: dict[str, tuple[Any, ...]] = {
    "ffn_layer": ("dense_relu_dense",),
    "norm_type": ("layer",),
    "multiply_embedding_mode": ("sqrt_depth",),
    "layer_preprocess_sequence": ("none", "n"),
    "layer_postprocess_sequence": ("dan", "da"),
    "self_attention_type": ("dot_product", "dot_product_relative"),
    "pos": ("timing", "emb", None),
    "position_features": ("",),
    "prepend_mode": ("none",),
    "proximity_bias": (False,),
    "causal_decoder_self_attention": (True,),
    "unidirectional_encoder": (False,),
    "attention_variables_3d": (False,),
    "factored_logits": (False,),
    "hard_attention_k": (0,),
    "num_area_layers": (0,),
    "vocab_divisor": (1,),
}
"""For each of tensor2tensor's hparams that changes what its Transformer computes: the values that
can be imported.
"""
NUMBERS = (
    "num_hidden_layers",
    "hidden_size",
    "filter_size",
    "num_heads",
    "norm_epsilon",
    "initializer_gain",
    "layer_prepostprocess_dropout",
    "attention_dropout",
    "relu_dropout",
    "label_smoothing",
    "max_length",
    "train_steps",
    "learning_rate_constant",
    "learning_rate_warmup_steps",
    "learning_rate_decay_rate",
    "learning_rate_decay_steps",
    "learning_rate_decay_staircase",
    "optimizer_adam_beta1",
    "optimizer_adam_beta2",
    "optimizer_adam_epsilon",
    "max_relative_position",
)
"""Hparams with the same name and meaning in tensor2tensor and here. All are numbers or booleans."""
NO_ZERO = (
    "max_length",
    "train_steps",
    "learning_rate_warmup_steps",
    "learning_rate_constant",
    "learning_rate_decay_steps",
)
"""Hparams that can be 0 in tensor2tensor but not here."""


def translate(t2t_hparams: dict[str, Any], sizes: dict[str, Any]) -> HParams:
    """Returns our hparams for a model that tensor2tensor trained.

    `t2t_hparams` has the values in tensor2tensor's file hparams.json, and `sizes` those that
    `T2TVariables.sizes` returns. A learning-rate schedule that does not exist here becomes that of
    transformer_base_v3. batch_size is always that of transformer_base_v3, because tensor2tensor
    counts it in other units: padded positions on each GPU.

    Raises UserError for what no Transformer here computes, or if the hparams contradict the
    weights.
    """
    for name, values in SUPPORTED.items():
        if name in t2t_hparams and t2t_hparams[name] not in values:
            raise UserError(
                f"{name}={shortened(repr(t2t_hparams[name]))} cannot be imported, only "
                f"{' or '.join(map(repr, values))}"
            )
    numbers = {name: t2t_hparams[name] for name in NUMBERS if name in t2t_hparams}
    for name in NO_ZERO:
        # tensor2tensor's 0 means "no limit" or "not used" here. Ours get the default.
        if not numbers.get(name):
            numbers.pop(name, None)
    _compare(numbers, sizes)
    pos = t2t_hparams.get("pos", "timing") or "none"
    return HParams(**numbers | {"pos": pos} | _schedule(t2t_hparams) | sizes)


def fit(hparams: HParams, sizes: dict[str, Any]) -> HParams:
    """Returns the hparams of one of our sets, changed to fit the weights of a model that
    tensor2tensor trained.

    tensor2tensor's sets can have the same names as ours but other norms, for example, so only
    widths are compared.

    `sizes` has the values that `T2TVariables.sizes` returns. Raises UserError if the set
    contradicts them.
    """
    _compare(vars(hparams), sizes)
    pos = "none" if sizes["max_relative_position"] else "timing"
    return replace(hparams, **{"pos": pos} | sizes)


def _compare(hparams: dict[str, Any], sizes: dict[str, Any]) -> None:
    """Raises UserError if the hparams have other widths than the weights."""
    for name in ("hidden_size", "filter_size", "num_heads"):
        if name in hparams and hparams[name] != sizes.get(name, hparams[name]):
            raise UserError(
                f"{name}={hparams[name]}, but the checkpoint has {name}={sizes[name]}; give the "
                "hparams of its training"
            )


def _schedule(t2t_hparams: dict[str, Any]) -> dict[str, Any]:
    """Returns the hparams of our learning rate, which is tensor2tensor's if it used Adam with a
    schedule that we have.
    """
    schedule = str(t2t_hparams.get("learning_rate_schedule", ""))
    rate = t2t_hparams.get("learning_rate")
    has_noam = t2t_hparams.get("learning_rate_decay_scheme") == "noam"
    if "adam" in str(t2t_hparams.get("optimizer")).lower():
        if schedule == "legacy" and has_noam and isinstance(rate, int | float):
            # The rate is then 0.002 * 5000 * learning_rate times equation 3 of the paper.
            return {"learning_rate_schedule": "constant*noam", "learning_rate_constant": 10 * rate}
        # tensor2tensor's linear_decay has another formula than ours.
        if {*schedule.split("*")} <= {*SCHEDULE_FACTORS} - {"linear_decay"}:
            return {"learning_rate_schedule": schedule}
    return {
        "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        "learning_rate_constant": 2.0,
        "learning_rate_warmup_steps": 8000,
    }
