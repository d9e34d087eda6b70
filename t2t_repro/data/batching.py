"""Which examples form which step: a pure function of lengths, seed and epoch.

Because nothing is drawn from a stream, any step of any epoch can be found without reading what came before it, the
shuffle is over the whole corpus, and no buffer is held.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

BLOCKS = 2
"""Blocks of a step, each of sentences alike in length. One block would be the least padding, but if all targets of a
step end at the same position, its gradient teaches the decoder to end there: translations come out short."""

JITTER = 0.1
"""Share of a block by which the cut between two blocks moves from epoch to epoch, either way."""

ROWS = 8
"""Blocks hold a multiple of so many examples, where they hold enough: the kernels of matrix products, on a CPU as on a
GPU, take rows by eights, and leave the rest to slower code (on AVX-512, a sixth of a step's time)."""


@dataclass(frozen=True)
class Plan:
    """The steps of one epoch.

    Attributes:
        order: int32 [N], the examples such that neighbours have similar lengths.
        ends: int64 [blocks + 1]; block b is order[ends[b]:ends[b + 1]].
        shuffle: int32 [steps, blocks a step], the blocks that each step takes.
    """

    order: np.ndarray
    ends: np.ndarray
    shuffle: np.ndarray

    @property
    def steps(self) -> int:
        """Steps in the epoch."""
        return len(self.shuffle)

    def blocks(self, step: int) -> list[np.ndarray]:
        """The numbers of the examples of a step, block by block; in a block neighbours are alike in length."""
        return [self.order[self.ends[block] : self.ends[block + 1]] for block in self.shuffle[step]]


def plan(lengths: np.ndarray, batch_size: int, max_length: int, seed: int, epoch: int) -> Plan:
    """Lays out an epoch: each example once, in steps of about `batch_size` target tokens, two lengths a step.

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
    short = np.flatnonzero((lengths[0] <= max_length) & (lengths[1] <= max_length)).astype(np.int32)
    if not len(short):
        return Plan(short, np.zeros(1, np.int64), np.empty((0, BLOCKS), np.int32))
    key = _sort_key(lengths if random.random() < 0.5 else lengths[::-1], short, random)
    key.sort()
    position_bits = len(short).bit_length()
    order = np.empty_like(short)
    for part in _portions(len(short)):
        order[part] = short[(key[part] & np.uint64((1 << position_bits) - 1)).astype(np.int64)]
    del key, short
    # Blocks of nearly equal numbers of target tokens: no short last step lends its few examples more weight.
    tokens = np.cumsum(lengths[1, order], dtype=np.int64)
    count = len(order)
    steps = min(max(1, round(int(tokens[-1]) / batch_size)), count)
    blocks = steps * min(BLOCKS, count // steps)
    numbers = np.arange(blocks + 1)
    cuts = (numbers + random.uniform(-JITTER, JITTER, blocks + 1)) / blocks
    ends = np.searchsorted(tokens, tokens[-1] * cuts, "left")
    if count >= 4 * ROWS * blocks:
        ends = (ends + ROWS // 2) // ROWS * ROWS
    ends[0], ends[-1] = 0, count
    # At least one example in each block, so that every epoch has the same number of steps.
    ends = np.maximum.accumulate(ends - numbers) + numbers
    ends = np.minimum(ends, count - blocks + numbers)
    return Plan(order, ends, random.permutation(blocks).astype(np.int32).reshape(steps, -1))


def _sort_key(lengths: np.ndarray, short: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """uint64 [len(short)], by which neighbours in an epoch are found; its lowest bits count from 0.

    Sorted by one side's length, and where that is equal by the other's, upwards and downwards in turn, so that where
    a step crosses from one length to the next the other side's lengths are alike. Which side comes first, and the order
    of pairs with both lengths equal, are drawn anew each epoch: an example's company changes. (Noise on the lengths
    would do that too, but a single longer sentence pads its whole batch.)

    One 64-bit key holds first length, second length, a random number and the example's position: one sort of plain
    integers is many times faster than np.lexsort.
    """
    longest = max(int(side[short].max()) for side in lengths)
    position_bits, length_bits = len(short).bit_length(), longest.bit_length()
    random_bits = 64 - position_bits - 2 * length_bits
    key = np.empty(len(short), np.uint64)
    for part in _portions(len(short)):
        first, second = lengths[:, short[part]]
        own = first.astype(np.uint64) << np.uint64(length_bits)
        own |= np.where(first % 2 == 0, second, longest - second).astype(np.uint64)
        own <<= np.uint64(random_bits)
        own |= random.integers(0, 1 << random_bits, len(own), np.uint64)
        own <<= np.uint64(position_bits)
        own |= np.arange(part.start, part.stop, dtype=np.uint64)
        key[part] = own
    return key


def _portions(count: int) -> Iterator[slice]:
    """0 .. count - 1 in pieces, so that what is computed on the way takes little memory."""
    for start in range(0, count, 1 << 20):
        yield slice(start, min(start + (1 << 20), count))


def micro_batches(lengths: np.ndarray, blocks: list[np.ndarray], max_tokens: int, replicas: int) -> list[np.ndarray]:
    """Cuts the blocks of a step into micro-batches of at most `max_tokens` positions on either side, padding included.

    Args:
        lengths: int [2, N], source and target tokens of each example.
        blocks: the step's examples.
        max_tokens: maximum number of positions; an example that is longer forms a micro-batch of its own.
        replicas: the number of micro-batches is a multiple of this number; some may be empty.

    Returns:
        The numbers of the examples in each micro-batch.
    """
    longest = [lengths[:, block].max(axis=0).tolist() for block in blocks]
    pieces = max(len(_cuts(each, max_tokens)) - 1 for each in longest)
    while pieces * len(blocks) % replicas:
        pieces += 1
    return [
        block[start:stop]
        for block, each in zip(blocks, longest, strict=True)
        for start, stop in itertools.pairwise(_even_cuts(each, pieces, max_tokens))
    ]


def _even_cuts(longest: list[int], pieces: int, max_tokens: int) -> list[int]:
    """Where to cut examples of the given lengths into so many pieces, as alike in size as can be."""
    if pieces == 1:
        return [0, len(longest)]
    low, high = 1, max_tokens
    while low < high:
        middle = (low + high) // 2
        if len(_cuts(longest, middle)) - 1 <= pieces:
            high = middle
        else:
            low = middle + 1
    cuts = _cuts(longest, high)
    return cuts + [len(longest)] * (pieces + 1 - len(cuts))


def _cuts(longest: list[int], limit: int) -> list[int]:
    """Where to cut examples of the given lengths so that the fewest pieces hold at most `limit` positions each."""
    cuts, widest = [0], 0
    for position, length in enumerate(longest):
        widest = max(widest, length)
        if position > cuts[-1] and (position + 1 - cuts[-1]) * widest > limit:
            cuts.append(position)
            widest = length
    return [*cuts, len(longest)]
