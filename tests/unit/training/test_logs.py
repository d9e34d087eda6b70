"""Tests that both logs have all values, drop those after the last checkpoint, and measure the speed
of training.
"""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginEventAccumulator,
)
from tensorboard.util.tensor_util import make_ndarray

from clocks import Clock
from disks import largest_file
from t2t_repro.data.pipeline import Batch
from t2t_repro.metrics.score import Score
from t2t_repro.training import logs
from t2t_repro.training.evaluation import Decoded, Evaluation
from t2t_repro.training.logs import TENSORBOARD, Logs, Speed, TensorBoardLog
from t2t_repro.training.metrics_log import FILE, Evaluations, MetricsLog, read_metrics
from user_errors import user_error

LINES: list[dict[str, Any]] = [
    {
        "step": 10,
        "seconds": 1.5,
        "train_loss": 4.0,
        "learning_rate": 0.001,
        "hardware": "8 kg of coal",
        "gpu_count": 1,
    },
    {"step": 10, "dev_loss": 3.5, "dev_perplexity": 33.115},
    {
        "step": 20,
        "seconds": 2.5,
        "train_loss": 3.0,
        "learning_rate": 0.002,
        "hardware": "8 kg of coal",
        "gpu_count": 1,
    },
    {"step": 20, "dev_loss": 2.5, "dev_perplexity": 12.182},
]


@pytest.fixture
def log(tmp_path: Path) -> MetricsLog:
    """Returns a log with `LINES`."""
    log = MetricsLog(tmp_path, 0)
    for line in LINES:
        log.add(**line)
    return log


@pytest.mark.parametrize("source_use", [None, 0.0])
def test_source_use_is_logged_if_it_was_measured(source_use: float | None, tmp_path: Path) -> None:
    Logs(tmp_path, 0, 1).evaluation(7, Evaluation(0.0, 0.5, 0, source_use))
    expected = {"step": 7, "dev_loss": 0.0, "dev_perplexity": 1.0, "dev_accuracy": 0.5}
    assert read_metrics(tmp_path) == [
        expected | ({} if source_use is None else {"dev_source_use": source_use})
    ]


@pytest.mark.parametrize(
    ("start", "kept", "seconds"), [(0, 0, 0), (10, 2, 1.5), (15, 2, 1.5), (20, 4, 2.5)]
)
@pytest.mark.usefixtures("log")
def test_a_resumed_run_keeps_the_lines_up_to_its_checkpoint(
    start: int, kept: int, seconds: float, tmp_path: Path
) -> None:
    assert read_metrics(tmp_path) == LINES
    log = MetricsLog(tmp_path, start)
    assert log.seconds_before == seconds
    assert [log.has_evaluation(step) for step in (10, 20)] == [kept >= 2, kept == 4]
    log.add(30, dev_loss=1 / 3, learning_rate=float(np.float32(0.1)))
    expected = [*LINES[:kept], {"step": 30, "dev_loss": 0.33333333, "learning_rate": 0.1}]
    assert [
        json.loads(line) for line in (tmp_path / FILE).read_text("utf-8").splitlines()
    ] == expected


def test_each_line_is_passed_on_once_it_is_in_the_file(tmp_path: Path) -> None:
    received: list[dict[str, Any]] = []

    def receive(line: dict[str, Any]) -> None:
        received.append(line)
        assert read_metrics(tmp_path) == received

    logs = Logs(tmp_path, 0, 1, receive)
    logs.metrics.add(1, train_loss=1 / 3)
    logs.evaluation(1, Evaluation(0.0, 0.5, 0, 1 / 3))
    assert [line["step"] for line in received] == [1, 1]


@pytest.mark.parametrize(
    "torn", [b'{"step": 30, "secon', b'{"step": 20, "\xff\xfe\n{"step": "20"}\n30']
)
@pytest.mark.usefixtures("log")
def test_a_damaged_line_is_skipped_and_then_removed(torn: bytes, tmp_path: Path) -> None:
    with open(tmp_path / FILE, "ab") as file:
        file.write(torn)
    assert read_metrics(tmp_path) == LINES
    MetricsLog(tmp_path, 30).add(40, dev_loss=1.0)
    steps = [
        json.loads(line)["step"] for line in (tmp_path / FILE).read_text("utf-8").split("\n")[:-1]
    ]
    assert steps == [10, 10, 20, 20, 40]


def test_a_full_disk_is_reported_and_deletes_nothing(log: MetricsLog, tmp_path: Path) -> None:
    board = TensorBoardLog(tmp_path, 0)
    board.scalars(10, {"train/loss": 4.0})
    with largest_file(50):
        for call in (log.add, board.text):
            assert "cannot be written (File too large); free space" in user_error(
                call, 30, tag="sample", markdown="a text"
            )
        assert f"{FILE}: cannot be written" in user_error(MetricsLog, tmp_path, 20)
    assert read_metrics(tmp_path) == LINES and shown(tmp_path) == [(10, 4.0)]


@pytest.mark.parametrize(
    ("best_by", "sign", "kind"), [("loss", 1, "eval_steps"), ("chrf", -1, "signature")]
)
def test_only_evaluations_of_the_same_kind_are_compared(
    tmp_path: Path, best_by: str, sign: int, kind: str
) -> None:
    def line(value: float, of: object) -> dict[str, Any]:
        return {"dev_loss": 5.0, f"dev_{best_by}": sign * value} | ({kind: of} if of else {})

    log = MetricsLog(tmp_path, 0, best_by=best_by)
    assert log.evaluations_since_best() == 0
    log.add(10, **line(1.0, 1))
    log.add(20, **line(1.5, 1))
    for current in (log, MetricsLog(tmp_path, 20, best_by=best_by)):
        assert current.evaluations_since_best() == 1
        assert [current.is_best(line(3.0, of)) for of in (0, 1, 2)] == [True, False, True]
        assert current.is_best(line(0.9, 1))
        assert not any(current.is_best(line(value, 1)) for value in (1.0, 1.0 - 1e-12))
    for step, value, count in (
        (30, 3.0, 0),
        (40, 3.5, 1),
        (50, 3.2, 2),
        (60, 2.9, 0),
        (70, math.nan, 1),
    ):
        assert not log.is_best(line(math.nan, 0))
        log.add(step, **line(value, 0))
        again = MetricsLog(tmp_path, step, best_by=best_by)
        assert log.evaluations_since_best() == again.evaluations_since_best() == count
    last = json.loads((tmp_path / FILE).read_text().splitlines()[-1], parse_constant=str)
    assert last[f"dev_{best_by}"] is None
    assert log.is_best(
        line(9.0, 1)
    )  # the evaluation of step 30 has replaced the best checkpoint of steps 10 and 20


def test_the_best_steps_are_those_with_the_best_values_the_earlier_first(tmp_path: Path) -> None:
    scores = {0: 9.0, 10: 3.0, 20: math.nan, 30: 4.0, 40: 3.0, 50: 4.0, 60: 1.0}
    log = MetricsLog(tmp_path, 0, best_by="bleu")
    assert log.best_steps(3) == []
    for step, score in scores.items():
        log.add(step, dev_loss=5.0 - step, dev_bleu=score, best_by="bleu")
        again = MetricsLog(tmp_path, step, best_by="bleu")  # a process that resumes after this step
        finite = [each for each in scores if 0 < each <= step and not math.isnan(scores[each])]
        expected = sorted(
            finite, key=scores.__getitem__, reverse=True
        )  # sorts equal values by their order in the log
        assert (
            log.best_steps(3)
            == again.best_steps(3)
            == Evaluations(read_metrics(tmp_path)).best_steps(3)
        )
        assert log.best_steps(3) == expected[:3] and log.best_steps(9) == expected
    resumed = MetricsLog(tmp_path, 60)  # by loss
    assert resumed.is_best({"dev_loss": 99.0})
    resumed.add(70, dev_loss=99.0, dev_bleu=99.0)
    assert resumed.best_steps(9) == Evaluations(read_metrics(tmp_path)).best_steps(9) == [70]


def test_scores_that_are_not_finite_do_not_end_a_comparison(tmp_path: Path) -> None:
    logs = Logs(tmp_path, 0, 1, best_by="f1")
    for step, score in ((1, 50.0), (2, math.nan), (3, 40.0)):
        evaluation = Evaluation(1.0, 0.5, decoded=Decoded([Score("F1", score, "evalb")], 7, []))
        assert logs.is_best(evaluation) == (step == 1)
        logs.evaluation(step, evaluation)
    assert logs.metrics.evaluations_since_best() == 2 and logs.metrics.best_steps(3) == [1, 3]


def read(
    folder: Path, reader: type = PluginEventAccumulator
) -> EventAccumulator | PluginEventAccumulator:
    """Returns a TensorBoard reader that has read the event files of a model folder."""
    sizes = {"scalars": 0, "images": 0, "tensors": 0}
    return reader(str(folder / TENSORBOARD), size_guidance=sizes, purge_orphaned_data=True).Reload()


def shown(folder: Path, tag: str = "train/loss") -> list[tuple[int, object]]:
    """Returns the step and value of each point of a tag, as TensorBoard's server shows them."""
    events = read(folder)
    values = [(event.step, make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
    return [(step, value.item() if value.ndim == 0 else value.tolist()) for step, value in values]


@pytest.mark.parametrize(("start", "kept"), [(0, 0), (10, 2), (15, 2), (40, 4)])
def test_tensorboard_shows_all_values_up_to_the_last_checkpoint(
    start: int, kept: int, tmp_path: Path
) -> None:
    log = TensorBoardLog(tmp_path, 0)
    steps = [0, 10, 20, 30]
    file = io.BytesIO()
    Image.new("L", (3, 2)).save(file, "png")
    for step in steps:
        log.scalars(step, {"train/loss": 4.0, "train/rate": 0.5})
        log.text(step, "sample", f"**{step}** | κόκκινο σπίτι")
        log.image(step, "attention", file.getvalue())
    assert shown(tmp_path, "train/rate") == [(step, 0.5) for step in steps]
    assert [text.decode() for _, text in shown(tmp_path, "sample")] == [
        f"**{s}** | κόκκινο σπίτι" for s in steps
    ]
    assert shown(tmp_path, "attention") == [(step, [b"3", b"2", file.getvalue()]) for step in steps]
    plugins = {
        tag: read(tmp_path).SummaryMetadata(tag).plugin_data.plugin_name
        for tag in ("sample", "train/loss")
    }
    assert plugins == {"sample": "text", "train/loss": "scalars"}
    TensorBoardLog(tmp_path, start).scalars(start + 1, {"train/loss": 2.0})
    assert shown(tmp_path) == [*((step, 4.0) for step in steps[:kept]), (start + 1, 2.0)]
    older = read(tmp_path, EventAccumulator)
    assert [point.step for point in older.Scalars("train/loss")] == [*steps[:kept], start + 1]


def test_each_process_has_its_own_file_and_a_half_written_record_hides_no_other(
    tmp_path: Path,
) -> None:
    for number in range(12):
        TensorBoardLog(tmp_path, number).scalars(number + 1, {"train/loss": float(number)})
    files = sorted((tmp_path / TENSORBOARD).iterdir())
    assert len(files) == 12
    (tmp_path / TENSORBOARD / "events.out.tfevents.1700000000.host.7.0.v2").touch()
    files[0].unlink()
    with open(files[-1], "r+b") as file:  # a kill cuts the file inside the last record
        file.truncate(files[-1].stat().st_size - 6)
    TensorBoardLog(tmp_path, 11).scalars(12, {"train/loss": 12.0})
    assert shown(tmp_path) == [
        *((number + 1, float(number)) for number in range(1, 11)),
        (12, 12.0),
    ]


def test_speed_counts_neither_the_first_step_nor_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(logs, "time", clock)
    speed = Speed()
    clock.now += 7  # the first step takes 7 seconds, because TensorFlow builds the graph
    speed.count(Batch(0, [], np.arange(3), 40, 50, 110))
    assert speed.figures() == {"padding": round(1 - 90 / 110, 5)} and str(speed) == ""
    for seconds in (2, 3):
        clock.now += seconds
        speed.count(Batch(0, [], np.arange(3), 50, 60, 124))
    with speed.paused():
        clock.now += 20
    expected = {
        "source_tokens_per_second": 20.0,
        "target_tokens_per_second": 24.0,
        "padding": round(1 - 310 / 358, 5),
    }
    assert speed.figures() == expected and str(speed) == "24 tokens/s"
    speed = Speed(clock.now)
    clock.now += 4
    speed.count(Batch(0, [], np.arange(3), 30, 50, 100))
    expected = {"source_tokens_per_second": 7.5, "target_tokens_per_second": 12.5, "padding": 0.2}
    assert speed.figures() == expected
