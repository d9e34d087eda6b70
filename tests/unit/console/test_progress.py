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
    meter = Progress("decoding", 2000, "lines", done=500)
    for seconds in (110, 114.9, 115, 129.9, 130):
        clock.now = seconds
        meter.advance(300)
    meter.close()
    # 600 and 1,200 lines in 5 and 20 seconds. The 500 lines of an earlier run and the first 300 lines, before which the
    # program started, do not count for the speed.
    assert capsys.readouterr().err == (
        "decoding: 1,400 of 2,000 lines, 120.0 lines/s, 0:00:05 left\n"
        "decoding: 2,000 of 2,000 lines, 60.0 lines/s, 0:00:00 left\n"
    )


def test_a_slow_start_does_not_make_the_rest_seem_slow(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    meter = Progress("training", 100, "steps")
    clock.now += 60
    meter.advance()
    clock.now += 20
    meter.advance(10)
    assert capsys.readouterr().err == (
        "training: 1 of 100 steps\ntraining: 11 of 100 steps, 0.5 steps/s, 0:02:58 left\n"
    )


def test_a_note_replaces_the_speed_and_a_total_may_be_unknown(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    meter = Progress("training", None, "steps")
    clock.now += 20
    meter.advance(5, "loss 2.5")
    clock.now += 20
    meter.advance(5)
    assert capsys.readouterr().err == "training: 5 steps, loss 2.5\ntraining: 10 steps, loss 2.5\n"


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
