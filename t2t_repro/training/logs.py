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
from t2t_repro.training.evaluation import Evaluation
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
        self._source = self._target = self._positions = self._filled = 0

    def count(self, batch: Batch) -> None:
        """Adds a step's tokens and positions to the measurement."""
        self._positions += batch.positions
        self._filled += batch.source_tokens + batch.target_tokens
        if self._start is None:
            self._start = time.monotonic()
        else:
            self._source += batch.source_tokens
            self._target += batch.target_tokens

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
        figures = {"padding": round(padding_share(self._filled, self._positions), 5)}
        if self._target and self._start is not None:
            seconds = max(time.monotonic() - self._start, 1e-9)
            figures["source_tokens_per_second"] = round(self._source / seconds, 1)
            figures["target_tokens_per_second"] = round(self._target / seconds, 1)
        return figures


class TensorBoardLog:
    """Writes events for TensorBoard, which can read each event as soon as it is written.

    The first event creates the file, so a process that logs nothing leaves no file. `start` is the
    step from which the run continues. TensorBoard no longer shows the later steps that an earlier
    process logged. If `start` is 0, TensorBoard shows nothing that was logged before.
    """

    def __init__(self, folder: str | Path, start: int) -> None:
        self._folder, self._start = subfolder(Path(folder), TENSORBOARD), start
        self._path: Path | None = None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a point at `step` to the curve of each name in `values`, e.g. {"train/loss": 1.2}."""  # noqa: E501
        self._add(
            step, *(Summary.Value(tag=tag, simple_value=value) for tag, value in values.items())
        )

    def text(self, step: int, tag: str, markdown: str) -> None:
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        self._add(
            step, Summary.Value(tag=tag, metadata=metadata, tensor=tf.make_tensor_proto(markdown))
        )

    def image(self, step: int, tag: str, png: bytes) -> None:
        width, height = struct.unpack(">II", png[16:24])
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
        self.metrics, self.tensorboard = (
            MetricsLog(folder, start, on_metrics, best_by),
            TensorBoardLog(folder, start),
        )
        names = devices.names()
        self._hardware: dict[str, Any] = {"hardware": names[0], "gpu_count": len(names) * workers}

    def step(self, step: int, seconds: float, result: Result, speed: Speed) -> None:
        """Logs the measurements of training step `step`.

        `seconds` are those of training until this step, without earlier processes of the run.
        `speed` is that since the last logged step.
        """
        values = {
            "train_loss": result.loss,
            **({"auxiliary_loss": result.auxiliary_loss} if result.auxiliary_loss else {}),
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            **({"loss_scale": result.loss_scale} if result.loss_scale != 1.0 else {}),
            **speed.figures(),
        }
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
        """Returns the fields of an evaluation's line in metrics.jsonl: those to draw as curves, and
        the others.
        """
        values = {
            "dev_loss": evaluation.loss,
            "dev_perplexity": evaluation.perplexity,
            "dev_accuracy": evaluation.accuracy,
            **({} if evaluation.source_use is None else {"dev_source_use": evaluation.source_use}),
        }
        details: dict[str, Any] = {"eval_steps": evaluation.batches} if evaluation.batches else {}
        if decoded := evaluation.decoded:
            score = decoded.scores[0]
            if math.isfinite(score.score):  # F1 is NaN while a parser's outputs have no brackets
                values[f"dev_{score.name}"] = score.score
                details["signature"] = f"{score.signature}|lines:{decoded.lines}"
            if (best_by := self.metrics.best_by) != LOSS:
                values[f"dev_{best_by}"] = decoded.score_by(best_by).score
                # Also if F1 is NaN, because evaluations with other signatures are not compared with
                # this one.
                details |= {
                    "best_by": best_by,
                    "signature": f"{score.signature}|lines:{decoded.lines}",
                }
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
    return {f"{group}/{name.removeprefix(f'{group}_')}": value for name, value in values.items()}


def _markdown(rows: list[tuple[str, str, str]]) -> str:
    cells = [
        [cell.replace("|", "\\|") for cell in row]
        for row in [("source", "reference", "output"), *rows]
    ]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "| --- | --- | --- |", *lines[1:]])
