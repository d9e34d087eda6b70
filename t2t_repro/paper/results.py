"""What was measured of a model: results.json in its folder, and of its training alone metrics.jsonl."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from t2t_repro.errors import UserError
from t2t_repro.training.metrics_log import read_metrics

FILE = "results.json"


@dataclass(frozen=True)
class Results:
    """Figures of one trained model; None, or empty, is what was not measured.

    Attributes:
        steps: taken.
        dev_perplexity: per subword of the model's own vocabulary, on the dev split.
        dev_bleu: on the dev split, computed the paper's way.
        bleu: by test set, computed the paper's way.
        f1: labelled, in percent, as EVALB has it.
        train_seconds: wall time of the training.
        hardware: e.g. "NVIDIA H200"; "8 x P100, then 1 x H200" where the training was taken from one to another.
        gpu_count: devices of that kind; None where there were several kinds.
        signatures: how the scores were computed.
        search: the decode_hparams that are not the problem's, such as "beam_size=1"; empty where all are.
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


def of_training(folder: str | Path) -> Results:
    """What the training in a model folder told of itself."""
    lines = read_metrics(folder)
    trained = [line for line in lines if "seconds" in line]
    places = list(dict.fromkeys((line.get("hardware", ""), line.get("gpu_count")) for line in trained))
    (hardware, gpu_count), *others = places or [("", None)]
    if others:
        hardware, gpu_count = ", then ".join(f"{count} x {name}" for name, count in places), None
    steps = lines[-1]["step"] if lines else None
    # Of other steps, or of a few batches, it is not the model's.
    whole = [line for line in lines if line["step"] == steps and "dev_perplexity" in line and "eval_steps" not in line]
    perplexity = whole[-1]["dev_perplexity"] if whole else None
    return Results(
        steps=steps,
        dev_perplexity=perplexity if perplexity is not None and math.isfinite(perplexity) else None,  # it diverged
        train_seconds=trained[-1]["seconds"] if trained else None,
        hardware=hardware,
        gpu_count=gpu_count,
    )


def read_results(folder: str | Path) -> Results | None:
    """The results in a model folder, None where it has no results.json; keys of other names are left aside.

    Raises:
        UserError: the file is no JSON object, or a value is of another type.
    """
    path = Path(folder) / FILE
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); delete it, and measure again") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: holds no JSON object; delete it, and measure again")
    values = {}
    for name in (each.name for each in fields(Results)):
        if found.get(name) is None:
            continue
        wanted, holds = _KINDS[name]
        if not holds(found[name]):
            raise UserError(f"{path}: {name}={found[name]!r} must be {wanted}; delete the file, and measure again")
        values[name] = found[name]
    return Results(**values)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_COUNT = ("a whole number, 0 or more", _is_count)
_FIGURE = ("a number, 0 or more", _is_figure)
_KINDS = {
    "steps": _COUNT,
    "dev_perplexity": _FIGURE,
    "dev_bleu": _FIGURE,
    "bleu": (
        "an object of numbers by test set",
        lambda value: isinstance(value, dict) and all(map(_is_figure, value.values())),
    ),
    "f1": _FIGURE,
    "train_seconds": _FIGURE,
    "hardware": ("a string", _is_text),
    "gpu_count": _COUNT,
    "search": ("a string", _is_text),
    "signatures": ("a list of strings", lambda value: isinstance(value, list) and all(map(_is_text, value))),
}
