"""Results of decoding: translations with their hypotheses, and scores of given pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Hypothesis:
    """An output of the model."""

    text: str
    """The output as one line of text."""
    score: float
    """log P / length penalty in nats, including other penalties. For a text in segments, the sum of their scores."""
    ids: tuple[int, ...] = ()
    """The output's tokens. The last one is the end token, unless the output reached the length limit."""
    token_scores: tuple[float, ...] = ()
    """Log-probability of each token in nats, if the translator computed `details`; otherwise empty."""
    attention: tuple[int, ...] = ()
    """For each token, index of the source token that the decoder's last layer attends to most, if the translator
    computed `details`; otherwise empty."""


@dataclass(frozen=True)
class Translation:
    """The outputs for one text. The translation of an empty text is `EMPTY`."""

    hypotheses: tuple[Hypothesis, ...]
    """One or more outputs, best first; random outputs in the order in which they were drawn."""
    source_ids: tuple[int, ...] = ()
    """Tokens of the source. Each of its segments ends with an end token."""
    segments: int = 1
    """Number of segments into which the source was split; 1 if it was not split."""
    is_truncated: bool = False
    """True if the source was too long, so that its end was dropped."""

    @property
    def text(self) -> str:
        """The best output's text."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best output's score."""
        return self.hypotheses[0].score


EMPTY = Translation((Hypothesis("", 0.0),))


@dataclass(frozen=True)
class PairScore:
    """The model's log-probability of a given target, token by token."""

    token_scores: tuple[float, ...]
    """Log-probability of each target token in nats, including the end token."""
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
    """The file from which texts were read."""

    name: str = "texts"
    """The file's name in error messages."""
    line_numbers: Sequence[int] | None = None
    """Line number of each text, from 0. Random outputs depend on it. By default 0, 1, 2, ..."""

    def line_number(self, index: int) -> int:
        """Returns the line number of the text with this index."""
        return index if self.line_numbers is None else self.line_numbers[index]


UNKNOWN_FILE = InputFile()
