"""Which pairs of a split are kept, and how many are left out for which reason.

A pair with an empty side always goes: it teaches nothing. The rest is the user's choice and off by default, since the
paper cleaned nothing.
"""

from __future__ import annotations

import array
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from t2t_repro.corpora.parallel import Pair


class Cleaning:
    """Chooses pairs in a first pass over a split, and gives the same ones in each further pass.

    Args:
        max_words: leave out pairs with a side of more words, as spaces separate them; 0 keeps all.
        max_ratio: leave out pairs whose one side has more than so many times the words of the other; 0 keeps all.
        duplicates: whether to leave out what repeats an earlier pair, both sides alike.
    """

    def __init__(self, max_words: int = 0, max_ratio: float = 0.0, duplicates: bool = False) -> None:
        self._max_words, self._max_ratio, self._duplicates = max_words, max_ratio, duplicates
        self.read = 0
        """Pairs read in the first pass."""
        self.dropped: Counter[str] = Counter()
        """Pairs left out, by reason."""
        self._text = hashlib.sha256()
        self._hashes = array.array("Q")
        self._repeats = np.empty(0, np.bool_)

    @property
    def kept(self) -> int:
        """Pairs that stay."""
        return self.read - self.dropped.total()

    @property
    def fingerprint(self) -> str:
        """Hex digits that differ where the pairs kept in the first pass, or their order, differ."""
        return self._text.hexdigest()

    def first_pass(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs that stay; repeats, which are known only at the end, are among them."""
        for pair in pairs:
            self.read += 1
            if reason := self._reason(pair):
                self.dropped[reason] += 1
                continue
            text = f"{pair['inputs']}\n{pair['targets']}\n".encode()
            self._text.update(text)
            if self._duplicates:
                # Of 36 million pairs, two different ones share 64 bits once in 28,000 times.
                self._hashes.append(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))
            yield pair
        if self._duplicates:
            self._find_repeats()

    def _find_repeats(self) -> None:
        hashes = np.frombuffer(self._hashes, np.uint64)
        order = np.argsort(hashes, kind="stable")  # stable: the first of equals comes first
        self._repeats = np.zeros(len(hashes), np.bool_)
        self._repeats[order[1:]] = hashes[order[1:]] == hashes[order[:-1]]
        self._hashes = array.array("Q")
        self.dropped += Counter(duplicate=int(self._repeats.sum()))  # no entry where there is none

    def next_pass(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs that stay, of the same pairs as in the first pass."""
        candidates = (pair for pair in pairs if not self._reason(pair))
        if not self._duplicates:
            return candidates
        # A text that has grown meanwhile has pairs beyond the last; they are let through, and the count tells.
        repeats = itertools.chain(self._repeats, itertools.repeat(np.False_))
        return (pair for pair, repeat in zip(candidates, repeats, strict=False) if not repeat)

    def _reason(self, pair: Pair) -> str:
        """Why a pair is left out; "" where it stays."""
        if not pair["inputs"].strip() or not pair["targets"].strip():
            return "empty side"
        if self._max_words or self._max_ratio:
            fewer, more = sorted((len(pair["inputs"].split()), len(pair["targets"].split())))
            if self._max_words and more > self._max_words:
                return "too many words"
            if self._max_ratio and more > self._max_ratio * fewer:
                return "length ratio"
        return ""
