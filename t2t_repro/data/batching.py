"""Which examples form which step: a pure function of lengths, seed and epoch.

A step is a set of blocks, and a block is a set of examples of similar length. Any step of any epoch can be found
without replaying earlier ones, the whole corpus is shuffled, and no buffer is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

BLOCKS = 2
"""Blocks in a step. One block would need the least padding. But if all targets of a step end at the same position, its
gradient teaches the decoder to end there, and translations come out too short."""

JITTER = 0.1
"""Maximum shift of the boundary between two blocks from epoch to epoch, as a share of a block."""

ROWS = 8
"""Large blocks hold a multiple of this number of examples. Kernels for matrix products, on CPUs and on GPUs, handle
rows in groups of eight; on AVX-512 the remaining rows took a sixth of a step's time."""

COUNTED_STEPS = 2000
"""Maximum number of steps whose padding is counted. More steps do not change the share."""


@dataclass(frozen=True)
class Plan:
    """The steps of one epoch.

    Attributes:
        order: int32 [N], the examples, ordered so that neighbours have similar lengths.
        ends: int64 [blocks + 1]; block b is order[ends[b]:ends[b + 1]].
        shuffle: int32 [steps, blocks in a step], the blocks of each step.
    """

    order: np.ndarray
    ends: np.ndarray
    shuffle: np.ndarray

    @property
    def steps(self) -> int:
        """Number of steps in the epoch."""
        return len(self.shuffle)

    def blocks(self, step: int) -> list[np.ndarray]:
        """Returns the numbers of the examples of each block of a step."""
        return [self.order[self.ends[block] : self.ends[block + 1]] for block in self.shuffle[step]]


def plan(lengths: np.ndarray, batch_size: int, max_length: int, seed: int, epoch: int) -> Plan:
    """Plans an epoch: each example once, in steps of about `batch_size` target tokens.

    Args:
        lengths: int [2, N], source and target tokens of each example.
        batch_size: target tokens in a step.
        max_length: maximum tokens on a side; longer examples are omitted.
        seed: changes which examples share a step, and the order of the steps.
        epoch: number of the epoch; it has the same effect as the seed.

    Returns:
        The plan. It has no steps if no example is short enough.
    """
    random = np.random.default_rng([seed, epoch])
    short = np.flatnonzero((lengths[0] <= max_length) & (lengths[1] <= max_length)).astype(np.int32)
    if not len(short):
        return Plan(short, np.zeros(1, np.int64), np.empty((0, BLOCKS), np.int32))
    key = _sort_key(lengths if random.random() < 0.5 else lengths[::-1], short, random)
    key.sort()
    position_bits = len(short).bit_length()
    order = np.empty_like(short)
    for part in _slices(len(short)):
        order[part] = short[(key[part] & np.uint64((1 << position_bits) - 1)).astype(np.int64)]
    del key, short
    # All blocks have nearly the same number of target tokens, so no short last step gives its examples more weight.
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
    # Every block has at least one example, so every epoch has the same number of steps.
    ends = np.maximum.accumulate(ends - numbers) + numbers
    ends = np.minimum(ends, count - blocks + numbers)
    return Plan(order, ends, random.permutation(blocks).astype(np.int32).reshape(steps, -1))


def _sort_key(lengths: np.ndarray, short: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns the sort key of each short example: uint64 [len(short)], with its position in the lowest bits.

    Examples are sorted by the length of one side, then of the other side. The second length alternately rises and
    falls, so that it changes little where a block crosses from one first length to the next. In each epoch the caller
    draws which side is first, and this function draws the order of examples with equal lengths, so that an example
    shares its step with different examples. (Adding noise to the lengths would do that, too, but a single longer
    sentence pads its whole batch.)

    The first length, the second length, a random number and the position fill 64 bits: sorting plain integers is many
    times faster than np.lexsort.
    """
    longest = max(int(side[short].max()) for side in lengths)
    position_bits, length_bits = len(short).bit_length(), longest.bit_length()
    random_bits = 64 - position_bits - 2 * length_bits
    key = np.empty(len(short), np.uint64)
    for part in _slices(len(short)):
        first, second = lengths[:, short[part]]
        part_key = first.astype(np.uint64) << np.uint64(length_bits)
        part_key |= np.where(first % 2 == 0, second, longest - second).astype(np.uint64)
        part_key <<= np.uint64(random_bits)
        part_key |= random.integers(0, 1 << random_bits, len(part_key), np.uint64)
        part_key <<= np.uint64(position_bits)
        part_key |= np.arange(part.start, part.stop, dtype=np.uint64)
        key[part] = part_key
    return key


def _slices(count: int) -> Iterator[slice]:
    """Yields slices that cover 0 .. count - 1, to keep intermediate arrays small."""
    for start in range(0, count, 1 << 20):
        yield slice(start, min(start + (1 << 20), count))


def micro_batches(lengths: np.ndarray, blocks: list[np.ndarray], max_tokens: int, replicas: int) -> list[np.ndarray]:
    """Cuts the blocks of a step into micro-batches of at most `max_tokens` positions on either side, padding included.

    Args:
        lengths: int [2, N], source and target tokens of each example.
        blocks: the step's examples.
        max_tokens: maximum number of positions; an example that is longer forms a micro-batch of its own.
        replicas: number of replicas; the number of micro-batches is a multiple of it, and some may be empty.

    Returns:
        The numbers of the examples in each micro-batch.
    """
    block_lengths = [lengths[:, block].max(axis=0).tolist() for block in blocks]  # of the longer side
    count = max(len(_cuts(longest, max_tokens)) - 1 for longest in block_lengths)  # micro-batches of each block
    while count * len(blocks) % replicas:
        count += 1
    return [
        block[start:stop]
        for block, longest in zip(blocks, block_lengths, strict=True)
        for start, stop in itertools.pairwise(_even_cuts(longest, count, max_tokens))
    ]


def _even_cuts(lengths: list[int], count: int, max_tokens: int) -> list[int]:
    """Returns where to cut a block into `count` micro-batches so that the largest has as few positions as possible."""
    if count == 1:
        return [0, len(lengths)]
    low, high = 1, max_tokens
    while low < high:
        middle = (low + high) // 2
        if len(_cuts(lengths, middle)) - 1 <= count:
            high = middle
        else:
            low = middle + 1
    cuts = _cuts(lengths, high)
    return cuts + [len(lengths)] * (count + 1 - len(cuts))


def _cuts(lengths: list[int], limit: int) -> list[int]:
    """Returns where to cut a block into the fewest micro-batches of at most `limit` positions."""
    cuts, longest = [0], 0
    for position, length in enumerate(lengths):
        longest = max(longest, length)
        if position > cuts[-1] and (position + 1 - cuts[-1]) * longest > limit:
            cuts.append(position)
            longest = length
    return [*cuts, len(lengths)]


def first_steps(lengths: np.ndarray, epoch: Plan, max_tokens: int, replicas: int = 1) -> list[list[np.ndarray]]:
    """Returns the micro-batches of the first `COUNTED_STEPS` steps of an epoch."""
    steps = range(min(epoch.steps, COUNTED_STEPS))
    return [micro_batches(lengths, epoch.blocks(step), max_tokens, replicas) for step in steps]


def padding(lengths: np.ndarray, steps: Iterable[list[np.ndarray]]) -> float:
    """Returns the share of padding in the micro-batches of all steps together."""
    tokens = positions = 0
    for examples in itertools.chain.from_iterable(steps):
        tokens += int(lengths[:, examples].sum())
        positions += int(lengths[:, examples].max(axis=1, initial=0).sum()) * len(examples)
    return padding_share(tokens, positions)


def padding_share(tokens: int, positions: int) -> float:
    """Returns the share of positions that hold no token, 0 .. 1."""
    return 1.0 - tokens / positions if positions else 0.0
