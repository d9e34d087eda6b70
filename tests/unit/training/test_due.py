"""Tests of the tasks that are due after a step."""

from dataclasses import replace

import pytest

from t2t_repro.hparam import HParams
from t2t_repro.training.config import RunConfig
from t2t_repro.training.due import Due, due_after

HPARAMS = HParams(train_steps=100, local_eval_frequency=10)
ALL = Due(logs=True, saves=True, evaluates=True)


@pytest.mark.parametrize(
    ("step", "save_secs", "seconds", "stops", "expected"),
    [
        # The run evaluates every 10 steps, and saves a checkpoint before each evaluation.
        (7, 0, 9.0, False, Due()),
        (8, 0, 9.0, False, Due(logs=True)),
        (10, 0, 9.0, False, ALL),
        (100, 0, 9.0, False, ALL),
        (8, 0, 9.0, True, Due(logs=True, saves=True, saves_by_request=True, stops=True)),
        (10, 0, 9.0, True, Due(logs=True, saves=True, stops=True)),
        # The run evaluates every 10 steps, and saves a checkpoint every 600 seconds and after the
        # last step.
        (7, 600, 599.0, False, Due()),
        (7, 600, 600.0, False, Due(saves=True)),
        (10, 600, 599.0, False, Due(logs=True, evaluates=True)),
        (100, 600, 9.0, False, ALL),
        (7, 600, 9.0, True, Due(saves=True, stops=True)),
    ],
)
def test_due_after_a_step(
    step: int, save_secs: int, seconds: float, stops: bool, expected: Due
) -> None:
    config = RunConfig(log_step_count_steps=4, save_checkpoints_secs=save_secs)
    assert due_after(step, HPARAMS, config, seconds, stops) == expected
    longer = replace(HPARAMS, train_steps=101)
    assert due_after(101, longer, config, 0.0, False) == ALL
