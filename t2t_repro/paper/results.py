"""The results of a trained model, from results.json in its model folder or from the metrics log of its training run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from t2t_repro.errors import UserError, shortened
from t2t_repro.files.json_file import finite
from t2t_repro.files.output_files import whole_file
from t2t_repro.files.untrusted import parse_json, read_text
from t2t_repro.training.metrics_log import read_metrics

FILE = "results.json"
CURE = "delete it, and measure again"
MAX_FIGURE = 1e15
"""Maximum value of a number in results.json."""


@dataclass(frozen=True)
class Results:
    """The results of one trained model. A figure that was not measured is None or empty.

    Attributes:
        steps: training steps taken.
        dev_perplexity: perplexity on the dev split, per subword of the model's vocabulary.
        dev_bleu: BLEU on the dev split, computed as tensor2tensor's first get_ende_bleu.sh does (`PAPER_BLEU`).
        bleu: BLEU on each other test set, computed as for `dev_bleu`. Keys are the test sets' names.
        f1: labelled F1 in percent, computed as EVALB does.
        train_seconds: wall time of the training run in seconds.
        hardware: name of the GPU, or "8 x P100, then 1 x H200" if the run moved between machines.
        gpu_count: number of devices; None if the run moved between machines.
        signatures: "TEST_SET: SIGNATURE" for each test set. The signature states how the test set's score was computed.
        search: decode_hparams that differ from the problem's own, for example "beam_size=1".
    """

    steps: int | None = None
    dev_perplexity: float | None = None
    dev_bleu: float | None = None
    bleu: dict[str, float] = field(default_factory=dict)
    f1: float | None = None
    train_seconds: float | None = None
    hardware: str = ""
    gpu_count: int | None = None
    signatures: list[str] = field(default_factory=list)
    search: str = ""


def training_results(folder: str | Path) -> Results:
    """Returns the steps, dev perplexity, time and hardware in the metrics log of a model folder."""
    lines = read_metrics(folder)
    timed_lines = [line for line in lines if "seconds" in line]
    machines = list(dict.fromkeys((line.get("hardware", ""), line.get("gpu_count")) for line in timed_lines))
    hardware, gpu_count = machines[0] if machines else ("", None)
    if len(machines) > 1:
        hardware, gpu_count = ", then ".join(f"{count} x {name}" for name, count in machines), None
    steps = lines[-1]["step"] if lines else None
    # A perplexity from an earlier step or from a partial evaluation does not describe this model.
    perplexities = [
        line["dev_perplexity"]
        for line in lines
        if line["step"] == steps and "dev_perplexity" in line and "eval_steps" not in line
    ]
    return Results(
        steps=steps,
        dev_perplexity=finite(perplexities[-1]) if perplexities else None,
        train_seconds=timed_lines[-1]["seconds"] if timed_lines else None,
        hardware=hardware,
        gpu_count=gpu_count,
    )


def write_results(folder: str | Path, results: Results) -> None:
    """Writes results.json into a model folder.

    Raises UserError if the disk is full.
    """
    with whole_file(Path(folder) / FILE, "w") as file:
        file.write(json.dumps(asdict(results), indent=2) + "\n")


def read_results(folder: str | Path) -> Results | None:
    """Returns the results in a model folder, or None if it has no results.json. Unknown keys are ignored.

    Raises UserError if the file does not hold a JSON object or a value has the wrong type.
    """
    path = Path(folder) / FILE
    try:
        values = parse_json(read_text(path, cure=CURE), str(path), CURE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not isinstance(values, dict):
        raise UserError(f"{path}: holds no JSON object; {CURE}")
    results = {item.name: values[item.name] for item in fields(Results) if values.get(item.name) is not None}
    for item in fields(Results):
        description, is_valid = _CHECKS[str(item.type)]
        value = results.get(item.name)
        if value is not None and not is_valid(value):
            shown = f"{item.name}={shortened(repr(value))}"
            raise UserError(f"{path}: {shown} must be {description}; delete the file, and measure again")
    return Results(**results)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_figure(value)


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_FIGURE


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int | None": (f"a whole number in 0 .. {MAX_FIGURE:g}", _is_count),
    "float | None": (f"a number in 0 .. {MAX_FIGURE:g}", _is_figure),
    "str": ("a string", _is_text),
    "list[str]": ("a list of strings", lambda value: isinstance(value, list) and all(map(_is_text, value))),
    "dict[str, float]": (
        f"an object of numbers in 0 .. {MAX_FIGURE:g} by test set",
        lambda value: isinstance(value, dict) and all(map(_is_figure, value.values())),
    ),
}
"""For each type of a field of `Results`: a description of valid values, and a function that recognises them."""
