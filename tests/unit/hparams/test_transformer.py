"""Tests that the hparams sets have the values of the paper's Table 3 and section 5, and of tensor2tensor's sets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import hparams_fingerprint
from t2t_repro.hparam import check_schedule

RECORDED = Path(__file__).parents[2] / "golden" / "data" / "2e29fd7" / "hparams_fingerprints.json"


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


def test_every_set_has_the_values_that_it_had_in_2e29fd7() -> None:
    # The fingerprints are of the values that differ from transformer_base's. A training run resumes only with the same.
    registry.import_built_in()
    sets = {name: registry.hparams(name) for name in registry._hparams.names()}
    assert {name: hparams_fingerprint(hparams) for name, hparams in sets.items()} == json.loads(RECORDED.read_text())
    for hparams in sets.values():
        check_schedule(hparams)
