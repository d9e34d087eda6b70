"""A score with a signature that states how it was computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAPER_BLEU = "BLEU, the paper's way"
"""Label of the score that is comparable with the paper's BLEU."""


@dataclass(frozen=True)
class Score:
    """The score of a whole text, such as a test set, by one metric.

    Attributes:
        label: name of the metric, with its variant after a comma: "BLEU, lower-cased".
        score: 0 to 100; higher is better.
        signature: how the score was computed, as name:value pairs in sacreBLEU's form. Only scores with equal
            signatures are comparable.
    """

    label: str
    score: float
    signature: str

    @property
    def name(self) -> str:
        """Name of the metric without its variant, as in metrics.jsonl: "bleu", "f1", "exact_matches"."""
        return "_".join(self.label.partition(",")[0].lower().split())


def exact_matches(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Returns a score: the percentage of outputs that equal their references.

    Raises:
        ValueError: if there are no outputs, or the numbers of outputs and references differ.
    """
    if not outputs or len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs but {len(references)} references")
    matches = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    return Score("exact matches", 100 * matches / len(outputs), "match:line|case:mixed")
