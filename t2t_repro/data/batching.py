"""Which examples form which step: a pure function of lengths, seed and epoch.

Because nothing is drawn from a stream, any step of any epoch can be found without reading what came before it, the
shuffle is over the whole corpus, and no buffer is held.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

JITTER = 0.1
"""Share of a step by which the cut between two steps moves from epoch to epoch, either way."""


@dataclass(frozen=True)
class Plan:
    """The steps of one epoch.

    Attributes:
        order: int32 [N], the examples such that neighbours have similar lengths.
        ends: int64 [steps + 1]; step s, before the shuffle, is order[ends[s]:ends[s + 1]].
        shuffle: int32 [steps], the order in which the steps are taken.
    """

    order: np.ndarray
    ends: np.ndarray
    shuffle: np.ndarray

    @property
    def steps(self) -> int:
        """Steps in the epoch."""
        return len(self.shuffle)

    def examples(self, step: int) -> np.ndarray:
        """The numbers of the examples of a step, neighbours alike in length."""
        block = self.shuffle[step]
        return self.order[self.ends[block] : self.ends[block + 1]]


def plan(lengths: np.ndarray, batch_size: int, max_length: int, seed: int, epoch: int) -> Plan:
    """Lays out an epoch: each example once, in steps of about `batch_size` target tokens and similar lengths.

    Args:
        lengths: int [2, N], source and target tokens of each example.
        batch_size: target tokens a step.
        max_length: examples with a longer side are left out.
        seed: another seed gives other company and another order.
        epoch: the same, for each epoch.

    Returns:
        The plan; without steps where no example is short enough.
    """
    random = np.random.default_rng([seed, epoch])
    short = np.flatnonzero(lengths.max(axis=0) <= max_length)
    if not len(short):
        return Plan(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int32))
    # Sorted by one side's length, and where that is equal by the other's, upwards and downwards in turn, so that where
    # a step crosses from one length to the next the other side's lengths are alike. Which side comes first, and the
    # order of pairs with both lengths equal, are drawn anew each epoch: an example's company changes. (Noise on the
    # lengths would do that too, but a single longer sentence pads its whole batch.)
    first, second = lengths[:, short] if random.random() < 0.5 else lengths[::-1, short]
    # One 64-bit key holds first length, second length, a random number and the example's position: one sort of plain
    # integers is many times faster than np.lexsort.
    longest = int(lengths[:, short].max())
    position_bits, length_bits = len(short).bit_length(), longest.bit_length()
    random_bits = 64 - position_bits - 2 * length_bits
    key = first.astype(np.uint64) << np.uint64(length_bits)
    key |= np.where(first % 2 == 0, second, longest - second).astype(np.uint64)
    key <<= np.uint64(random_bits)
    key |= random.integers(0, 1 << random_bits, len(short), np.uint64)
    key <<= np.uint64(position_bits)
    key |= np.arange(len(short), dtype=np.uint64)
    key.sort()
    order = short[(key & np.uint64((1 << position_bits) - 1)).astype(np.int64)].astype(np.int32)
    # Steps of nearly equal numbers of target tokens: no short last step lends its few examples more weight.
    tokens = np.cumsum(lengths[1, order], dtype=np.int64)
    count = len(order)
    steps = min(max(1, round(int(tokens[-1]) / batch_size)), count)
    numbers = np.arange(steps + 1)
    cuts = (numbers + random.uniform(-JITTER, JITTER, steps + 1)) / steps
    ends = np.searchsorted(tokens, tokens[-1] * cuts, "left")
    ends[0], ends[-1] = 0, count
    # At least one example in each step, so that every epoch has the same number of steps.
    ends = np.maximum.accumulate(ends - numbers) + numbers
    ends = np.minimum(ends, count - steps + numbers)
    return Plan(order, ends, random.permutation(steps).astype(np.int32))


def parts(lengths: np.ndarray, max_tokens: int, replicas: int) -> list[np.ndarray]:
    """Cuts a step into parts of at most `max_tokens` positions on either side, padding included.

    Args:
        lengths: int [2, n], source and target tokens of the step's examples, neighbours alike.
        max_tokens: a single longer example is a part of its own all the same.
        replicas: the number of parts is a multiple of this many; some may be empty.

    Returns:
        The positions, in 0 .. n - 1, of each part's examples.
    """
    longest = lengths.max(axis=0).tolist()
    wanted = -(-(len(_cuts(longest, max_tokens)) - 1) // replicas) * replicas
    if wanted == 1:
        return [np.arange(len(longest))]
    # The smallest limit that needs no more parts makes them alike in size.
    low, high = 1, max_tokens
    while low < high:
        middle = (low + high) // 2
        if len(_cuts(longest, middle)) - 1 <= wanted:
            high = middle
        else:
            low = middle + 1
    cuts = _cuts(longest, high)
    cuts += [len(longest)] * (wanted + 1 - len(cuts))
    return [np.arange(start, stop) for start, stop in itertools.pairwise(cuts)]


def _cuts(longest: list[int], limit: int) -> list[int]:
    """Where to cut examples of the given lengths so that the fewest parts hold at most `limit` positions each."""
    cuts, widest = [0], 0
    for position, length in enumerate(longest):
        widest = max(widest, length)
        if position > cuts[-1] and (position + 1 - cuts[-1]) * widest > limit:
            cuts.append(position)
            widest = length
    return [*cuts, len(longest)]
