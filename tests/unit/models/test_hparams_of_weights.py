"""Tests that the fields of hparams say which of them determine the names and shapes of weights."""

import dataclasses
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.models.model import model_without_values

SMALL: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "shared_embedding_and_softmax_weights": False,
}
EXPERTS = {"moe_num_experts": 9}
OTHER_OUTPUTS: dict[str, Any] = {
    "num_heads": 4,
    "self_attention_neighborhood": 4,
    "norm_epsilon": 0.1,
    "pos": "marian",
    "activation": "gelu",
    "multiply_embedding_mode": "none",
    "attention_mechanism": "tanh_product",
    "output_factor": 2.0,
    "sums_activation": "tanh",
    "last_activation": "linear",
    "moe_k": 1,
}
"""Other values of the hparams that affect outputs, but not weights."""
RELATIVE = {"self_attention_type": "dot_product_relative", "max_relative_position": 3}
OTHER_WEIGHTS: dict[str, dict[str, Any]] = {
    "self_attention_type": RELATIVE,
    "max_relative_position": RELATIVE,
    "convolutions": {"convolutions": "8x3+16x3"},
    "moe_groups": {"moe_groups": 3},
}
"""Other values of hparams that cannot be doubled."""


def shapes(model: str, changes: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a small model's weights by their names."""
    experts = EXPERTS if "moe" in model else {}
    hparams = registry.hparams_class(model)(**SMALL | experts | changes)
    weights = model_without_values(hparams, 12).trainable_variables
    return {weight.path: tuple(weight.shape) for weight in weights}


def own_fields(model: str, affects: Any) -> list[dataclasses.Field[Any]]:
    """Returns the fields that affect weights or outputs of a model, except its name."""
    kind = registry.hparams_class(model)
    names = {*kind.affecting(affects)} - {"model", *kind.unused}
    return [field for field in dataclasses.fields(kind) if field.name in names]


def doubled(field: dataclasses.Field[Any]) -> dict[str, Any]:
    """Returns another value of a field, which affects weights."""
    value = SMALL.get(field.name, EXPERTS.get(field.name, field.default))
    return {field.name: not value if isinstance(value, bool) else value * 2 or 16}


MODELS = ("transformer", "bytenet", "convs2s", "deep_att", "gnmt", "moe")
CASES = [
    (model, OTHER_WEIGHTS.get(field.name) or doubled(field))
    for model in MODELS
    for field in own_fields(model, "weights")
    if model == "transformer" or field not in dataclasses.fields(HParams)
]
"""All fields of the Transformer, and those that another model adds or defines again."""


@pytest.mark.parametrize(("model", "changes"), CASES)
def test_an_hparam_of_weights_changes_their_names_or_shapes(
    model: str, changes: dict[str, Any]
) -> None:
    assert shapes(model, changes) != shapes(model, {})


@pytest.mark.parametrize("model", MODELS)
def test_an_hparam_of_outputs_changes_no_names_and_shapes(model: str) -> None:
    changes = {field.name: OTHER_OUTPUTS[field.name] for field in own_fields(model, "outputs")}
    assert shapes(model, changes) == shapes(model, {})
