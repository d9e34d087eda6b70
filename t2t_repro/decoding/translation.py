"""Results of decoding: translations with their hypotheses, and scores of given pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Hypothesis:
    """An output of the model."""

    text: str
    """One line."""
    score: float
    """log P / length penalty in nats, after other penalties; for a text in segments, the sum of their scores."""
    ids: tuple[int, ...] = ()
    """Tokens, with the end token unless the output reached the length limit."""
    token_scores: tuple[float, ...] = ()
    """Log-probability of each token, in nats; empty without `details`."""
    attention: tuple[int, ...] = ()
    """For each token, index of the source token that the decoder's last layer attends to most; empty without
    `details`."""


@dataclass(frozen=True)
class Translation:
    """The outputs for one text; `EMPTY` for an empty text."""

    hypotheses: tuple[Hypothesis, ...]
    """One or more, best first; random outputs in the order in which they were drawn."""
    source_ids: tuple[int, ...] = ()
    """The source's tokens; each segment ends with an end token."""
    segments: int = 1
    """Number of segments that were translated separately."""
    is_truncated: bool = False
    """True if the text was too long and lost its end."""

    @property
    def text(self) -> str:
        """The best output."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best output's score."""
        return self.hypotheses[0].score


EMPTY = Translation((Hypothesis("", 0.0),))


@dataclass(frozen=True)
class PairScore:
    """The model's probability of a given target."""

    token_scores: tuple[float, ...]
    """Log-probability of each target token, the end token included, in nats."""
    attention: tuple[int, ...]
    """For each target token, index of the source token that the decoder's last layer attends to most."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole target, in nats."""
        return float(np.sum(self.token_scores))

    @property
    def mean(self) -> float:
        """Log-probability per token, in nats."""
        return self.log_prob / len(self.token_scores)


@dataclass(frozen=True)
class InputFile:
    """The file that texts come from."""

    name: str = "texts"
    """For error messages."""
    line_numbers: Sequence[int] | None = None
    """The texts' line numbers, counted from 0, which decide random outputs; by default 0, 1, 2, ..."""

    def line_number(self, index: int) -> int:
        """Returns the line number of the text with this index."""
        return index if self.line_numbers is None else self.line_numbers[index]


UNKNOWN_FILE = InputFile()
