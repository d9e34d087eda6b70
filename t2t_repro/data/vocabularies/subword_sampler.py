"""Spells words with random pieces: BPE-dropout (Provilkov et al. 2020) and subword regularization (Kudo 2018).

SentencePiece 0.2.3 can sample, too. But from the same seed, it samples other pieces in each process, so a run could not
resume exactly.

In comments, a *split* of a word is a sequence of pieces that spells it.
"""

import abc
import bisect
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

SPACE = "\u2581"
"""The character that stands for a space in SentencePiece's pieces."""
CACHED = 1 << 18
"""Maximum number of results for words that a sampler remembers. They need about 100 MB."""

Ids = tuple[int, ...]
Ends = tuple[list[float], list[tuple[int, Ids]]]
"""Possible ends of a beginning of a word: their cumulative weights, and the ends as (start in the word, ids)."""


class SubwordSampler(abc.ABC):
    """Replaces the ids of a text by those of other pieces that spell the same text.

    Words, which begin with a space, are sampled one by one. Ids that are not in `pieces`, such as the end, stay.

    Args:
        pieces: the pieces and their scores by id.
        alpha: the hparam subword_alpha.
    """

    def __init__(self, pieces: Mapping[int, tuple[str, float]], alpha: float) -> None:
        self.pieces, self.alpha = pieces, alpha
        self.id_of = {piece: number for number, (piece, _) in pieces.items()}
        self._inside = {number for number, (piece, _) in pieces.items() if not piece.startswith(SPACE)}

    def __call__(self, ids: Sequence[int], random: Random) -> list[int]:
        """Returns the new ids of a text."""
        sampled, draw = list[int](), self.draws(random)
        bounds = [place for place, number in enumerate(ids) if number not in self._inside or not place]
        for start, stop in itertools.pairwise([*bounds, len(ids)]):
            if ids[start] not in self.pieces:
                sampled.append(ids[start])
                start += 1
            if start < stop:
                sampled += draw(tuple(ids[start:stop]))
        return sampled

    def text(self, word: Ids) -> str:
        return "".join([self.pieces[number][0] for number in word])

    @abc.abstractmethod
    def draws(self, random: Random) -> Callable[[Ids], Ids]:
        """Returns a function that returns the ids of a random split of a word."""


class MergeSampler(SubwordSampler):
    """Skips each merge of two pieces with probability alpha. As in SentencePiece, it is not tried again."""

    def __init__(self, pieces: Mapping[int, tuple[str, float]], alpha: float) -> None:
        super().__init__(pieces, alpha)
        self._costs = {piece: -score for piece, score in pieces.values() if len(piece) > 1}
        self._merged = functools.lru_cache(CACHED)(self._merge)

    def draws(self, random: Random) -> Callable[[Ids], Ids]:
        scale = 1 / math.log1p(-self.alpha)

        def gap() -> int:  # number of merges before the next that is skipped, from the geometric distribution
            return int(math.log(1 - random.random()) * scale)

        before_skip = gap()

        def draw(word: Ids) -> Ids:
            nonlocal before_skip
            skipped = Ids()
            count, ids = self._merged(word, skipped)
            while before_skip < count:
                skipped += (before_skip,)
                before_skip += 1 + gap()
                count, ids = (self._merged if len(skipped) < 2 else self._merge)(word, skipped)
            before_skip -= count
            return ids

        return draw

    def _merge(self, word: Ids, skipped: Ids) -> tuple[int, Ids]:
        """Merges characters, but skips the merges whose numbers are in `skipped`.

        Returns the number of merges, with those that were skipped, and the ids.
        """
        text, costs = self.text(word), self._costs
        after = [*range(1, len(text) + 1), 0]  # where the piece that starts here ends; 0 if none starts here
        before = list(range(-1, len(text)))  # where the piece that ends here starts
        queue = [
            (costs[pair], start, start + 1, start + 2)
            for start, pair in enumerate(map(operator.add, text, text[1:]))
            if pair in costs
        ]
        heapq.heapify(queue)
        count = 0
        while queue:
            _, start, middle, end = heapq.heappop(queue)
            if after[start] != middle or after[middle] != end:
                continue
            if count not in skipped:
                after[start], after[middle], before[end] = end, 0, start
                for left, right, stop in ((before[start], start, end), (start, end, after[end])):
                    if (cost := costs.get(text[left:stop])) is not None:  # the text is empty at the ends of the word
                        heapq.heappush(queue, (cost, left, right, stop))
            count += 1
        ids = [self.id_of.get(text[start:end]) for start, end in enumerate(after) if end]
        return count, word if None in ids else tuple(ids)  # type: ignore[arg-type]


class UnigramSampler(SubwordSampler):
    """Draws splits with weights exp(alpha * score), of all splits or of the `nbest_size` with the highest scores."""

    def __init__(self, pieces: Mapping[int, tuple[str, float]], alpha: float, nbest_size: int) -> None:
        super().__init__(pieces, alpha)
        self._longest, self._nbest_size = max(map(len, self.id_of)), nbest_size
        self._ends = functools.lru_cache(CACHED)(self._all_ends if nbest_size < 0 else self._best_ends)

    def draws(self, random: Random) -> Callable[[Ids], Ids]:
        def draw(word: Ids) -> Ids:
            table, ids = self._ends(word), Ids()
            end = len(table) - 1
            while end:
                weights, ends = table[end]
                place = bisect.bisect(weights, random.random() * weights[-1], hi=len(weights) - 1)
                end, last = ends[place]
                ids = last + ids
            return ids

        return draw

    def _last_pieces(self, text: str, end: int) -> Iterator[tuple[int, int, float]]:
        """Yields the start, the id and the score of each piece that ends at `end`."""
        for start in range(max(0, end - self._longest), end):
            if (number := self.id_of.get(text[start:end])) is not None:
                yield start, number, self.pieces[number][1]

    def _all_ends(self, word: Ids) -> list[Ends]:
        """Returns, for each beginning of the word, its last pieces, weighted by the sum over all splits before them."""
        text, totals = self.text(word), [0.0]
        table: list[Ends] = [([], [])]
        for end in range(1, len(text) + 1):
            last = list(self._last_pieces(text, end))
            logs = [totals[start] + self.alpha * score for start, _, score in last]
            weights = _cumulative(logs)
            totals.append(max(logs) + math.log(weights[-1]) if weights and weights[-1] else -math.inf)
            table.append((weights, [(start, (number,)) for start, number, _ in last]))
        return table

    def _best_ends(self, word: Ids) -> list[Ends]:
        """Returns the best splits as the ends of the whole word."""
        text, best = self.text(word), [[(0.0, Ids())]]
        for end in range(1, len(text) + 1):
            splits = (
                (total + score, (*ids, number))
                for start, number, score in self._last_pieces(text, end)
                for total, ids in best[start]
            )
            best.append(heapq.nlargest(self._nbest_size, splits))
        weights = _cumulative([self.alpha * score for score, _ in best[-1]])
        return [*[([], [])] * len(text), (weights, [(0, ids) for _, ids in best[-1]])]


def _cumulative(logs: list[float]) -> list[float]:
    """Returns the cumulative sums of exp(log), scaled so that the largest summand is 1."""
    largest = max(logs, default=-math.inf)
    return list(itertools.accumulate(math.exp(log - largest) for log in logs if largest > -math.inf))
