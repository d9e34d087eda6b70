"""A score with a signature that states how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass

F1 = "F1"
"""Label of EVALB's F1 of a parser's outputs."""
PAPER_BLEU = "BLEU, the paper's way, as released"
"""Label of BLEU by the first version of tensor2tensor's get_ende_bleu.sh, which leaves punctuation
as it is.
"""
PAPER_BLEU_ASCII = "BLEU, the paper's way, ASCII punctuation"
"""Label of `PAPER_BLEU`'s score, computed after Unicode punctuation was replaced in translations
and references.
"""


@dataclass(frozen=True)
class Score:
    """The score of a whole text, such as a test set, by one metric."""

    label: str
    """Name of the metric, with its variant after a comma: "BLEU, lower-cased"."""
    score: float
    """0 to 100; higher is better."""
    signature: str
    """How the score was computed, as name:value pairs in sacreBLEU's form. Only scores with equal
    signatures are comparable.
    """

    @property
    def name(self) -> str:
        """Name of the metric without its variant, as in metrics.jsonl: "bleu", "f1",
        "exact_matches".
        """
        return "_".join(self.label.partition(",")[0].lower().split())


def main_scores(scores: Sequence[Score]) -> list[Score]:
    """Returns the scores without variants of metrics, such as "BLEU, lower-cased"."""
    return [score for score in scores if "," not in score.label]


def score_lines(scores: Sequence[Score]) -> list[str]:
    """Returns a line for each score: the score, its label and its signature, in columns."""
    width = max(len(score.label) for score in scores)
    return [f"{score.score:6.2f}  {score.label:<{width}}  {score.signature}" for score in scores]


def exact_matches(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Returns a score: the percentage of outputs that equal their references. There must be an
    output.
    """
    matches = sum(
        output == reference for output, reference in zip(outputs, references, strict=True)
    )
    return Score("exact matches", 100 * matches / len(outputs), "match:line|case:mixed")
