"""A corpus: a part of a split, with a weight and a target language."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Corpus:
    """A part of a split."""

    name: str = ""
    """Name in tables and logs; "" if the split has no other corpus."""
    weight: float = 0.0
    """Share of the target tokens of each epoch, relative to the other corpora; 0: the share is that of its size."""
    target_language: str = ""
    """Language of the targets, e.g. "de", whose tag `>>de<<` precedes each source; "" if the sources have no tag."""


@dataclass(frozen=True)
class CorpusRange(Corpus):
    """A corpus whose records have the numbers `start` to `stop` - 1 in their split."""

    start: int = 0
    stop: int = 0
