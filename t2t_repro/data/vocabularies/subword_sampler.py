"""Spells words with random pieces: BPE-dropout (Provilkov et al. 2020) and subword regularization
(Kudo 2018).

SentencePiece 0.2.3 can sample, too. But from the same seed, it samples other pieces in each
process, so a run could not resume exactly.

In comments, a *split* of a word is a sequence of pieces that spells it.
"""

import abc
import bisect
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from random import Random

from t2t_repro.data.vocabularies.text_rules import SPACE

CACHED = 1 << 18
"""Maximum number of results for words that a sampler remembers, in about 100 MB. It remembers fewer
large ones.
"""

Ids = tuple[int, ...]


class SubwordSampler(abc.ABC):
    """Replaces the ids of a text by the ids of other pieces that spell the same text.

    Words, which begin with a space, are sampled one by one. Ids that are not in `pieces`, such as
    the end, stay. `pieces` has the pieces and their scores by id, and `alpha` is the hparam
    subword_alpha.
    """

    def __init__(self, pieces: Mapping[int, tuple[str, float]], alpha: float) -> None:
        self.pieces = pieces
        self.alpha = alpha
        self.id_of = {piece: number for number, (piece, _) in pieces.items()}
        self._inside = {
            number for number, (piece, _) in pieces.items() if not piece.startswith(SPACE)
        }

    def __call__(self, ids: Sequence[int], random: Random) -> list[int]:
        sampled = list[int]()
        draw = self.draws(random)
        # A word begins at each piece that is not inside a word, and at the first piece.
        starts = [
            place for place, number in enumerate(ids) if not place or number not in self._inside
        ]
        for start, stop in itertools.pairwise([*starts, len(ids)]):
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
    """Skips each merge of two pieces with probability alpha. As in SentencePiece, it is not tried
    again.
    """

    def __init__(self, pieces: Mapping[int, tuple[str, float]], alpha: float) -> None:
        super().__init__(pieces, alpha)
        self._costs = {piece: -score for piece, score in pieces.values() if len(piece) > 1}
        self._merged = functools.lru_cache(CACHED)(self._merge)

    def draws(self, random: Random) -> Callable[[Ids], Ids]:
        scale = 1 / math.log1p(-self.alpha)

        def gap() -> int:
            """Draws the number of merges before the next skipped one: geometric distribution."""
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
        text = self.text(word)
        costs = self._costs
        # Where the piece that starts here ends; 0 if none starts here.
        after = [*range(1, len(text) + 1), 0]
        # Where the piece that ends here starts.
        before = list(range(-1, len(text)))
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
                after[start] = end
                after[middle] = 0
                before[end] = start
                for left, right, stop in ((before[start], start, end), (start, end, after[end])):
                    # At the ends of the word, a neighbour is missing. Its text is empty then.
                    cost = costs.get(text[left:stop])
                    if cost is not None:
                        heapq.heappush(queue, (cost, left, right, stop))
            count += 1
        ids = [self.id_of.get(text[start:end]) for start, end in enumerate(after) if end]
        return count, word if None in ids else tuple(ids)  # type: ignore[arg-type]


def _drawn_place(weights: list[float], random: Random) -> int:
    """Returns a random index. `weights` are cumulative."""
    return bisect.bisect(weights, random.random() * weights[-1], hi=len(weights) - 1)


class UnigramSampler(SubwordSampler):
    """Draws a split with probability proportional to exp(alpha * score). Its score is the sum of
    its pieces' scores.
    """

    def __init__(self, pieces: Mapping[int, tuple[str, float]], alpha: float) -> None:
        super().__init__(pieces, alpha)
        self.longest = max(map(len, self.id_of))
        # A factor for each character keeps products of many weights in the range of floats.
        shift = sum(score / len(piece) for piece, score in pieces.values()) / len(pieces)
        self._weight_of = {
            piece: (math.exp(alpha * (score - shift * len(piece))), number)
            for number, (piece, score) in pieces.items()
        }
        self._last_pieces = functools.lru_cache(CACHED // 4)(self._find_last_pieces)

    def draws(self, random: Random) -> Callable[[Ids], Ids]:
        def draw(word: Ids) -> Ids:
            text, table = self._last_pieces(word)
            ids = []
            end = len(text)
            while end:
                weights, numbers = table[end]
                place = _drawn_place(weights, random)
                ids.append(numbers[place])
                end -= len(self.pieces[numbers[place]][0])
            return tuple(reversed(ids))

        return draw

    def _find_last_pieces(self, word: Ids) -> tuple[str, list[tuple[list[float], list[int]]]]:
        """Returns the word's text and, for each length of its beginnings, the possible last pieces
        of the beginning.

        The pieces are two lists: cumulative weights, summed over the splits that end with the
        piece, and ids.
        """
        text = self.text(word)
        totals = [1.0]
        table = [(list[float](), list[int]())]
        for end in range(1, len(text) + 1):
            total = 0.0
            weights = []
            numbers = []
            for start in range(max(0, end - self.longest), end):
                if piece := self._weight_of.get(text[start:end]):
                    weight, number = piece
                    total += totals[start] * weight
                    weights.append(total)
                    numbers.append(number)
            totals.append(total)
            table.append((weights, numbers))
        return text, table


class BestSampler(SubwordSampler):
    """Draws one of the `nbest_size` splits with the highest scores, with probabilities like those
    of UnigramSampler.
    """

    def __init__(
        self, pieces: Mapping[int, tuple[str, float]], alpha: float, nbest_size: int
    ) -> None:
        super().__init__(pieces, alpha)
        self._nbest_size = nbest_size
        self._best = functools.lru_cache(CACHED // 64)(self._find_best)

    def draws(self, random: Random) -> Callable[[Ids], Ids]:
        def draw(word: Ids) -> Ids:
            weights, splits = self._best(word)
            return splits[_drawn_place(weights, random)]

        return draw

    def _find_best(self, word: Ids) -> tuple[list[float], list[Ids]]:
        """Returns the cumulative weights of the best splits of a word, and the splits."""
        text = self.text(word)
        best = [[(0.0, Ids())]]
        for end in range(1, len(text) + 1):
            splits = (
                (total + self.pieces[number][1], (*ids, number))
                for start in range(end)
                if (number := self.id_of.get(text[start:end])) is not None
                for total, ids in best[start]
            )
            best.append(heapq.nlargest(self._nbest_size, splits))
        highest = best[-1][0][0]
        weights = list(
            itertools.accumulate(math.exp(self.alpha * (score - highest)) for score, _ in best[-1])
        )
        return weights, [ids for _, ids in best[-1]]
