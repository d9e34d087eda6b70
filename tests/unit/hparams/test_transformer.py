"""Tests that the hparams sets have the values of the paper's Table 3 and section 5, and of tensor2tensor's sets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.hparam import HParams, check_schedule


def changes(name: str, other: str) -> dict[str, Any]:
    """Returns the hparams of set `name` whose values differ from those of set `other`."""
    values, other_values = (dataclasses.asdict(registry.hparams(set_name)) for set_name in (name, other))
    return {field: value for field, value in values.items() if value != other_values[field]}


def test_base_has_the_papers_values() -> None:
    base = registry.hparams("transformer_base")
    assert (base.num_hidden_layers, base.hidden_size, base.filter_size, base.num_heads) == (6, 512, 2048, 8)
    assert base.key_channels == base.value_channels == 8 * 64
    assert (base.layer_prepostprocess_dropout, base.attention_dropout, base.relu_dropout) == (0.1, 0, 0)
    assert base.label_smoothing == 0.1
    assert (base.optimizer_adam_beta1, base.optimizer_adam_beta2, base.optimizer_adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (base.learning_rate_schedule, base.learning_rate_constant) == ("constant*noam", 1.0)
    assert (base.learning_rate_warmup_steps, base.train_steps, base.batch_size) == (4000, 100_000, 25_000)
    assert (base.norm_before, base.pos, base.use_target_space_embedding) == (False, "timing", False)
    assert base.shared_embedding_and_softmax_weights


def test_big_differs_from_base_as_in_table_3() -> None:
    base = registry.hparams("transformer_base")
    assert changes("transformer_big", "transformer_base") == {
        "hidden_size": 1024,
        "filter_size": 4096,
        "num_heads": 16,
        "layer_prepostprocess_dropout": 0.3,
        "train_steps": 300_000,
        "local_eval_frequency": 600,  # 600 steps of 1.0 s take 10 minutes, like 1,500 of 0.4 s in transformer_base
        "num_last_checkpoints": 20,
    }
    assert (base.local_eval_frequency, base.num_last_checkpoints) == (1500, 5)
    assert changes("transformer_big_enfr", "transformer_big") == {"layer_prepostprocess_dropout": 0.1}
    big = registry.hparams("transformer_big")
    assert big.key_channels // big.num_heads == big.value_channels // big.num_heads == 64


def test_tensor2tensors_versions_of_base_have_its_values() -> None:
    assert changes("transformer_base_v1", "transformer_base") == {
        "use_target_space_embedding": True,
        "train_steps": 250_000,
    }
    assert changes("transformer_base_v2", "transformer_base_v1") == {
        "norm_before": True,
        "attention_dropout": 0.1,
        "relu_dropout": 0.1,
        "learning_rate_constant": 2.0,
        "learning_rate_warmup_steps": 8000,
    }
    assert changes("transformer_base_v3", "transformer_base_v2") == {
        "optimizer_adam_beta2": 0.997,
        "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
    }


def test_the_parsers_differ_from_base_only_as_documented() -> None:
    assert changes("transformer_parsing_4layer", "transformer_base") == {
        "num_hidden_layers": 4,
        "hidden_size": 1024,
        "layer_prepostprocess_dropout": 0.2,
        "attention_dropout": 0.2,
        "max_length": 512,
        "learning_rate_warmup_steps": 16000,
        "train_steps": 20000,
        "local_eval_frequency": 500,
    }
    assert changes("transformer_parsing_4layer_semi", "transformer_parsing_4layer") == {
        "layer_prepostprocess_dropout": 0.1,
        "attention_dropout": 0.1,
        "learning_rate_warmup_steps": 4000,
        "train_steps": 100000,
        "local_eval_frequency": 1500,
    }


@pytest.mark.parametrize(("name", "width"), [("transformer_small", 256), ("transformer_tiny", 128)])
def test_small_sets_are_small(name: str, width: int) -> None:
    hparams = registry.hparams(name)
    assert (hparams.num_hidden_layers, hparams.hidden_size, hparams.filter_size) == (2, width, 4 * width)


@pytest.mark.parametrize("name", ["transformer_small", "transformer_tiny", "transformer_multi30k"])
def test_sets_whose_rate_ends_at_0_decode_with_the_last_checkpoint(name: str) -> None:
    hparams = registry.hparams(name)
    assert hparams.learning_rate_warmup_steps < hparams.train_steps
    assert hparams.learning_rate_schedule.endswith("linear_decay") and hparams.num_last_checkpoints == 1


def test_every_set_has_a_docstring_and_returns_hparams() -> None:
    registry.import_built_in()
    names = registry._hparams._objects
    assert {"transformer_base", "transformer_big", "transformer_small", "transformer_tiny"} <= names.keys()
    for name, make in names.items():
        assert isinstance(registry.hparams(name), HParams)
        check_schedule(registry.hparams(name))
        assert (make.__doc__ or "").strip()
