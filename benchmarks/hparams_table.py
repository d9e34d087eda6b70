"""Writes the tables of all hparams into docs/hparams.md, from the fields of the classes of hparams.

`python benchmarks/hparams_table.py`
"""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path

from t2t_repro import registry
from t2t_repro.bin.program import field_help
from t2t_repro.hparam import HParams

PAGE = Path(__file__).parents[1] / "docs" / "hparams.md"
HEADING = "## All hparams\n"


def tables() -> str:
    """Returns the end of the page: a table of the hparams of all models, and one for each model
    with others.
    """
    text = f"{HEADING}\nThe defaults are those of the paper's base model.\n\n{_table(HParams)}"
    for model in registry._models.names():
        kind = registry.hparams_class(model)
        if kind is not HParams:
            unused = ", ".join(f"`{name}`" for name in kind.unused)
            sentence = (
                textwrap.fill(f"This model does not have {unused}.", 120) + "\n" if unused else ""
            )
            text += f"\n### {model}\n" + "".join(
                f"\n{part}" for part in (sentence, _table(kind)) if part
            )
    return text


def _table(kind: type[HParams]) -> str:
    """Returns a table of the fields of a class, without those of `HParams` that are the same."""
    classes = [base for base in reversed(kind.__mro__) if dataclasses.is_dataclass(base)]
    help = {name: text for base in classes for name, text in field_help(base).items()}
    rows = []
    same = {} if kind is HParams else vars(HParams()) | {"model": kind.model}
    for field in dataclasses.fields(kind):
        if field.name not in same or field.default != same[field.name]:
            default = (
                str(field.default).lower() if isinstance(field.default, bool) else field.default
            )
            default = '""' if default == "" else default
            meaning = help[field.name].replace("*", r"\*").replace("|", r"\|")
            rows.append(f"| `{field.name}` | `{default}` | {meaning} |")
    return (
        "\n".join(["| hparam | default | meaning |", "| --- | --- | --- |", *rows, ""])
        if rows
        else ""
    )


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text("utf-8").partition(HEADING)[0] + tables(), "utf-8")
