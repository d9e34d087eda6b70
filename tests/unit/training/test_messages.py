"""Tests of the warnings about a run's settings."""

from typing import Any

import pytest

from t2t_repro import devices
from t2t_repro.hparam import HParams
from t2t_repro.training.config import RunConfig
from t2t_repro.training.messages import warnings


@pytest.mark.parametrize(
    ("change", "config", "words"),
    [
        ({"train_steps": 4001}, RunConfig(keep_checkpoint_max=5), ""),
        ({"train_steps": 4000, "learning_rate_schedule": "constant"}, RunConfig(), ""),
        (
            {"train_steps": 4000},
            RunConfig(),
            "the learning rate only rises, because train_steps=4000 is not more",
        ),
        (
            {},
            RunConfig(keep_checkpoint_max=4),
            "--keep_checkpoint_max=4 keeps fewer checkpoints than the 5 that",
        ),
        (
            {},
            RunConfig(precision="mixed_bfloat16"),
            "has no bfloat16 instructions, so --precision=float32 trains faster",
        ),
        (
            {},
            RunConfig(precision="tf32"),
            "has no tf32 instructions, so --precision=float32 gives the same",
        ),
    ],
)
def test_settings_that_mislead_are_reported(
    change: dict[str, Any], config: RunConfig, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "multiplies", lambda kind: False)
    found = list(warnings(HParams(**change), config))
    assert len(found) == bool(words) and all(words in warning for warning in found)
