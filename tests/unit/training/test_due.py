"""Tests which tasks (to log, save, evaluate or stop) are due after a step."""

from __future__ import annotations

import pytest

from t2t_repro.training.config import RunConfig
from t2t_repro.training.due import Due, due_after

LAST = 100
NOTHING = Due()
LOG = Due(logs=True)
SAVE = Due(saves=True)
EVALUATE = Due(logs=True, evaluates=True)
ALL = Due(logs=True, saves=True, evaluates=True)
STOP = Due(saves=True, stops=True)


@pytest.mark.parametrize(
    ("step", "save_secs", "seconds", "stop_requested", "expected"),
    [
        # The run evaluates every 10 steps, and saves a checkpoint before each evaluation.
        (7, 0, 9.0, False, NOTHING),
        (8, 0, 9.0, False, LOG),
        (10, 0, 9.0, False, ALL),
        (LAST, 0, 9.0, False, ALL),
        (7, 0, 9.0, True, Due(saves=True, saves_by_request=True, stops=True)),
        (8, 0, 9.0, True, Due(logs=True, saves=True, saves_by_request=True, stops=True)),
        (10, 0, 9.0, True, Due(logs=True, saves=True, stops=True)),
        (LAST, 0, 9.0, True, Due(logs=True, saves=True, stops=True)),
        # The run evaluates every 10 steps, and saves a checkpoint every 600 seconds and after the last step.
        (7, 600, 599.0, False, NOTHING),
        (7, 600, 600.0, False, SAVE),
        (10, 600, 599.0, False, EVALUATE),
        (10, 600, 600.0, False, ALL),
        (LAST, 600, 9.0, False, ALL),
        (7, 600, 9.0, True, STOP),
        (7, 600, 600.0, True, STOP),
        (10, 600, 9.0, True, Due(logs=True, saves=True, stops=True)),
    ],
)
def test_due_after_a_step(step: int, save_secs: int, seconds: float, stop_requested: bool, expected: Due) -> None:
    config = RunConfig(local_eval_frequency=10, log_step_count_steps=4, save_checkpoints_secs=save_secs)
    due = due_after(step, LAST, config, seconds, stop_requested)
    assert due == expected


def test_the_last_step_is_evaluated_whatever_the_frequency() -> None:
    assert due_after(101, 101, RunConfig(local_eval_frequency=10), 0.0, False) == ALL
