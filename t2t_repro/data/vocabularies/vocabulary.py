"""The interface of vocabularies. `kinds.py` lists the kinds, which the other files of this folder
hold.

In shapes, V is the size of the vocabulary.
"""

from __future__ import annotations

import abc
import copy
import functools
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from t2t_repro.data.vocabularies.subword_sampler import SubwordSampler
from t2t_repro.data.vocabularies.tags import is_tag, split_tag
from t2t_repro.data.vocabularies.text_rules import EOS_ID, output_length
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import write_file

MAX_PIECES = 1_000_000
"""Maximum number of pieces in a vocabulary file."""
MAX_CACHED = 1 << 18
"""Maximum number of words whose ids a vocabulary remembers."""


class Vocabulary(abc.ABC):
    """Encodes text as ids, and decodes ids to text. Id 0 is padding and id 1 is the end of a text.

    If sources and targets have different vocabularies, the vocabulary of the targets holds that of
    the sources. `model` has the contents of the vocabulary's file; UserError if they are damaged or
    not of this kind. Error messages name the file by `source`.
    """

    kind: ClassVar[str]
    """Name of the kind of vocabulary. tensor2tensor's kinds have the names of its VocabType."""
    suffix: ClassVar[str]
    """End of the names of our files of this kind."""
    unknown_id: int | None = None
    """Id of everything that has no other ids; None if there is none."""
    _all_pieces: list[str]

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        self.model = model
        self.source = source
        self._sources: Vocabulary | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes `pickle` store the file's contents and name. t2t-datagen sends vocabularies to
        other processes.
        """
        return type(self), (self.model, self.source), {"_sources": self._sources}

    @property
    def sources(self) -> Vocabulary:
        """The vocabulary of the sources: this vocabulary, or another one if `with_sources` was
        called.
        """
        return self._sources or self

    @property
    def separate_source_size(self) -> int:
        """Number of ids in the vocabulary of the sources; 0 if sources and targets share one
        vocabulary.
        """
        return self._sources.size if self._sources else 0

    def with_sources(self, sources: Vocabulary) -> Vocabulary:
        """Returns this vocabulary for targets, together with a vocabulary for sources. They may be
        the same.
        """
        vocabulary = copy.copy(self)
        vocabulary._sources = sources if sources.fingerprint != self.fingerprint else None
        return vocabulary

    @functools.cached_property
    def tags(self) -> dict[str, int]:
        """Id of each tag of a target language, such as ">>de<<", in the sources' vocabulary."""
        pieces = enumerate(self.sources._all_pieces)
        return {piece: number for number, piece in pieces if is_tag(piece)}

    def split_tags(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Returns one of `tags` and the text after it for each text that begins with it; else ""
        and the text.
        """
        if not self.tags:
            return [("", text) for text in texts]
        pairs = []
        for text in texts:
            tag, rest = split_tag(text)
            pairs.append((tag, rest) if tag in self.tags else ("", text))
        return pairs

    def encode_sources(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """Returns the ids of each text to translate, with the end id. As in tensor2tensor, texts
        are stripped.

        White space around a text would have tokens that hardly occur in training. If a text begins
        with one of `tags`, its first id stands for the tag, and the others for the text after the
        tag. A SentencePiece vocabulary uses `num_threads` threads, by default one per core.
        """
        pairs = self.split_tags(texts)
        rows = self.sources.encode([text.strip() for _, text in pairs], num_threads)
        for (tag, _), row in zip(pairs, rows, strict=True):
            if tag:
                row.insert(0, self.tags[tag])
        return rows

    def decode_sources(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each source, with its tag."""
        tag_of = {number: tag for tag, number in self.tags.items()}
        tags = [tag_of.get(row[0]) for row in ids]
        untagged_ids = [row[1:] if tag else row for tag, row in zip(tags, ids, strict=True)]
        texts = self.sources.decode(untagged_ids)
        return [f"{tag} {text}" if tag else text for tag, text in zip(tags, texts, strict=True)]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each target or prefix, with the end id, without the white space around
        it.
        """
        return self.encode([text.strip() for text in texts])

    def save(self, path: str | Path) -> None:
        """Writes the vocabulary to a file. An error leaves no partial file."""
        write_file(path, self.model)

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that identify the vocabulary, and also that of the sources if it is
        another one.
        """
        # Two kinds can read the same file differently. Only SentencePiece's files are hashed
        # without their kind.
        kind = "" if self.kind == "sentencepiece" else self.kind
        fingerprint = hashlib.sha256(kind.encode() + self.model).hexdigest()[:12]
        if self._sources:
            both = f"{self._sources.fingerprint} {fingerprint}"
            fingerprint = hashlib.sha256(both.encode()).hexdigest()[:12]
        return fingerprint

    @property
    def size(self) -> int:
        """Number of ids in the vocabulary."""
        return len(self._all_pieces)

    @functools.cached_property
    def is_byte(self) -> np.ndarray:
        """bool [V]: True for each id that stands for a single byte of a character outside the
        alphabet.
        """
        return np.zeros(self.size, bool)

    def missing_symbols(self, symbols: Iterable[str]) -> list[str]:
        """Returns the strings in `symbols` that the vocabulary does not encode as a single id in
        every text.
        """
        return list(symbols)

    @abc.abstractmethod
    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """Returns the ids of each text, including the end id.

        A SentencePiece vocabulary uses `num_threads` threads, by default one per core. Other kinds
        use one.
        """

    def sampler(self, alpha: float, nbest_size: int) -> SubwordSampler:
        """Returns the sampler for hparams subword_alpha and subword_nbest_size. UserError if there
        is none.
        """
        raise UserError(
            f"{self.source}: subword_alpha needs a SentencePiece vocabulary, not {self.kind}; "
            "omit it"
        )

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the piece of each id, as the vocabulary's file writes it.

        Raises UserError if an id is not in the vocabulary. Such an id can come from a damaged
        journal of t2t-decoder.
        """
        if outside := [number for number in ids if not 0 <= number < self.size]:
            raise UserError(
                f"id {outside[0]} is not in the vocabulary of {self.size}; delete the unfinished "
                "output"
            )
        return [self._all_pieces[number] for number in ids]

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of ids. Ignores the first end or padding id and all
        later ids, and ids that are not in the vocabulary.
        """
        texts = []
        for sequence in ids:
            row = sequence[: output_length(sequence)]
            texts.append(self._text([int(number) for number in row if number < self.size]))
        return texts

    @abc.abstractmethod
    def _text(self, ids: list[int]) -> str:
        """Returns the text of ids of the vocabulary."""


class ListVocabulary(Vocabulary):
    """A vocabulary that encodes single texts, one after another."""

    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        return [[*self._ids(text), EOS_ID] for text in texts]

    @abc.abstractmethod
    def _ids(self, text: str) -> list[int]:
        """Returns the ids of a text without the end id."""


def ids_by_piece(pieces: Sequence[str], first_id: int) -> dict[str, int]:
    """Returns the id of each piece that a text can contain: all from `first_id` on, except "". If a
    piece is repeated, its last id counts.
    """
    return {piece: number for number, piece in enumerate(pieces) if piece and number >= first_id}
