"""Inputs and results of decoding: lines with tags, translations with their hypotheses, and scores
of pairs.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t2t_repro.data.vocabularies.tags import language_of, split_tag, tag
from t2t_repro.data.vocabularies.text_rules import is_empty
from t2t_repro.errors import UserError, refuse_unknown, unknown


@dataclass(frozen=True)
class Hypothesis:
    """An output of the model for a source, with its score."""

    text: str
    """The output as one line of text."""
    score: float
    """Log-probability / length penalty, in nats, lowered by the repetition and coverage penalties
    if they are used. For a split text, the sum of its segments' scores.
    """
    ids: tuple[int, ...] = ()
    """The output's token ids. The last id is the end token, unless the output reached the length
    limit.
    """
    token_scores: tuple[float, ...] = ()
    """Log-probability of each token in nats; empty unless `Translator.translate` got details=True.
    """
    attention: tuple[int, ...] = ()
    """For each token, index of the source token that the decoder's last layer attends to most;
    empty unless `Translator.translate` got details=True.
    """


@dataclass(frozen=True)
class Translation:
    """The model's outputs for one text; `EMPTY` for an empty text."""

    hypotheses: tuple[Hypothesis, ...]
    """One or more outputs. Beam search puts the best first; random outputs are in the order in
    which they are drawn.
    """
    source_ids: tuple[int, ...] = ()
    """Token ids of the source. Each segment of the source ends with an end token."""
    segments: int = 1
    """Number of segments into which the source was split; 1 if it was not split."""
    is_truncated: bool = False
    """True if the source was too long and its end was dropped."""

    @property
    def text(self) -> str:
        """Text of the first hypothesis."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """Score of the first hypothesis."""
        return self.hypotheses[0].score


EMPTY = Translation((Hypothesis("", 0.0),))


@dataclass(frozen=True)
class PairScore:
    """The model's log-probability of each token of a target, given the source."""

    token_scores: tuple[float, ...]
    """Log-probability of each target token in nats; the last token is the end token."""
    attention: tuple[int, ...]
    """For each target token, index of the source token that the decoder's last layer attends to
    most; empty if the model has no attention.
    """

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole target, in nats."""
        return float(np.sum(self.token_scores))

    @property
    def mean(self) -> float:
        """Mean log-probability of a target token, counting the end token, in nats."""
        return self.log_prob / len(self.token_scores)


@dataclass(frozen=True)
class InputFile:
    """The name of a file from which texts were read, and the texts' line numbers."""

    name: str = "texts"
    line_numbers: Sequence[int] = range(sys.maxsize)
    """Line number of each text, from 0. A text's random outputs depend on its line number."""


UNKNOWN_FILE = InputFile()


def with_tags(
    texts: Sequence[str],
    tags: Sequence[str],
    target_language: str = "",
    input_file: InputFile = UNKNOWN_FILE,
) -> list[str]:
    """Returns the texts, in which each text without a tag now begins with the tag of the target
    language.

    Empty texts stay as they are. If the model needs no tags, `tags` is empty, and all texts stay as
    they are.

    Raises UserError, which names the line in `input_file`, if a text has another tag, or none and
    no `target_language` is given; and if the model does not have this language.
    """
    if not tags:
        if target_language:
            raise UserError(
                f"--target_language={target_language}: the model has only one target language; "
                "omit it"
            )
        return list(texts)
    languages = list(map(language_of, tags))
    if target_language:
        refuse_unknown("--target_language", target_language, languages)
    tagged = []
    for text, line_number in zip(texts, input_file.line_numbers, strict=False):
        own_tag, _ = split_tag(text)
        place = f"{input_file.name}:{line_number + 1}"
        if own_tag and own_tag not in tags:
            raise UserError(f"{place}: {unknown('tag', own_tag, tags)}")
        needs_tag = not own_tag and not is_empty(text)
        if needs_tag and not target_language:
            raise UserError(
                f"{place}: no target language; begin the line with its tag, e.g. {tags[0]}, or "
                f"give t2t-decoder --target_language; the languages are {', '.join(languages)}"
            )
        tagged.append(f"{tag(target_language)} {text}" if needs_tag else text)
    return tagged
