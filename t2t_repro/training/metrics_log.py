"""metrics.jsonl in the model folder: the measurements of a training run, one JSON object per line.

Every --log_step_count_steps steps, and before each evaluation, the run writes a line about the last
step. After each evaluation, it writes a line whose fields begin with "dev_". docs/training.md
describes the fields.

Numbers have eight significant digits. Most of them are computed in float32, which has seven to
eight. A number that is not finite is null.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from t2t_repro.files.json_file import rounded, to_json_line
from t2t_repro.files.output_files import named_errors, write_file
from t2t_repro.files.untrusted import read_bytes
from t2t_repro.training.config import LOSS

OnMetrics = Callable[[dict[str, Any]], None]
"""A function that takes a line of metrics.jsonl: its fields by name."""
FILE = "metrics.jsonl"
MAX_BYTES = 1 << 28
"""Maximum size of the file. A run of 300,000 steps writes about 2 MB."""


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """Returns the lines of a model folder's metrics.jsonl; an empty list if the file does not
    exist.

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
    """Returns True if a line has a step, and all fields that programs read have valid values."""
    counts = (line.get("step"), line.get("gpu_count", 0), line.get("eval_steps", 0))
    texts = (line.get("hardware", ""), line.get("best_by", ""))
    numbers = [line.get("seconds", 0.0), line.get("train_loss", 0.0)]
    for name, value in line.items():
        # A measure that is not finite is null.
        if name.startswith("dev_") and name != "dev_translations" and value is not None:
            numbers.append(value)
    return (
        all(type(count) is int and 0 <= count < 1 << 63 for count in counts)
        and all(isinstance(text, str) for text in texts)
        and all(map(_is_number, numbers))
        and math.isfinite(numbers[0])
    )


def _is_number(value: Any) -> bool:
    """Returns True for a float, and for an integer that is not too large for one."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


class Evaluations:
    """The evaluations of a training run, and which of them are the best.

    `lines` are the lines of metrics.jsonl, oldest first. Only lines of evaluations count. `best_by`
    is the measure of the best evaluation, see `RunConfig`; "" for the measure of the last
    evaluation.
    """

    def __init__(self, lines: Iterable[dict[str, Any]], best_by: str = "") -> None:
        self._lines = [line for line in lines if "dev_loss" in line]
        self.best_by: str = best_by or self._last.get("best_by", LOSS)

    @property
    def _last(self) -> dict[str, Any]:
        return self._lines[-1] if self._lines else {}

    def has_evaluation(self, step: int) -> bool:
        return any(line["step"] == step for line in self._lines)

    def is_best(self, line: dict[str, Any]) -> bool:
        """Returns True if an evaluation, with the fields of its line, is better than all since its
        kind last changed.

        The kind changes with --best_by, and with --eval_steps for the loss or --eval_decode_lines
        for a score, because other measures, batches and lines are not comparable.
        """
        earlier = map(self._measure, self._last_of_kind(line))
        return self._measure(line) < min(earlier, default=math.inf)

    def evaluations_since_best(self) -> int:
        """Returns the number of evaluations after the best one, since their kind last changed."""
        measures = [self._measure(line) for line in self._last_of_kind(self._last)]
        return len(measures) - 1 - measures.index(min(measures)) if measures else 0

    def best_steps(self, number: int) -> list[int]:
        """Returns the steps of the `number` best evaluations since their kind last changed, the
        best one first.

        If two are equal, the earlier one comes first. Omits the evaluation of a warm start, which
        is not a checkpoint of the run, and values that are not finite.
        """
        lines = [
            line
            for line in self._last_of_kind(self._last)
            if line["step"] and math.isfinite(self._measure(line))
        ]
        return [line["step"] for line in sorted(lines, key=self._measure)[:number]]

    def _last_of_kind(self, line: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the last evaluations, oldest first, back to one of another kind than `line`."""
        kind = self._kind(line)
        latest_first = reversed(self._lines)
        same = itertools.takewhile(lambda other: self._kind(other) == kind, latest_first)
        return list(same)[::-1]

    def _kind(self, line: dict[str, Any]) -> tuple[Any, Any]:
        # Losses of other batches and scores of other lines are not comparable.
        detail = "eval_steps" if self.best_by == LOSS else "signature"
        return line.get("best_by", LOSS), line.get(detail)

    def _measure(self, line: dict[str, Any]) -> float:
        """Returns the loss, or the score times -1; infinity if it is missing or not finite."""
        # The log rounds values. Without rounding here, an equal value could count as better.
        value: float | None = rounded(line.get(f"dev_{self.best_by}"))
        if value is None:
            return math.inf
        return value if self.best_by == LOSS else -value


class MetricsLog(Evaluations):
    """Appends lines to metrics.jsonl.

    The run continues from step `start`. Lines of later steps, which an earlier process wrote, are
    removed. `on_metrics` is called with each line after it has been written. `best_by` is the
    measure of the best evaluation, see `RunConfig`.
    """

    def __init__(
        self,
        folder: str | Path,
        start: int,
        on_metrics: OnMetrics | None = None,
        best_by: str = LOSS,
    ) -> None:
        self._path = Path(folder) / FILE
        self._on_metrics = on_metrics
        lines = [line for line in read_metrics(folder) if line["step"] <= start]
        super().__init__(lines, best_by)
        write_file(self._path, "".join(to_json_line(line) + "\n" for line in lines))
        self.seconds_before = max((line.get("seconds", 0.0) for line in lines), default=0.0)
        """Seconds that earlier processes of this run have trained."""

    def add(self, step: int, **values: Any) -> None:
        """Appends a line with the fields "step" and `values`."""
        # Rounded losses equal those that a resumed run will read from the file.
        line = {"step": step, **rounded(values)}
        if "dev_loss" in line:
            self._lines.append(line)
        append(self._path, f"{to_json_line(line)}\n".encode())
        if self._on_metrics:
            self._on_metrics(line)


def append(path: Path, contents: bytes) -> None:
    """Appends to a log. Raises UserError if that fails, e.g. because the disk is full."""
    with (
        named_errors(path, "free space, then run the same command again"),
        open(path, "ab") as file,
    ):
        file.write(contents)
