"""The logs of a training run: writes the same values to metrics.jsonl and to TensorBoard's event files."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

from t2t_repro import devices
from t2t_repro.training.evaluation import Decoded, Evaluation
from t2t_repro.training.metrics_log import MetricsLog
from t2t_repro.training.speed import Speed
from t2t_repro.training.step import Result
from t2t_repro.training.tensorboard_log import TensorBoardLog


class Logs:
    """Writes the logs of a training run.

    Args:
        folder: model folder.
        start: step from which the run continues. Entries of later steps are removed from the logs.
        workers: number of worker processes that train together.

    Raises:
        UserError: if a file cannot be written. Every method raises it too.
    """

    def __init__(self, folder: Path, start: int, workers: int) -> None:
        self._folder, self._start = folder, start
        self.metrics = MetricsLog(folder, start)
        names = devices.names()
        self._hardware: dict[str, Any] = {"hardware": names[0], "gpu_count": len(names) * workers}

    @functools.cached_property
    def tensorboard(self) -> TensorBoardLog:
        """The log for TensorBoard. Its first entry creates the file, so a process that logs nothing writes no file."""
        return TensorBoardLog(self._folder, self._start)

    def step(self, step: int, seconds: float, result: Result, speed: Speed) -> None:
        """Logs the measurements of a training step.

        Args:
            step: number of the step.
            seconds: seconds of training until this step, counting earlier processes of the run.
            result: result of the step.
            speed: speed since the last logged step.
        """
        values = {
            "train_loss": result.loss,
            **({"auxiliary_loss": result.auxiliary_loss} if result.auxiliary_loss else {}),
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            **({"loss_scale": result.loss_scale} if result.loss_scale != 1.0 else {}),
            **speed.figures(),
        }
        # With mixed_float16, a step whose gradients overflow is skipped. Its gradient norm is not finite and is not
        # logged.
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        self.tensorboard.scalars(step, values)
        self.metrics.add(step, seconds=round(seconds, 3), **values, **self._hardware)

    def evaluation(self, step: int, evaluation: Evaluation, source_use: float | None, decoded: Decoded | None) -> None:
        """Logs an evaluation of the dev split.

        Args:
            step: number of steps taken.
            evaluation: loss and accuracy.
            source_use: result of `Evaluator.source_use`.
            decoded: the decoded lines; None if the evaluation decoded none.
        """
        values = {
            "dev_loss": evaluation.loss,
            "dev_perplexity": evaluation.perplexity,
            "dev_accuracy": evaluation.accuracy,
            **({} if source_use is None else {"dev_source_use": source_use}),
        }
        details: dict[str, Any] = {"eval_steps": evaluation.batches} if evaluation.batches else {}
        if decoded:
            score = decoded.scores[0]
            if math.isfinite(score.score):  # F1 is NaN while a parser's outputs have no brackets
                values[f"dev_{score.name}"] = score.score
                details["signature"] = f"{score.signature}|lines:{decoded.lines}"
            details["dev_translations"] = [tuple(sample) for sample in decoded.samples]
            self.tensorboard.text(step, "dev_translations", markdown(details["dev_translations"]))
        self.tensorboard.scalars(step, values)
        self.metrics.add(step, **values, **details)


def markdown(rows: list[tuple[str, str, str]]) -> str:
    """Returns (source, reference, output) rows as a Markdown table."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [("source", "reference", "output"), *rows]]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "| --- | --- | --- |", *lines[1:]])
