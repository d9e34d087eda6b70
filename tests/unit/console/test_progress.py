"""Tests the lines and bars that show progress."""

import re
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


def test_a_log_has_a_line_every_few_seconds(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    # 600 and 1,200 lines in 5 and 20 seconds. The 500 lines of an earlier run and the first 300
    # lines, before which the program started, do not count for the speed.
    meter = Progress("task", 2000, "lines", 500)
    for clock.now in (110, 114.9, 115, 129.9, 130):
        meter.advance(300)
    assert capsys.readouterr().err == (
        "task: 1,400/2,000 lines, 120.0 lines/s, 00:05 left\ntask: 2,000/2,000 lines, 60.0 "
        "lines/s\n"
    )
    # A note replaces the speed and stays, and the total may be unknown.
    meter = Progress("task", None, "lines")
    for clock.now, note in ((150, "loss 2.5"), (170, "")):
        meter.advance(5, note)
    assert capsys.readouterr().err == "task: 5 lines, loss 2.5\ntask: 10 lines, loss 2.5\n"


def test_items_pass_through_and_count_by_their_size(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for item in progress.progress(iter(["abc", "de"]), "reading", 10, "letters", len):
        clock.now += 10
        assert item in ("abc", "de")
    assert capsys.readouterr().err == "reading: 5/10 letters, 0.2 letters/s, 00:25 left\n"


def test_a_narrow_terminal_shows_the_whole_line_of_a_long_run(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with screen(columns=80) as (stream, shown):
        monkeypatch.setattr(sys, "stderr", stream)
        meter = Progress("training", 300_000, "steps", done=100_000)
        for _ in range(2):
            clock.now += 10
            meter.advance(6, "loss 10.359, 1,123,456 tokens/s")
        progress.say("--flag=value " * 10)
        meter.close()
        lines = re.split("[\r\n]+", shown())
    assert "training: 100,012/300,000 steps, loss 10.359, 1,123,456 tokens/s, 92:35:13 left" in map(
        str.rstrip, lines
    )
    assert any(line.startswith("training: 100,000/300,000 steps |█") for line in lines)
    assert all(len(line) <= 80 for line in lines) and " ".join(["--flag=value"] * 6) in lines
