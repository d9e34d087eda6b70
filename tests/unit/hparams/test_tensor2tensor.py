"""Tests that the sets of tensor2tensor have its learning rates and sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from t2t_repro import registry
from t2t_repro.hparams import tensor2tensor
from t2t_repro.training.schedule import Schedule

STEPS = (0, 1, 2, 999, 7999, 8000, 9999, 10_000, 15_999, 16_000, 16_001, 31_250, 100_000, 250_000)


def v3(step: float, hidden_size: int, warmup: int) -> float:
    """Returns the learning rate of tensor2tensor's transformer_base at a step, for a width and a number of steps."""
    return 2.0 * hidden_size**-0.5 * min(step / warmup, 1.0) * max(step, warmup) ** -0.5


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("transformer_base_single_gpu", lambda step: 0.1 * min(step / 16000, 1.0) * max(step, 16000) ** -0.5),
        ("transformer_big_single_gpu", lambda step: v3(step, 1024, 16000)),
        ("transformer_big_v3", lambda step: v3(step, 1024, 8000)),
        ("transformer_base_multistep8", lambda step: v3(step, 512, 8000)),
        ("transformer_tpu", lambda step: max(step, 10_000) ** -0.5),
        ("transformer_big_tpu", lambda step: max(step, 10_000) ** -0.5),
        ("transformer_relative", lambda step: v3(step, 512, 8000)),
        ("transformer_relative_big", lambda step: v3(step, 1024, 8000)),
    ],
)
def test_learning_rates_are_tensor2tensors(name: str, rate: Callable[[int], float]) -> None:
    schedule = Schedule(registry.hparams(name))
    for step in STEPS:
        assert float(schedule(step)) == pytest.approx(rate(step), rel=1e-6), step


def test_the_module_has_tensor2tensors_names_and_meanings() -> None:
    assert tensor2tensor.transformer_base() == registry.hparams("transformer_base_v3")
    assert tensor2tensor.transformer_big() == registry.hparams("transformer_big_v3")
    for name in ("transformer_tiny", "transformer_small"):
        hparams, ours = getattr(tensor2tensor, name)(), registry.hparams(name)
        assert (hparams.norm_before, hparams.train_steps, hparams.learning_rate_constant) == (True, 250_000, 2.0)
        for size in ("num_hidden_layers", "hidden_size", "filter_size", "num_heads"):
            assert getattr(hparams, size) == getattr(ours, size)
