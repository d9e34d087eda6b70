"""Selects the sentence pairs of a split (train or dev) to keep, and counts the dropped pairs by
reason.

A pair with an empty side is always dropped, because it teaches nothing. White space around a text
is always removed, because decoding removes it, too. The other rules are off by default, because the
paper describes no cleaning.
"""

import array
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from t2t_repro.corpora.corpus import Corpus
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data.vocabularies.tags import tag
from t2t_repro.data.vocabularies.text_rules import is_empty, utf8
from t2t_repro.errors import UserError, shortened


@dataclass
class Cleaning:
    """Selects the pairs of a corpus to keep. The first pass over it finds repeated pairs; later
    passes omit them.
    """

    max_words: int = 0
    """Maximum number of words on either side of a pair; 0 for no limit."""
    max_ratio: float = 0.0
    """Maximum number of words on one side, divided by that on the other; 0 for no limit."""
    drops_duplicates: bool = False
    """True to drop a pair if an earlier pair has the same source and target."""
    target_language: str = ""
    """Language whose tag precedes each source; the tag is no word of the source. "" for none."""
    seen: list[np.ndarray] | None = None
    """Sorted hashes of each earlier corpus, whose pairs count as earlier, too. The first pass
    appends its own.
    """
    pairs_read: int = 0
    """Number of pairs that the first pass has read."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Number of dropped pairs, by reason."""
    fingerprint: str = ""
    """Hash of the pairs that `first_pass` yielded, in their order, as hex digits."""
    kept_fingerprint: str = ""
    """Hash of the pairs to keep, in their order, as hex digits."""

    def __post_init__(self) -> None:
        self._tag = tag(self.target_language) if self.target_language else ""
        self._hashes = array.array("Q")
        self._is_repeat = np.empty(0, np.bool_)

    @property
    def pairs_kept(self) -> int:
        """Number of pairs to keep, which is known only after the first pass has ended."""
        return self.pairs_read - self.dropped.total()

    def first_pass(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields the pairs to keep, and also repeated pairs, which this method detects only after
        the last pair.
        """
        digest = hashlib.sha256()
        for pair in map(_stripped, pairs):
            self.pairs_read += 1
            if reason := self._reason(pair):
                self.dropped[reason] += 1
                continue
            text = pair_text(pair)
            digest.update(text)
            if self.drops_duplicates:
                self._hashes.append(pair_key(text))
            yield pair
        if self.drops_duplicates:
            self._find_repeats()
        self.fingerprint = digest.hexdigest()
        digest.update(np.flatnonzero(self._is_repeat).tobytes())
        self.kept_fingerprint = digest.hexdigest()

    def _find_repeats(self) -> None:
        hashes = np.frombuffer(self._hashes, np.uint64)
        # Stable, so that the earliest of equal pairs comes first.
        order = hashes.argsort(kind="stable")
        hashes = hashes[order]
        is_repeat = np.zeros(len(hashes), np.bool_)
        is_repeat[1:] = hashes[1:] == hashes[:-1]
        if self.seen is not None:
            for earlier in filter(len, self.seen):
                # Both are sorted. "clip" compares hashes that would follow the last earlier one
                # with this last one.
                places = np.searchsorted(earlier, hashes)
                is_repeat |= earlier.take(places, mode="clip") == hashes
            self.seen.append(hashes[~is_repeat])
        self._is_repeat = np.empty_like(is_repeat)
        self._is_repeat[order] = is_repeat
        self._hashes = array.array("Q")
        # += adds no entry for a count of 0.
        self.dropped += Counter(duplicate=int(is_repeat.sum()))

    def next_pass(self, pairs: Iterable[Pair], error: Exception) -> Iterator[Pair]:
        """Yields the pairs to keep, without repeated pairs. `pairs` are those that `first_pass` has
        read.

        Raises `error` after the last pair if they are other pairs than in the first pass. Pairs
        that are dropped in both passes may differ, unless they are repeats.
        """
        digest = hashlib.sha256()
        # If the text has grown since the first pass, there are more pairs than entries of
        # `_is_repeat`.
        is_repeat = itertools.chain(self._is_repeat, itertools.repeat(False))
        kept_pairs = itertools.filterfalse(self._reason, map(_stripped, pairs))
        for pair, is_repeated in zip(kept_pairs, is_repeat, strict=False):
            digest.update(pair_text(pair))
            if not is_repeated:
                yield pair
        if digest.hexdigest() != self.fingerprint:
            raise error

    def _reason(self, pair: Pair) -> str:
        """Returns why a pair is dropped, or "" if it is kept."""
        source = pair["inputs"].removeprefix(self._tag)
        target = pair["targets"]
        if is_empty(source) or is_empty(target):
            return "empty side"
        if self.max_words or self.max_ratio:
            fewer, more = sorted((len(source.split()), len(target.split())))
            if self.max_words and more > self.max_words:
                return "too many words"
            if self.max_ratio and more > self.max_ratio * fewer:
                return "length ratio"
        return ""


@dataclass
class CleanCorpus:
    """A corpus of a split, with the rules and counts of its cleaning."""

    split: str
    number: int
    """Number of the corpus in its split, from 0."""
    corpus: Corpus
    cleaning: Cleaning
    counts: Counter[str] = field(default_factory=Counter)
    """Bytes of the kept text and ids that stand for one byte, after the text was encoded; see
    `encoding.Encoded`.
    """
    stored: list[Path] = field(default_factory=list)
    """Finished shards with the same records; empty for none."""


def _stripped(pair: Pair) -> Pair:
    return {side: pair[side].strip() for side in ("inputs", "targets")}


def valid_pairs(problem: str, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yields the pairs of a problem. Raises UserError if a custom problem yields something else."""
    for pair in pairs:
        if not (
            isinstance(pair, dict)
            and all(isinstance(pair.get(side), str) for side in ("inputs", "targets"))
        ):
            raise UserError(
                f"problem {problem}: generate yielded {shortened(repr(pair))}; yield a dict with "
                'the strings "inputs" and "targets"'
            )
        yield pair


def pair_text(pair: Pair) -> bytes:
    """Returns the bytes of a pair from which hashes are computed."""
    return utf8(f"{pair['inputs']}\n{pair['targets']}\n")


def pair_key(text: bytes) -> int:
    """Returns the hash by which repeats of a pair with this `pair_text` are found.

    Hashes need little memory. The chance that any two of 36 million pairs share a hash is 1 in
    28,000.
    """
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
