"""metrics.jsonl in the model folder: the measurements of a training run, one JSON object per line.

Every --log_step_count_steps steps, and before each evaluation, the run writes a line about the last step. Its fields
are "step", "seconds" (of training so far), "train_loss" (with label smoothing), "learning_rate", "gradient_norm",
"source_tokens_per_second", "target_tokens_per_second", "padding", "hardware" and "gpu_count". With mixed_float16, the
line also has "loss_scale". If layers of the model have auxiliary losses, it has their sum, "auxiliary_loss". A line
that covers only the first step of a process has no speeds, because TensorFlow builds the graph in that step.

After each evaluation, the run writes a line with "step", "dev_loss", "dev_perplexity", "dev_accuracy" and
"dev_source_use". The last field is missing if all sources of the dev split are equal. If --eval_steps made the
evaluation skip batches, "eval_steps" is the number of evaluated batches. If the evaluation decoded lines, the line also
has the problem's main score ("dev_bleu", "dev_f1" or "dev_exact_matches"), the score's "signature", which ends with the
number of lines, and the first decoded lines as "dev_translations" (source, reference and output). If the dev split has
several corpora, the line also has the loss and the score of each, e.g. "dev_loss/NAME" and "dev_bleu/NAME".

Numbers have eight significant digits. Most of them are computed in float32, which has seven to eight. A number that is
not finite is null.
"""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t2t_repro.files.json_file import rounded, to_json_line
from t2t_repro.files.output_files import named_errors, write_file
from t2t_repro.files.untrusted import read_bytes
from t2t_repro.training.config import LOSS

OnMetrics = Callable[[dict[str, Any]], None]
"""A function that takes a line of metrics.jsonl: its fields by name."""
FILE = "metrics.jsonl"
NUMBERS = ("seconds", "train_loss", "dev_loss", "dev_perplexity", "dev_bleu", "dev_f1", "dev_exact_matches")
"""Fields that must be numbers. `read_metrics` skips a line in which one of them is something else."""
MAX_BYTES = 1 << 28
"""Maximum size of the file. A run of 300,000 steps writes about 2 MB."""


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """Returns the lines of a model folder's metrics.jsonl; an empty list if the file does not exist.

    Skips damaged lines, e.g. a line that a killed process left half-written.

    Raises UserError if the file is not a regular file, or has more than `MAX_BYTES` bytes.
    """
    try:
        contents = read_bytes(Path(folder) / FILE, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return []
    lines = []
    for text in contents.decode("utf-8", "replace").split("\n"):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and _is_sound(line):
            lines.append(line)
    return lines


def _is_sound(line: dict[str, Any]) -> bool:
    """Returns True if a line has a step, and all fields that this project reads have valid values."""
    counts = (line.get("step"), line.get("gpu_count", 0), line.get("eval_steps", 0))
    # A dev loss that is not finite is null. In older files it is NaN or Infinity.
    numbers = [line[name] for name in NUMBERS if name in line and (line[name] is not None or name[:4] != "dev_")]
    return (
        all(type(count) is int and 0 <= count < 1 << 63 for count in counts)
        and isinstance(line.get("hardware", ""), str)
        and all(type(number) is float or (type(number) is int and abs(number) < 1 << 63) for number in numbers)
        and math.isfinite(line.get("seconds", 0))
    )


class MetricsLog:
    """Appends lines to metrics.jsonl.

    Args:
        folder: model folder.
        start: step from which the run continues. Lines of later steps, which an earlier process wrote, are removed.
        on_metrics: function that is called with each line after it has been written.
        best_by: the measure of the best evaluation, see `RunConfig`.
    """

    def __init__(
        self, folder: str | Path, start: int, on_metrics: OnMetrics | None = None, best_by: str = LOSS
    ) -> None:
        self._path, self._on_metrics, self._best_by = Path(folder) / FILE, on_metrics, best_by
        lines = [line for line in read_metrics(folder) if line["step"] <= start]
        write_file(self._path, "".join(to_json_line(line) + "\n" for line in lines))
        self.seconds_before = max((line.get("seconds", 0.0) for line in lines), default=0.0)
        """Seconds that earlier processes of this run have trained."""
        self._evaluations: dict[int, tuple[float, Any]] = {}
        """For each evaluation by its step, oldest first: its loss, or its score times -1, and its kind: "eval_steps" or
        the score's signature. A value that is missing or not finite is infinity."""
        for line in lines:
            self._remember(line)

    def has_evaluation(self, step: int) -> bool:
        """Returns True if the log has an evaluation of this step."""
        return step in self._evaluations

    def is_best(self, line: dict[str, Any]) -> bool:
        """Returns True if an evaluation, with the fields of its line, is better than all since its kind last changed.

        The kind changes with --eval_steps and --eval_decode_lines, because other batches and lines are not comparable.
        """
        measure, kind = self._measure(line)
        return measure < min(self._measures(kind), default=math.inf)

    def evaluations_since_best(self) -> int:
        """Returns the number of evaluations after the best one, since their kind last changed."""
        if not self._evaluations:
            return 0
        measures = self._measures(list(self._evaluations.values())[-1][1])
        return len(measures) - 1 - measures.index(min(measures))

    def _measures(self, kind: Any) -> list[float]:
        newest = itertools.takewhile(lambda pair: pair[1] == kind, reversed(self._evaluations.values()))
        return [measure for measure, _ in newest][::-1]

    def _measure(self, line: dict[str, Any]) -> tuple[float, Any]:
        # The log rounds values. Without rounding here, an equal value could count as better.
        value, is_loss = rounded(line.get(f"dev_{self._best_by}")), self._best_by == LOSS
        kind = line.get("eval_steps", 0) if is_loss else line.get("signature")
        if value is None or not math.isfinite(value):
            return math.inf, kind
        return value if is_loss else -value, kind

    def _remember(self, line: dict[str, Any]) -> None:
        if "dev_loss" in line:
            self._evaluations[line["step"]] = self._measure(line)

    def add(self, step: int, **values: Any) -> None:
        """Appends a line with the fields "step" and `values`."""
        # Rounded losses equal those that a resumed run will read from the file.
        line = {"step": step, **rounded(values)}
        self._remember(line)
        append(self._path, f"{to_json_line(line)}\n".encode())
        if self._on_metrics:
            self._on_metrics(line)


def append(path: Path, contents: bytes) -> None:
    """Appends to a log. Raises UserError if that fails, e.g. because the disk is full."""
    with named_errors(path, "free space, then run the same command again"), open(path, "ab") as file:
        file.write(contents)
