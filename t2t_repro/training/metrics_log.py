"""What was measured during a training, a JSON object a line, in the model folder's metrics.jsonl.

Every --log_step_count_steps, and before each evaluation, a line with "step", "seconds" of training so far, "train_loss"
(smoothed, of that step), "learning_rate", "gradient_norm", "source_tokens_per_second", "target_tokens_per_second",
"padding", "hardware" and "gpu_count"; after each evaluation one with "step", "dev_loss", "dev_perplexity",
"dev_accuracy", "eval_steps" where the flag of that name left batches out, and, where lines were decoded, "dev_bleu" or
"dev_f1", its "signature", and the first few as "dev_translations": source, reference and output of each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from t2t_repro.errors import UserError
from t2t_repro.textfile import whole_file

FILE = "metrics.jsonl"


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines in a model folder, none where nothing was measured; what a killed process left half-written is not."""
    lines = []
    path = Path(folder) / FILE
    for line in path.read_text("utf-8", errors="replace").split("\n") if path.is_file() else []:
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(found, dict) and isinstance(found.get("step"), int):
            lines.append(found)
    return lines


class MetricsLog:
    """Adds lines to metrics.jsonl.

    Args:
        folder: the model folder.
        start: the step from which training goes on; lines of later steps, which a killed process took, are dropped.

    Raises:
        UserError: the file cannot be written.
    """

    def __init__(self, folder: str | Path, start: int) -> None:
        self._path = Path(folder) / FILE
        kept = [line for line in read_metrics(folder) if line["step"] <= start]
        with whole_file(self._path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept)
        self.seconds = max((line.get("seconds", 0.0) for line in kept), default=0.0)
        """Of training, before this process."""
        self.dev_losses: dict[int, float] = {line["step"]: line["dev_loss"] for line in kept if "dev_loss" in line}
        """By the step after which the dev split was evaluated, oldest first."""

    def add(self, step: int, **values: Any) -> None:
        """Adds a line."""
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
