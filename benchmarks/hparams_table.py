"""Writes the tables of all hparams into docs/hparams.md, from the fields of the classes of hparams.

`python benchmarks/hparams_table.py`
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_repro import registry
from t2t_repro.bin.program import field_help
from t2t_repro.hparam import MAX_INT, POSITIVE, RATE, HParams, text_of, traits

PAGE = Path(__file__).parents[1] / "docs" / "hparams.md"
HEADING = "## All hparams\n"


def tables() -> str:
    """Returns the end of the page: a table of the hparams of all models, and one for each model
    with others.
    """
    text = f"{HEADING}\nThe defaults are those of the paper's base model.\n\n{_table(HParams)}"
    for model in registry._models.names():
        kind = registry.hparams_class(model)
        if kind is HParams:
            continue
        text += f"\n### {model}\n"
        if kind.unused:
            unused = ", ".join(f"`{name}`" for name in kind.unused)
            text += f"\n{textwrap.fill(f'This model does not have {unused}.', 120)}\n"
        if table := _table(kind):
            text += f"\n{table}"
    return text


def _table(kind: type[HParams]) -> str:
    """Returns a table of the fields of a class, without those of `HParams` that are the same; "" if
    all are.
    """
    classes = [base for base in reversed(kind.__mro__) if dataclasses.is_dataclass(base)]
    help = {name: text for base in classes for name, text in field_help(base).items()}
    same = {} if kind is HParams else vars(HParams()) | {"model": kind.model}
    rows = [
        _row(kind, field, help[field.name])
        for field in dataclasses.fields(kind)
        if field.name not in same or field.default != same[field.name]
    ]
    if not rows:
        return ""
    heading = ["| hparam | default | values | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([*heading, *rows, ""])


def _row(kind: type[HParams], field: dataclasses.Field[Any], meaning: str) -> str:
    own = traits(kind, field.name)
    for setting, values in own.needs.items():
        meaning += f" Only with {' or '.join(values)} in {setting}."
    if own.flag:
        meaning += f" The flag --{own.flag} overrides it."
    meaning = meaning.replace("*", r"\*").replace("|", r"\|")
    default = text_of(field.default)
    return f"| `{field.name}` | `{default}` | {_values(field.default, own.allowed)} | {meaning} |"


def _values(default: Any, allowed: Sequence[Any]) -> str:
    """Returns the values that a field can have; "" if all of its type."""
    if isinstance(default, bool):
        return "true, false"
    if not allowed or isinstance(default, str):
        return ", ".join(allowed)
    low, high = allowed
    lower = "more than 0" if low == POSITIVE[0] else f"at least {low:,}"
    special = {MAX_INT: "", POSITIVE[1]: "", RATE[1]: ", less than 1"}
    return lower + special.get(high, f", at most {high:,}")


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text("utf-8").partition(HEADING)[0] + tables(), "utf-8")
