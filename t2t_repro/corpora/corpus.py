"""A corpus: a part of a split, with a weight and a target language."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Corpus:
    """A part of a split."""

    name: str = ""
    """Name in tables and logs; "" for none."""
    weight: float = 0.0
    """Share of the target tokens of each epoch, relative to the other corpora; 0: the share is that
    of its size.
    """
    target_language: str = ""
    """Language of the targets, e.g. "de", whose tag `>>de<<` precedes each source; "" if the
    sources have no tag.
    """


@dataclass(frozen=True)
class StoredCorpus(Corpus):
    """A corpus of the generated data. The description of the data has its fields."""

    start: int = 0
    stop: int = 0
    """Its records have the numbers `start` to `stop` - 1 in their split."""
    shards: int = 0
    text: str = ""
    """Hash of the text of its pairs, as hex digits."""
    text_bytes: int = 0
    byte_pieces: int = 0
    """Number of ids that stand for one byte."""
    tokens: dict = field(default_factory=dict)
    """Number of tokens on each side, under "inputs" and "targets"."""
    dropped: dict = field(default_factory=dict)
    """Number of pairs that t2t-datagen dropped, by reason."""

    @property
    def pairs(self) -> int:
        return self.stop - self.start
