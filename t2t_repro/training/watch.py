"""What is told of a training as it goes: metrics.jsonl for programs, the same and pictures for TensorBoard."""

from __future__ import annotations

import functools
import math
import time
from typing import Any

from t2t_repro import devices
from t2t_repro.data.batching import padding_share
from t2t_repro.data.pipeline import Batch
from t2t_repro.model_folder import ModelFolder
from t2t_repro.training.evaluation import Decoded, Evaluation
from t2t_repro.training.event_log import EventLog
from t2t_repro.training.metrics_log import MetricsLog
from t2t_repro.training.step import Result
from t2t_repro.visualization.attention import Picture


class Speed:
    """Tokens a second and padding since it was made, or since the last `restart`."""

    def __init__(self) -> None:
        self.restart(warm=False)

    def restart(self, warm: bool = True) -> None:
        """Counts anew.

        Args:
            warm: whether the next step is as fast as those after it; the first of a process builds the graph.
        """
        self._began = time.monotonic() if warm else None
        self._source = self._target = self._positions = self._filled = 0

    def count(self, batch: Batch) -> None:
        """Counts a step."""
        self._positions += sum(inputs.size + targets.size for inputs, targets in batch.micro_batches)
        self._filled += batch.source_tokens + batch.target_tokens
        if self._began is None:
            self._began = time.monotonic()
        else:
            self._source += batch.source_tokens
            self._target += batch.target_tokens

    def pause(self, seconds: float) -> None:
        """Leaves out seconds in which nothing was trained."""
        if self._began is not None:
            self._began += seconds

    def __str__(self) -> str:
        return f"{self.figures()['target_tokens_per_second']:,.0f} target tokens/s"

    def figures(self) -> dict[str, float]:
        """Source and target tokens a second, and the share of padding in all positions, 0 .. 1."""
        seconds = max(time.monotonic() - (self._began or 0.0), 1e-9)
        return {
            "source_tokens_per_second": round(self._source / seconds, 1),
            "target_tokens_per_second": round(self._target / seconds, 1),
            "padding": round(padding_share(self._filled, self._positions), 5),
        }


class Watch:
    """Tells of a training in its model folder.

    Args:
        folder: the model folder.
        start: the step from which training goes on; what was told of later ones is forgotten.
        workers: machines that train together.

    Raises:
        UserError: a file cannot be written, here and by each method.
    """

    def __init__(self, folder: ModelFolder, start: int, workers: int) -> None:
        self._folder, self._start = folder, start
        self._log = MetricsLog(folder.path, start)
        hardware = devices.names()
        self._hardware: dict[str, Any] = {"hardware": hardware[0], "gpu_count": len(hardware) * workers}
        self.seconds_before = self._log.seconds
        """Of training, before this process."""

    @functools.cached_property
    def _events(self) -> EventLog:
        """Made when it is first needed: a process that has nothing to tell leaves no file."""
        return EventLog(self._folder.path, self._start)

    @property
    def dev_losses(self) -> dict[int, float]:
        """By step, oldest first."""
        return self._log.dev_losses

    def trained(self, step: int, seconds: float, result: Result, speed: Speed) -> None:
        """Tells of a step.

        Args:
            seconds: of training until then, over all processes.
        """
        values = {
            "train_loss": result.loss,
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            **({"loss_scale": result.loss_scale} if result.loss_scale != 1.0 else {}),
            **speed.figures(),
        }
        values = {name: value for name, value in values.items() if math.isfinite(value)}  # a step left out has no norm
        self._events.scalars(step, values)
        self._log.add(step, seconds=round(seconds, 3), **values, **self._hardware)

    def evaluated(self, step: int, found: Evaluation, decoded: Decoded | None) -> None:
        """Tells of an evaluation."""
        values = {"dev_loss": found.loss, "dev_perplexity": found.perplexity, "dev_accuracy": found.accuracy}
        told: dict[str, Any] = {"eval_steps": found.batches} if found.batches else {}
        if decoded:
            first = decoded.scores[0]
            if math.isfinite(first.score):  # a parser without any brackets yet has no F1
                values[f"dev_{first.name}"] = first.score
                told["signature"] = f"{first.signature}|lines:{decoded.lines}"
            rows = [(sample.source, sample.reference, sample.output) for sample in decoded.samples]
            self._events.text(step, "dev_translations", markdown(rows))
            told["dev_translations"] = rows
        self._events.scalars(step, values)
        self._log.add(step, **values, **told)

    def picture(self, step: int, attention: Picture) -> None:
        """Shows the attention of a sentence."""
        self._events.image(step, "attention", *attention)


def markdown(rows: list[tuple[str, str, str]]) -> str:
    """Translations as a table."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [("source", "reference", "output"), *rows]]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "| --- | --- | --- |", *lines[1:]])
