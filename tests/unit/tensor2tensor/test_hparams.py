"""Tests that tensor2tensor's hparams become ours, or are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golden_model import HPARAMS
from t2t_folders import T2T_HPARAMS
from t2t_repro import registry
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.tensor2tensor.hparams import fit, translate
from t2t_repro.training.schedule import Schedule

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_encoder_layers": 0,
    "num_decoder_layers": 0,
    "hidden_size": 32,
    "filter_size": 64,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "norm_before": False,
    "use_target_space_embedding": True,
    "shared_embedding_and_softmax_weights": True,
    "shared_embedding": False,
    "self_attention_type": "dot_product",
    "max_relative_position": 0,
}
"""The hparams that the weights of the golden model determine."""


def translated(sizes: dict[str, Any] | None = None, **changes: Any) -> HParams:
    return translate(T2T_HPARAMS | changes, SIZES | (sizes or {}))


def test_the_golden_models_hparams_are_those_of_transformer_base_v1_in_its_sizes() -> None:
    base = registry.hparams("transformer_base_v1")
    assert translated() == replace(
        base, num_hidden_layers=2, hidden_size=32, filter_size=64, num_heads=4
    )


def test_other_forms_of_the_model() -> None:
    """Sizes are those of the weights. Other values, such as pos without a table, are from the file,
    or defaults.
    """
    changes = {
        "num_heads": 8,
        "norm_epsilon": 1e-5,
        "relu_dropout": 0.3,
        "max_length": 99,
        "label_smoothing": 0,
    }
    assert {name: getattr(translated(**changes), name) for name in changes} == changes
    defaults = replace(translated(), train_steps=HParams.train_steps)
    assert translated(max_length=0, train_steps=0, learning_rate_warmup_steps=0) == defaults
    relative = {"self_attention_type": "dot_product_relative", "max_relative_position": 7}
    hparams = translated(relative, pos=None)
    assert (hparams.pos, hparams.max_relative_position) == ("none", 7)
    assert translated({"pos": "emb", "max_length": 9}, pos="emb", max_length=8).max_length == 9
    assert translated({"num_decoder_layers": 5}, num_hidden_layers=6).decoder_layers == 5
    assert translated(attention_key_channels=None, max_relative_position=20) == translated()


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        # The peak in the learning rates of tensor2tensor's transformer_base_v2, for width 512.
        ({"learning_rate": 0.2, "learning_rate_warmup_steps": 8000}, {8000: 9.88e-4}),
        ({"optimizer": "Adafactor", "learning_rate_schedule": "rsqrt_decay"}, {8000: 9.88e-4}),
        (
            {
                "learning_rate_schedule": "exp_decay",
                "learning_rate_warmup_steps": 10,
                "learning_rate_decay_rate": 0.5,
                "learning_rate_decay_steps": 4,
                "learning_rate_decay_staircase": True,
            },
            {0: 1.0, 13: 1.0, 14: 0.5, 17: 0.5, 18: 0.25},
        ),
    ],
)
def test_the_learning_rate_is_tensor2tensors(
    changes: dict[str, Any], rates: dict[int, float]
) -> None:
    schedule = Schedule(translated({"hidden_size": 512}, hidden_size=512, **changes))
    for step, rate in rates.items():
        np.testing.assert_allclose(schedule(step), rate, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "hidden_size=64, but the checkpoint has hidden_size=32"),
        (
            {"ffn_layer": "local_moe"},
            "ffn_layer='local_moe' cannot be imported, only 'dense_relu_dense'",
        ),
        ({"proximity_bias": True}, "proximity_bias=True cannot be imported, only False"),
        (
            {"pos": "timing_from_features"},
            "pos='timing_from_features' cannot be imported, only 'timing' or 'emb'",
        ),
        ({"num_heads": "four"}, "num_heads='four' must be of type int"),
    ],
)
def test_what_cannot_be_imported_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        translated(**changes)


def test_a_set_gives_what_the_weights_do_not_say() -> None:
    mine = replace(HPARAMS, attention_dropout=0.3, norm_before=True)
    assert fit(mine, SIZES) == replace(mine, norm_before=False)
    relative = {"self_attention_type": "dot_product_relative", "max_relative_position": 7}
    assert fit(mine, SIZES | relative).pos == "none"
    with pytest.raises(UserError, match="filter_size=99, but the checkpoint has filter_size=64"):
        fit(replace(mine, filter_size=99), SIZES)
