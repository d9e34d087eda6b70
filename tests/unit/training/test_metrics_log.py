"""Tests that metrics.jsonl is read back as written, and that a resumed run deletes the lines of later steps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disks import largest_file
from t2t_repro.training.metrics_log import FILE, MetricsLog, read_metrics
from user_errors import user_error

LINES: list[dict[str, Any]] = [
    {"step": 10, "seconds": 1.5, "train_loss": 4.0, "learning_rate": 0.001, "hardware": "8 kg of coal", "gpu_count": 1},
    {"step": 10, "dev_loss": 3.5, "dev_perplexity": 33.115},
    {"step": 20, "seconds": 2.5, "train_loss": 3.0, "learning_rate": 0.002, "hardware": "8 kg of coal", "gpu_count": 1},
    {"step": 20, "dev_loss": 2.5, "dev_perplexity": 12.182},
]


def add(log: MetricsLog, lines: list[dict[str, Any]]) -> None:
    for line in lines:
        log.add(**line)


def test_lines_are_json_objects_and_are_read_back(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    log = MetricsLog(tmp_path, 0)
    assert (log.seconds_before, log.dev_losses) == (0.0, {})
    for count, line in enumerate(LINES, 1):
        log.add(**line)
        assert read_metrics(tmp_path) == LINES[:count]
    text = (tmp_path / FILE).read_text("utf-8")
    assert [json.loads(line) for line in text.split("\n")[:-1]] == LINES
    assert text.endswith("\n")
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize(
    ("start", "kept", "seconds", "losses"),
    [(0, 0, 0, {}), (10, 2, 1.5, {10: 3.5}), (15, 2, 1.5, {10: 3.5}), (20, 4, 2.5, {10: 3.5, 20: 2.5})],
)
def test_a_resumed_run_keeps_the_lines_up_to_its_checkpoint(
    start: int, kept: int, seconds: float, losses: dict[int, float], tmp_path: Path
) -> None:
    add(MetricsLog(tmp_path, 0), LINES)
    log = MetricsLog(tmp_path, start)
    assert (log.seconds_before, log.dev_losses) == (seconds, losses)
    assert read_metrics(tmp_path) == LINES[:kept]
    log.add(30, dev_loss=1.0)
    assert read_metrics(tmp_path) == [*LINES[:kept], {"step": 30, "dev_loss": 1.0}]


def test_a_resumed_run_sees_the_same_losses_as_an_unbroken_run(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    log.add(10, dev_loss=1 / 3, learning_rate=float(np.float32(0.1)))
    assert json.loads((tmp_path / FILE).read_text()) == {"step": 10, "dev_loss": 0.33333333, "learning_rate": 0.1}
    assert MetricsLog(tmp_path, 10).dev_losses == log.dev_losses == {10: 0.33333333}


@pytest.mark.parametrize(
    "torn",
    [b'{"step": 30, "secon', b"30", b"null", b'{"dev_loss": 1.0}', b"\n\n", b'{"step": 20, "\xff\xfe\n{"step": "20"}'],
)
def test_a_damaged_line_is_skipped_and_then_removed(torn: bytes, tmp_path: Path) -> None:
    add(MetricsLog(tmp_path, 0), LINES)
    with open(tmp_path / FILE, "ab") as file:
        file.write(torn)
    assert read_metrics(tmp_path) == LINES
    MetricsLog(tmp_path, 30).add(40, dev_loss=1.0)
    steps = [json.loads(line)["step"] for line in (tmp_path / FILE).read_text("utf-8").split("\n")[:-1]]
    assert steps == [10, 10, 20, 20, 40]


def test_a_full_disk_is_reported_and_deletes_nothing(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    add(log, LINES)
    with largest_file(50):
        assert f"{tmp_path / FILE}: cannot be written" in user_error(log.add, 30, dev_loss=1.0)
        assert f"{FILE}: cannot be written" in user_error(MetricsLog, tmp_path, 20)
    assert read_metrics(tmp_path) == LINES


def test_only_losses_of_the_same_batches_are_compared(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    assert log.evaluations_since_lowest() == 0
    log.add(10, dev_loss=1.0, eval_steps=1)
    log.add(20, dev_loss=1.5, eval_steps=1)
    for current in (log, MetricsLog(tmp_path, 20)):
        assert current.evaluations_since_lowest() == 1
        assert [current.is_lowest(3.0, batches) for batches in (0, 1, 2)] == [True, False, True]
        assert current.is_lowest(0.9, 1) and not current.is_lowest(1.0, 1) and not current.is_lowest(1.0 - 1e-12, 1)
    for step, loss, count in ((30, 3.0, 0), (40, 3.5, 1), (50, 3.2, 2), (60, 2.9, 0)):
        log.add(step, dev_loss=loss)
        assert log.evaluations_since_lowest() == MetricsLog(tmp_path, step).evaluations_since_lowest() == count
    assert log.is_lowest(9.0, 1)  # the evaluation of step 30 has replaced the best checkpoint of steps 10 and 20


def test_a_loss_that_is_not_a_number_is_never_the_lowest(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    assert not log.is_lowest(math.nan, 0)
    log.add(10, dev_loss=math.nan)
    for current in (log, MetricsLog(tmp_path, 10)):
        assert current.is_lowest(3.0, 0) and 10 in current.dev_losses
    log.add(20, dev_loss=3.0)
    log.add(30, dev_loss=math.nan)
    assert log.evaluations_since_lowest() == MetricsLog(tmp_path, 30).evaluations_since_lowest() == 1
