"""Compares translations of one text: are their scores different, or could the difference be chance?

sacreBLEU computes two tests of the difference between the first translation, the baseline, and each
other one: paired bootstrap resampling (Koehn 2004) and paired approximate randomization (Riezler
and Maxwell 2005).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest


@dataclass(frozen=True)
class Compared:
    """A translation's score by one metric, beside that of the baseline."""

    name: str
    score: float
    """Score of all lines, 0 to 100."""
    interval: float
    """Half the width of the interval that holds 95% of the scores of resampled lines."""
    bootstrap_p: float | None
    """Probability, by the bootstrap, of a difference to the baseline at least this large by chance.
    None for the baseline. 1 if the lines equal the baseline's; sacreBLEU would compute 0.
    """
    randomization_p: float | None
    """The same probability, by approximate randomization."""


def compare(
    translations: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]], metric: Metric
) -> tuple[list[Compared], str]:
    """Returns a row for each translation, the baseline's first, and the signature of the metric and
    the tests.

    `translations` has the lines of each translation by name, the baseline's first.
    """
    tests = [
        PairedTest([*translations.items()], {"metric": metric}, references, kind)()
        for kind in ("bs", "ar")
    ]
    [label] = tests[0][0]
    signature, other_signature = (signatures[label] for signatures, _ in tests)
    signature.update("ar", other_signature.info["ar"])
    baseline, *_ = translations.values()
    rows: list[Compared] = []
    for (name, lines), *results in zip(
        translations.items(), *(results[label] for _, results in tests), strict=True
    ):
        is_same = bool(rows) and lines == baseline
        p_values = [1.0 if is_same else result.p_value for result in results]
        rows.append(Compared(name, float(results[0].score), float(results[0].ci), *p_values))
    return rows, str(signature)
