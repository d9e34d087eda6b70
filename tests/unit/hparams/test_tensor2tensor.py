"""Tests that the sets of tensor2tensor have its learning rates and sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from t2t_repro import registry
from t2t_repro.errors import UserError
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


@pytest.mark.parametrize(
    ("name", "sizes", "dropout"),
    [
        ("transformer_base_single_gpu", (6, 512, 2048, 8), 0.1),
        ("transformer_base_multistep8", (6, 512, 2048, 8), 0.1),
        ("transformer_big_single_gpu", (6, 1024, 4096, 16), 0.1),
        ("transformer_big_v3", (6, 1024, 4096, 16), 0.3),
        ("transformer_tpu", (6, 512, 2048, 8), 0.1),
        ("transformer_big_tpu", (6, 1024, 4096, 16), 0.3),
        ("transformer_relative", (6, 512, 2048, 8), 0.1),
        ("transformer_relative_big", (6, 1024, 4096, 16), 0.3),
    ],
)
def test_models_are_tensor2tensors(name: str, sizes: tuple[int, ...], dropout: float) -> None:
    hparams = registry.hparams(name)
    assert (hparams.num_hidden_layers, hparams.hidden_size, hparams.filter_size, hparams.num_heads) == sizes
    assert hparams.layer_prepostprocess_dropout == dropout
    assert (hparams.attention_dropout, hparams.relu_dropout, hparams.label_smoothing) == (0.1, 0.1, 0.1)
    assert (hparams.norm_before, hparams.use_target_space_embedding, hparams.optimizer_adam_beta2) == (
        True,
        True,
        0.997,
    )
    relative = ("dot_product_relative", 20, "none") if "relative" in name else ("dot_product", 0, "timing")
    assert (hparams.self_attention_type, hparams.max_relative_position, hparams.pos) == relative


@pytest.mark.parametrize(
    ("name", "positions"),
    [("transformer_base_single_gpu", 1024), ("transformer_big_single_gpu", 2048), ("transformer_big_v3", 8 * 2048),
     ("transformer_base_multistep8", 8 * 4096)],
)  # fmt: skip
def test_a_step_has_about_three_quarters_of_tensor2tensors_positions(name: str, positions: int) -> None:
    assert registry.hparams(name).batch_size / positions == pytest.approx(25000 / (8 * 4096), rel=0.01)


def test_the_module_has_tensor2tensors_names_and_meanings() -> None:
    assert tensor2tensor.transformer_base() == registry.hparams("transformer_base_v3")
    assert tensor2tensor.transformer_big() == registry.hparams("transformer_big_v3")
    for name in ("transformer_tiny", "transformer_small"):
        hparams, ours = getattr(tensor2tensor, name)(), registry.hparams(name)
        assert (hparams.norm_before, hparams.train_steps, hparams.learning_rate_constant) == (True, 250_000, 2.0)
        for size in ("num_hidden_layers", "hidden_size", "filter_size", "num_heads"):
            assert getattr(hparams, size) == getattr(ours, size)
    with pytest.raises(UserError, match=r"transformer\.transformer_clean does not exist here: change a copy of"):
        _ = tensor2tensor.transformer_clean
    with pytest.raises(UserError, match=r"transformer\.Transformer does not exist here, .* for the model, write from"):
        _ = tensor2tensor.Transformer
