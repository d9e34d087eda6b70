"""Tests that learning rates agree with the paper's equation 3 and with factors by hand."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from t2t_repro import registry
from t2t_repro.errors import UserError
from t2t_repro.hparam import SCHEDULE_FACTORS, HParams, check_schedule
from t2t_repro.training.schedule import Schedule


def rate(step: int, schedule: str = "constant*noam", **changes: Any) -> float:
    """Returns the learning rate of the next step after `step` finished steps."""
    values = {
        "hidden_size": 64,
        "learning_rate_warmup_steps": 100,
        "train_steps": 500,
        "learning_rate_decay_rate": 0.25,
        "learning_rate_decay_steps": 120,
        **changes,
    }
    return float(Schedule(HParams(learning_rate_schedule=schedule, **values))(step))


@pytest.mark.parametrize(
    ("factor", "step", "expected"),
    [
        ("constant", 7, 3.0),
        ("linear_warmup", 25, 0.25),
        ("linear_warmup", 499, 1.0),
        ("rsqrt_decay", 100, 0.1),
        ("rsqrt_decay", 400, 0.05),
        ("rsqrt_hidden_size", 9, 0.125),
        ("linear_decay", 100, 1.0),
        ("linear_decay", 300, 0.5),
        ("constant*constant*rsqrt_decay*linear_decay", 400, 9 * 0.05 * 0.25),
        ("linear_decay", 500, 0.0),
        ("linear_decay", 600, 0.0),
        ("exp_decay", 100, 1.0),
        ("exp_decay", 160, 0.25**0.5),
    ],
)
def test_a_factor_by_hand(factor: str, step: int, expected: float) -> None:
    assert rate(step, factor, learning_rate_constant=3.0) == pytest.approx(
        expected, rel=1e-5, abs=1e-9
    )


def test_a_staircase_halves_the_rate_after_each_of_its_steps() -> None:
    decay = {
        "learning_rate_decay_rate": 0.5,
        "learning_rate_decay_steps": 200,
        "learning_rate_decay_staircase": True,
    }
    rates = [rate(step, "exp_decay", **decay) for step in (0, 100, 299, 300, 499, 500)]
    assert rates == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]


def test_the_second_phase_of_gnmt_halves_its_rate_four_times() -> None:
    schedule = Schedule(registry.hparams("gnmt_sgd"))
    rates = [
        float(schedule(step))
        for step in (0, 181_999, 182_000, 213_999, 214_000, 246_000, 278_000, 309_999)
    ]
    assert rates == [0.5, 0.5, 0.25, 0.25, 0.125, 0.0625, 0.03125, 0.03125]


def test_a_run_shorter_than_its_warmup_has_a_finite_rate() -> None:
    assert rate(99, "linear_decay", train_steps=50) == 1.0
    assert np.isfinite(rate(200, "linear_decay", train_steps=50))


@pytest.mark.parametrize("factor", SCHEDULE_FACTORS)
@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate_constant": 3.0},
        {"learning_rate_warmup_steps": 50},
        {"learning_rate_decay_rate": 0.5},
        {"learning_rate_decay_steps": 7},
        {"learning_rate_decay_staircase": True},
    ],
)
def test_the_check_of_a_schedule_refuses_exactly_the_hparams_that_change_no_rate(
    factor: str, change: dict[str, Any]
) -> None:
    default = {"learning_rate_constant": 1.0, "learning_rate_warmup_steps": 4000}
    changes_a_rate = any(
        rate(step, factor, **{**default, **change}) != rate(step, factor, **default)
        for step in (0, 99, 499, 9001)
    )
    try:
        check_schedule(HParams(learning_rate_schedule=factor, **change))
        is_accepted = True
    except UserError:
        is_accepted = False
    assert is_accepted == changes_a_rate


@pytest.mark.parametrize(
    ("optimizer", "change", "is_accepted"),
    [
        (
            "momentum",
            {"optimizer_momentum_nesterov": True, "optimizer_momentum_momentum": 0.99},
            True,
        ),
        (
            "adam",
            {"optimizer_adam_beta2": 0.9, "optimizer_adafactor_multiply_by_parameter_scale": True},
            True,
        ),
        ("sgd", {"clip_grad_norm": 5.0, "weight_decay": 0.1}, True),
        ("sgd", {"optimizer_momentum_momentum": 0.5}, False),
        ("adam", {"optimizer_momentum_nesterov": True}, False),
        ("momentum", {"optimizer_adam_epsilon": 1e-8}, False),
    ],
)
def test_hparams_of_another_optimizer_are_refused(
    optimizer: str, change: dict[str, Any], is_accepted: bool
) -> None:
    with nullcontext() if is_accepted else pytest.raises(UserError):
        check_schedule(HParams(optimizer=optimizer, **change))
