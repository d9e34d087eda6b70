"""Tests of tokens per second and padding, with a clock that the test sets."""

from __future__ import annotations

import numpy as np
import pytest

from clocks import Clock
from t2t_repro.data.pipeline import Batch
from t2t_repro.training import speed as speed_module
from t2t_repro.training.speed import Speed


def batch(*shapes: tuple[int, int, int], filled: tuple[int, int]) -> Batch:
    """Returns a batch of a training step.

    Args:
        shapes: (examples, source length, target length) of each micro-batch.
        filled: number of source tokens and number of target tokens in the batch.
    """
    source, target = filled
    positions = sum(examples * (source_length + target_length) for examples, source_length, target_length in shapes)
    return Batch(0, [], np.arange(3), source, target, positions)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(speed_module, "time", clock)
    return clock


def test_the_first_step_and_pauses_do_not_count(clock: Clock) -> None:
    speed = Speed()
    clock.now += 7  # the first step takes 7 seconds, because TensorFlow builds the graph
    speed.count(batch((10, 5, 6), filled=(40, 50)))
    assert speed.figures() == {"padding": round(1 - 90 / 110, 5)} and str(speed) == ""
    for seconds in (2, 3):
        clock.now += seconds
        speed.count(batch((10, 5, 6), (2, 3, 4), filled=(50, 60)))
    with speed.paused():
        clock.now += 20  # the evaluation takes 20 seconds
    assert speed.figures() == {
        "source_tokens_per_second": 20.0,
        "target_tokens_per_second": 24.0,
        # The steps have 90, 110 and 110 tokens, together 310, in 110, 124 and 124 positions, together 358.
        "padding": round(1 - 310 / 358, 5),
    }
    assert str(speed) == "24 target tokens/s"


def test_a_restart_starts_a_new_measurement(clock: Clock) -> None:
    speed = Speed()
    speed.count(batch((10, 5, 6), filled=(1, 1)))
    clock.now += 50
    speed.restart()
    clock.now += 4
    speed.count(batch((10, 5, 5), filled=(30, 50)))
    expected = {"source_tokens_per_second": 7.5, "target_tokens_per_second": 12.5, "padding": 0.2}
    assert speed.figures() == expected
