"""A corpus: a part of a split, with a weight and a target language."""

import math
from dataclasses import dataclass, field

from t2t_repro.errors import UserError


@dataclass(frozen=True)
class Corpus:
    """A part of a split."""

    name: str = ""
    """Name in tables and logs; "" for none."""
    weight: float = 0.0
    """Share of the target tokens of each epoch, relative to the other corpora; 0: the share is that of its size."""
    target_language: str = ""
    """Language of the targets, e.g. "de", whose tag `>>de<<` precedes each source; "" if the sources have no tag."""


@dataclass(frozen=True)
class CorpusRange(Corpus):
    """A corpus whose records have the numbers `start` to `stop` - 1 in their split."""

    start: int = 0
    stop: int = 0


@dataclass(frozen=True)
class StoredCorpus(Corpus):
    """A corpus of the generated data. The description of the data has its fields."""

    pairs: int = 0
    """Number of pairs in its shards."""
    dropped: dict = field(default_factory=dict)
    """Number of pairs that t2t-datagen dropped, by reason."""
    tokens: dict = field(default_factory=dict)
    """Number of tokens on each side, under "inputs" and "targets"."""
    counts: dict = field(default_factory=dict)
    """Number of bytes in its text and of ids that stand for one byte; see `encoding.Encoded`."""
    text: str = ""
    """Hash of the text of its pairs, as hex digits."""
    shards: int = 0
    """Number of its shards."""

    def __post_init__(self) -> None:
        """Raises UserError if a number is negative or the weight is not finite."""
        if not (min(self.pairs, self.shards) >= 0 and 0 <= self.weight < math.inf):
            raise UserError(f"corpus {self.name}: pairs, shards and weight must be 0 or more; restore the file")
