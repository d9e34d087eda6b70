"""Writes the dev split of numbers_ende, the problem that `make demo` learns, as text files.

`python benchmarks/demo_text.py demo/held_out` writes demo/held_out.en and demo/held_out.de.
"""

from __future__ import annotations

import sys
from pathlib import Path

from t2t_repro import registry


def write(prefix: str) -> None:
    """Writes the dev split of numbers_ende to `prefix`.en and `prefix`.de. The demo does not train
    on this split.
    """
    pairs = list(registry.problem("numbers_ende").generate("dev", ""))
    for side, suffix in (("inputs", ".en"), ("targets", ".de")):
        Path(prefix + suffix).write_text(
            "".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8"
        )


if __name__ == "__main__":
    write(sys.argv[1])
