"""Tests the lines and bars that show progress."""

from __future__ import annotations

import sys

import pytest

from clocks import Clock
from t2t_repro.console import progress
from t2t_repro.console.progress import Progress
from terminals import screen


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("total", "done", "steps", "lines"),
    [
        # 600 and 1,200 lines in 5 and 20 seconds. The 500 lines of an earlier run and the first 300 lines, before which
        # the program started, do not count for the speed.
        (
            2000,
            500,
            [(110, 300, ""), (114.9, 300, ""), (115, 300, ""), (129.9, 300, ""), (130, 300, "")],
            "task: 1,400 of 2,000 lines, 120.0 lines/s, 0:00:05 left\n"
            "task: 2,000 of 2,000 lines, 60.0 lines/s, 0:00:00 left\n",
        ),
        # A slow start does not make the rest seem slow: 7,385 lines are left, one a second.
        (
            7410,
            0,
            [(120, 5, ""), (140, 20, "")],
            "task: 5 of 7,410 lines\ntask: 25 of 7,410 lines, 1.0 lines/s, 2:03:05 left\n",
        ),
        # A note replaces the speed, and the total may be unknown.
        (None, 0, [(120, 5, "loss 2.5"), (140, 5, "")], "task: 5 lines, loss 2.5\ntask: 10 lines, loss 2.5\n"),
    ],
)
def test_a_log_has_a_line_every_few_seconds(
    total: int | None,
    done: int,
    steps: list[tuple[float, int, str]],
    lines: str,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    meter = Progress("task", total, "lines", done)
    for seconds, count, note in steps:
        clock.now = seconds
        meter.advance(count, note)
    meter.close()
    assert capsys.readouterr().err == lines


def test_items_pass_through_and_count_by_their_size(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    for item in progress.progress(iter(["abc", "de"]), "reading", 10, "letters", len):
        clock.now += 10
        assert item in ("abc", "de")
    assert capsys.readouterr().err == "reading: 5 of 10 letters, 0.2 letters/s, 0:00:25 left\n"


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    with screen() as (stream, shown):
        monkeypatch.setattr(sys, "stderr", stream)
        meter = Progress("decoding", 4, "lines")
        meter.advance(4)
        progress.say("a message")
        meter.close()
        text = shown()
    assert "decoding: 100%" in text and "4/4" in text and "a message" in text
