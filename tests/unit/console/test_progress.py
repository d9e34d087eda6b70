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


def test_a_log_has_a_line_every_few_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    # 600 and 1,200 lines in 5 and 20 seconds. The 500 lines of an earlier run and the first 300 lines, before which the
    # program started, do not count for the speed.
    meter = Progress("task", 2000, "lines", 500)
    for clock.now in (110, 114.9, 115, 129.9, 130):
        meter.advance(300)
    assert capsys.readouterr().err == (
        "task: 1,400 of 2,000 lines, 120.0 lines/s, 0:00:05 left\n"
        "task: 2,000 of 2,000 lines, 60.0 lines/s, 0:00:00 left\n"
    )
    # A note replaces the speed and stays, and the total may be unknown.
    meter = Progress("task", None, "lines")
    for clock.now, note in ((150, "loss 2.5"), (170, "")):
        meter.advance(5, note)
    assert capsys.readouterr().err == "task: 5 lines, loss 2.5\ntask: 10 lines, loss 2.5\n"


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
