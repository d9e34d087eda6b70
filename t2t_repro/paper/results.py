"""The results of a trained model, from results.json in its model folder or from the metrics log of
its training run.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from t2t_repro.errors import UserError, shortened
from t2t_repro.files.json_file import rounded, to_json
from t2t_repro.files.output_files import write_file
from t2t_repro.files.untrusted import parse_json, read_text
from t2t_repro.training.metrics_log import read_metrics

FILE = "results.json"
CURE = "delete it, and measure again"
MAX_FIGURE = 1e15
"""Maximum value of a number in results.json."""


@dataclass(frozen=True)
class Results:
    """The results of one trained model. A figure that was not measured is None or empty."""

    steps: int | None = None
    """Number of training steps taken."""
    dev_perplexity: float | None = None
    """Perplexity on the dev split, per subword of the model's vocabulary."""
    dev_bleu: float | None = None
    """BLEU on the dev split, as tensor2tensor's first get_ende_bleu.sh computes it
    (`PAPER_BLEU`).
    """
    bleu: dict[str, float] = field(default_factory=dict)
    """BLEU on the other test sets, by name, computed in the same way."""
    f1: float | None = None
    """Labelled F1 in percent, as EVALB computes it."""
    train_seconds: float | None = None
    """Wall time of the training run in seconds."""
    hardware: str = ""
    """Name of the GPU, or "8 x P100, then 1 x H200" if the run moved between machines."""
    gpu_count: int | None = None
    """Number of devices; None if the run moved between machines."""
    signatures: list[str] = field(default_factory=list)
    """"TEST_SET: SIGNATURE" for each test set. The signature states how the score was computed."""
    search: str = ""
    """Decode hparams that differ from the problem's, for example "beam_size=1"."""


def training_results(folder: str | Path) -> Results:
    """Returns the steps, dev perplexity, time and hardware in the metrics log of a model folder."""
    lines = read_metrics(folder)
    timed_lines = [line for line in lines if "seconds" in line]
    machines = dict.fromkeys(
        (line.get("hardware", ""), line.get("gpu_count")) for line in timed_lines
    )
    hardware = ", then ".join(f"{count} x {name}" for name, count in machines)
    gpu_count = None
    if len(machines) == 1:
        [(hardware, gpu_count)] = machines
    steps = lines[-1]["step"] if lines else None
    # A perplexity from an earlier step or from a partial evaluation does not describe this model.
    perplexities = [
        line["dev_perplexity"]
        for line in lines
        if line["step"] == steps and "dev_perplexity" in line and "eval_steps" not in line
    ]
    return Results(
        steps=steps,
        dev_perplexity=rounded(perplexities[-1]) if perplexities else None,
        train_seconds=timed_lines[-1]["seconds"] if timed_lines else None,
        hardware=hardware,
        gpu_count=gpu_count,
    )


def write_results(folder: str | Path, results: Results) -> None:
    """Writes results.json into a model folder."""
    write_file(Path(folder) / FILE, to_json(results))


def read_results(folder: str | Path) -> Results | None:
    """Returns the results in a model folder, or None if it has no results.json.

    Raises UserError if the file is damaged.
    """
    path = Path(folder) / FILE
    try:
        values = parse_json(read_text(path, cure=CURE), str(path), CURE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not (isinstance(values, dict) and values.keys() <= {item.name for item in fields(Results)}):
        raise UserError(f"{path}: not what t2t-reproduce writes; {CURE}")
    values = {name: value for name, value in values.items() if value is not None}
    for name, value in values.items():
        if not _is_valid(value, getattr(Results(), name)):
            raise UserError(
                f"{path}: {name}={shortened(repr(value))} has a wrong type or range; {CURE}"
            )
    return Results(**values)


def _is_valid(value: Any, default: Any) -> bool:
    """Returns True if a value has the type of its field's default, which is None for a figure."""
    if default is None:
        return type(value) in (int, float) and 0 <= value <= MAX_FIGURE
    if type(value) is not type(default):
        return False
    if isinstance(value, dict):
        return all(_is_valid(item, None) for item in value.values())
    return all(isinstance(item, str) for item in value)
