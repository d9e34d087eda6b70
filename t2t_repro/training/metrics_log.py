"""metrics.jsonl in the model folder: the measurements of a training run, one JSON object a line.

Every --log_step_count_steps steps, and before each evaluation: "step", "seconds" of training so far, "train_loss"
(smoothed, of that step), "learning_rate", "gradient_norm", "source_tokens_per_second", "target_tokens_per_second",
"padding", "hardware" and "gpu_count".

After each evaluation: "step", "dev_loss", "dev_perplexity" and "dev_accuracy"; "eval_steps" if that flag skipped
batches; if lines were decoded, the problem's main score ("dev_bleu", "dev_f1", "dev_exact_matches"), its "signature",
and the first lines as "dev_translations" (source, reference and output).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from t2t_repro.errors import UserError
from t2t_repro.textfile import whole_file

FILE = "metrics.jsonl"


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """Returns the lines of a model folder's metrics.jsonl, or nothing if it does not exist.

    Skips a line that a killed process left half-written.
    """
    lines = []
    path = Path(folder) / FILE
    for text in path.read_text("utf-8", errors="replace").split("\n") if path.is_file() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


class MetricsLog:
    """Appends lines to metrics.jsonl.

    Args:
        folder: model folder.
        start: step from which the run continues; lines of later steps, from a killed process, are removed.

    Raises:
        UserError: if the file cannot be written.
    """

    def __init__(self, folder: str | Path, start: int) -> None:
        self._path = Path(folder) / FILE
        lines = [line for line in read_metrics(folder) if line["step"] <= start]
        with whole_file(self._path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        self.seconds_before = max((line.get("seconds", 0.0) for line in lines), default=0.0)
        """Seconds of training before this process started."""
        self.dev_losses: dict[int, float] = {line["step"]: line["dev_loss"] for line in lines if "dev_loss" in line}
        """Dev losses by step, oldest first."""

    def add(self, step: int, **values: Any) -> None:
        """Appends a line."""
        if "dev_loss" in values:
            self.dev_losses[step] = float(values["dev_loss"])
        try:
            with open(self._path, "a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps({"step": step, **values}) + "\n")
        except OSError as error:
            raise UserError(
                f"{self._path}: cannot be written ({error.strerror or error}); free space, then run the same command "
                "again"
            ) from None
