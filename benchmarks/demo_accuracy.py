"""How many held-out numbers the demo translates exactly.

python benchmarks/demo_accuracy.py write demo/held_out             writes demo/held_out.en and demo/held_out.de
python benchmarks/demo_accuracy.py count demo/out.de demo/held_out.de
"""

from __future__ import annotations

import sys
from pathlib import Path

from t2t_repro import registry
from t2t_repro.textfile import read_lines


def write(prefix: str) -> None:
    """Writes the dev split of numbers_ende, which training never saw, as text."""
    pairs = list(registry.problem("numbers_ende").generate("dev", ""))
    for side, suffix in (("inputs", ".en"), ("targets", ".de")):
        Path(prefix + suffix).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


def count(translations: str, references: str) -> None:
    """Prints how many lines are the same."""
    pairs = list(zip(read_lines(translations), read_lines(references), strict=True))
    right = sum(translation == reference for translation, reference in pairs)
    print(f"{right} of {len(pairs)} held-out numbers exactly right ({right / len(pairs):.1%})")


if __name__ == "__main__":
    {"write": write, "count": count}[sys.argv[1]](*sys.argv[2:])
