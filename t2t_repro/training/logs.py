"""The logs of a training run: metrics.jsonl, and the same values with pictures in TensorBoard's
event files.

This module does not use tf.summary, because that needs the package tensorboard, which TensorFlow no
longer installs. Event files are TFRecord files of `Event` messages.
"""

import math
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.compat.v1 import Event, SessionLog, Summary, SummaryMetadata

from t2t_repro import devices
from t2t_repro.data.batching import padding_share
from t2t_repro.data.pipeline import Batch
from t2t_repro.data.records import record
from t2t_repro.files.output_files import subfolder
from t2t_repro.training.config import LOSS
from t2t_repro.training.evaluation import Evaluation, Line
from t2t_repro.training.metrics_log import MetricsLog, OnMetrics, append
from t2t_repro.training.step import Result

TENSORBOARD = "tensorboard"
"""Subfolder of a model folder for event files, one for each process."""
PREFIX = "events.out.tfevents."
"""Prefix of the event files' names. TensorBoard reads all files with "tfevents" in the name, sorted
by name.
"""


class Speed:
    """Tokens per second and share of padding.

    The measurement starts at `start`, a value of time.monotonic(). None starts it at the end of the
    first step, whose tokens do not count: a process's first step takes longer, because TensorFlow
    builds the graph.
    """

    def __init__(self, start: float | None = None) -> None:
        self._start = start
        self._source_tokens = 0
        self._target_tokens = 0
        self._positions = 0
        self._filled_positions = 0

    def count(self, batch: Batch) -> None:
        """Adds a step's tokens and positions to the measurement."""
        self._positions += batch.positions
        self._filled_positions += batch.source_tokens + batch.target_tokens
        if self._start is None:
            self._start = time.monotonic()
        else:
            self._source_tokens += batch.source_tokens
            self._target_tokens += batch.target_tokens

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Returns a context whose duration does not count as training time."""
        pause = time.monotonic()
        yield
        if self._start is not None:
            self._start += time.monotonic() - pause

    def __str__(self) -> str:
        speed = self.figures().get("target_tokens_per_second")
        return "" if speed is None else f"{speed:,.0f} tokens/s"

    def figures(self) -> dict[str, float]:
        """Returns the measured values by their names in metrics.jsonl; no speeds if only the first
        step was counted.
        """
        padding = padding_share(self._filled_positions, self._positions)
        figures = {"padding": round(padding, 5)}
        if self._target_tokens and self._start is not None:
            seconds = max(time.monotonic() - self._start, 1e-9)
            figures["source_tokens_per_second"] = round(self._source_tokens / seconds, 1)
            figures["target_tokens_per_second"] = round(self._target_tokens / seconds, 1)
        return figures


class TensorBoardLog:
    """Writes events for TensorBoard, which can read each event as soon as it is written.

    The first event creates the file, so a process that logs nothing leaves no file. `start` is the
    step from which the run continues. TensorBoard no longer shows the later steps that an earlier
    process logged. If `start` is 0, TensorBoard shows nothing that was logged before.
    """

    def __init__(self, folder: str | Path, start: int) -> None:
        self._folder = subfolder(Path(folder), TENSORBOARD)
        self._start = start
        self._path: Path | None = None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a point at `step` to the curve of each name, e.g. {"train/loss": 1.2}."""
        points = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._add(step, *points)

    def text(self, step: int, tag: str, markdown: str) -> None:
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = tf.make_tensor_proto(markdown)
        self._add(step, Summary.Value(tag=tag, metadata=metadata, tensor=tensor))

    def image(self, step: int, tag: str, png: bytes) -> None:
        width, height = struct.unpack(">II", png[16:24])  # PNG's first chunk, IHDR, begins so
        image = Summary.Image(encoded_image_string=png, width=width, height=height)
        self._add(step, Summary.Value(tag=tag, image=image))

    def _add(self, step: int, *values: Summary.Value) -> None:
        events = [Event(step=step, summary=Summary(value=values))]
        if not self._path:
            self._folder.mkdir(parents=True, exist_ok=True)
            numbers = [int(path.suffix[1:]) for path in self._folder.glob(PREFIX + "[0-9]" * 5)]
            self._path = self._folder / f"{PREFIX}{max(numbers, default=0) + 1:05d}"
            # When TensorBoard reads a START event, it drops all points of that event's step and of
            # later steps. TensorBoard's faster reader ignores START. With that reader, each new
            # point drops the points of the same tag that have the same step or a later one.
            first = self._start + 1 if self._start else 0
            start = Event(step=first, session_log=SessionLog(status=SessionLog.START))
            events = [Event(file_version="brain.Event:2"), start, *events]
        for event in events:
            event.wall_time = time.time()
        append(self._path, b"".join(record(event.SerializeToString()) for event in events))


class Logs:
    """Writes the logs of a training run that continues from step `start`. Entries of later steps
    are removed.

    `workers` is the number of worker processes that train together. For `on_metrics` and `best_by`,
    see `MetricsLog`.
    """

    def __init__(
        self,
        folder: Path,
        start: int,
        workers: int,
        on_metrics: OnMetrics | None = None,
        best_by: str = LOSS,
    ) -> None:
        self.metrics = MetricsLog(folder, start, on_metrics, best_by)
        self.tensorboard = TensorBoardLog(folder, start)
        names = devices.names()
        self._hardware: dict[str, Any] = {"hardware": names[0], "gpu_count": len(names) * workers}

    def step(self, step: int, seconds: float, result: Result, speed: Speed) -> None:
        """Logs the measurements of training step `step`.

        `seconds` is the time of training until this step, without earlier processes of the run.
        `speed` was measured since the last logged step.
        """
        values = {"train_loss": result.loss}
        if result.auxiliary_loss:
            values["auxiliary_loss"] = result.auxiliary_loss
        values["learning_rate"] = result.learning_rate
        values["gradient_norm"] = result.gradient_norm
        if result.loss_scale != 1.0:
            values["loss_scale"] = result.loss_scale
        values |= speed.figures()
        # With mixed_float16, a step whose gradients overflow is skipped. Its gradient norm is not
        # finite and is not logged.
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        self.tensorboard.scalars(step, _tags("train", values))
        self.metrics.add(
            step,
            seconds=round(self.metrics.seconds_before + seconds, 3),
            **values,
            **self._hardware,
        )

    def is_best(self, evaluation: Evaluation) -> bool:
        """Returns True if an evaluation is better than all that the log has, see
        `MetricsLog.is_best`.
        """
        values, details = self._fields(evaluation)
        return self.metrics.is_best(values | details)

    def evaluation(self, step: int, evaluation: Evaluation) -> None:
        values, details = self._fields(evaluation)
        if evaluation.decoded:
            self.tensorboard.text(step, "dev/translations", _markdown(evaluation.decoded.samples))
        self.tensorboard.scalars(step, _tags("dev", values))
        self.metrics.add(step, **values, **details)

    def _fields(self, evaluation: Evaluation) -> tuple[dict[str, float], dict[str, Any]]:
        """Returns the fields of an evaluation's line in metrics.jsonl: numbers to draw as curves,
        and details.
        """
        values = {
            "dev_loss": evaluation.loss,
            "dev_perplexity": evaluation.perplexity,
            "dev_accuracy": evaluation.accuracy,
        }
        details: dict[str, Any] = {}
        if evaluation.source_use is not None:
            values["dev_source_use"] = evaluation.source_use
        if evaluation.batches:
            details["eval_steps"] = evaluation.batches
        if decoded := evaluation.decoded:
            score = decoded.scores[0]
            best_by = self.metrics.best_by
            is_finite = math.isfinite(score.score)  # F1 is NaN while outputs have no brackets
            if is_finite:
                values[f"dev_{score.name}"] = score.score
            # Evaluations by a score are compared only with others of the same signature, also if
            # the main score is NaN.
            if is_finite or best_by != LOSS:
                details["signature"] = f"{score.signature}|lines:{decoded.lines}"
            if best_by != LOSS:
                values[f"dev_{best_by}"] = decoded.score_by(best_by).score
                details["best_by"] = best_by
            details["dev_translations"] = decoded.samples
        for name, part in evaluation.corpora.items():
            values[f"dev_loss/{name}"] = part.loss
            if part.decoded and math.isfinite(part.score):
                values[f"dev_{part.decoded.scores[0].name}/{name}"] = part.score
        return values, details


def _tags(group: str, values: Mapping[str, float]) -> dict[str, float]:
    """Returns the values by the names under which TensorBoard groups them, e.g. "dev/loss" for
    "dev_loss".
    """
    prefix = f"{group}_"
    return {f"{group}/{name.removeprefix(prefix)}": value for name, value in values.items()}


def _markdown(lines: list[Line]) -> str:
    rows = ["| source | reference | output |", "| --- | --- | --- |"]
    for line in lines:
        source, reference, output = (cell.replace("|", "\\|") for cell in line)
        rows.append(f"| {source} | {reference} | {output} |")
    return "\n".join(rows)
