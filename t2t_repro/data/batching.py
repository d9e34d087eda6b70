"""Plans which examples form each training step of an epoch.

A step consists of blocks, and a block consists of examples of similar length. A resumed run makes
the same plan again, because a plan depends only on the examples' lengths, the settings, the seed
and the epoch's number.
"""

import bisect
import enum
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from t2t_repro.corpora.corpus import Corpus, StoredCorpus
from t2t_repro.errors import UserError

BLOCKS = 2
"""Number of blocks (groups of examples of similar length) in a training step. With one block, all
targets of a step would have similar lengths. They would teach the decoder to end at that length,
and translations would be too short.
"""

JITTER = 0.1
"""Maximum random shift of the boundary between two blocks, as a share of a block. Each epoch draws
new shifts.
"""

ROWS = 8
"""Divisor of the number of examples in a large block (a group of examples of similar length). CPUs
and GPUs multiply matrices in groups of eight rows. On a CPU with AVX-512, incomplete groups took a
sixth of a step's time.
"""

MAX_TOKENS = 4096
"""Default of the maximum number of positions on each side of a micro-batch."""

SLICE = 1 << 20
"""Number of examples in one array operation on the keys of an epoch's examples."""

MAX_PASSES = 100
"""Most repetitions of a corpus in an epoch. More would be a mistake in the weights."""

COUNTED_STEPS = 2000
"""Maximum number of steps of an epoch from which padding is estimated. More steps hardly change the
estimate.
"""


class Stream(enum.IntEnum):
    """The kinds of random decisions in plans. `random_stream` gives each decision random numbers of
    its own.
    """

    EPOCH = 0
    """Blocks and steps of an epoch of a whole split; numbered by the epoch."""
    PASS = 1
    """Order of a corpus's examples; numbered by the pass and the corpus."""
    SHARDS_OF_PASS = 2
    """Order of a corpus's shards in a large split; numbered by the pass and the corpus."""
    SHARD = 3
    """Order of a shard's examples in a large split; numbered by the pass and the shard."""
    GROUP = 4
    """Blocks and steps of a group of a large split; numbered by the epoch and the group."""


def random_stream(seed: int, stream: Stream, *numbers: int) -> np.random.Generator:
    """Returns the random numbers for one decision, which depend on no other decision. `numbers` are
    those that `Stream` names.
    """
    return np.random.default_rng([seed, *numbers, stream])


@dataclass(frozen=True)
class Plan:
    """The steps of one epoch.

    Attributes:
        order: int32 [N], indices of the examples, ordered so that neighbours have similar lengths.
        ends: int64 [blocks + 1], boundaries of the blocks in `order`. Block b is
            order[ends[b]:ends[b + 1]].
        shuffle: int32 [steps, blocks in a step], numbers of the blocks that form each step.
    """

    order: np.ndarray
    ends: np.ndarray
    shuffle: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.shuffle)

    def blocks(self, step: int) -> list[np.ndarray]:
        """Returns, for each block of a step, the indices of its examples."""
        numbers = self.shuffle[step]
        bounds = zip(self.ends[numbers], self.ends[numbers + 1], strict=True)
        return [self.order[start:stop] for start, stop in bounds]


def plan(
    lengths: np.ndarray,
    batch_size: int,
    max_length: int,
    seed: int,
    epoch: int,
    corpora: Sequence[StoredCorpus] = (),
) -> Plan:
    """Returns a plan of an epoch's steps. Each example occurs once, unless it is longer than
    `max_length`.

    If every example is longer, the plan has no steps. If corpora have weights, these are their
    shares of the epoch's target tokens. Then an epoch omits and repeats examples, but has as many
    target tokens as all examples together, except for rounding to whole examples.

    Args:
        lengths: int [2, N], number of source tokens (row 0) and target tokens (row 1) of each
            example.
        batch_size: approximate number of target tokens in a step.
        max_length: maximum number of tokens on each side. The plan omits longer examples.
        seed: determines which examples share a step, and the order of the steps.
        epoch: number of the epoch. Each epoch has a different plan.
        corpora: the corpora of the examples. UserError if one is too small for its weight.
    """
    is_short = (lengths <= max_length).all(axis=0)
    short = np.flatnonzero(is_short).astype(np.int32)
    if not len(short):
        return Plan(short, np.zeros(1, np.int64), np.empty((0, BLOCKS), np.int32))
    epoch_tokens = int(lengths[1, short].sum(dtype=np.int64))
    examples = short
    fewest = len(short)
    if any(corpus.weight for corpus in corpora):
        examples, fewest = _weighted(lengths, short, corpora, seed, epoch)
    # Neither number depends on the epoch. So all epochs have the same number of steps.
    steps = min(max(1, round(epoch_tokens / batch_size)), fewest)
    blocks = steps * min(BLOCKS, fewest // steps)
    return arrange(lengths, examples, steps, blocks, random_stream(seed, Stream.EPOCH, epoch))


def arrange(
    lengths: np.ndarray, examples: np.ndarray, steps: int, blocks: int, random: np.random.Generator
) -> Plan:
    """Returns a plan in which the examples form `blocks` blocks of similar size, and the blocks
    form `steps` steps.

    `lengths` is int [2, N], with the lengths of all examples. `examples` is int32, with the indices
    of the examples to use.
    """
    sort_keys = lengths if random.random() < 0.5 else lengths[::-1]
    order = _by_length(sort_keys, examples, random)
    # Give all blocks nearly equal numbers of target tokens. If one step were smaller, its examples
    # would weigh more.
    tokens = np.cumsum(lengths[1, order], dtype=np.int64)
    numbers = np.arange(blocks + 1)
    shifts = random.uniform(-JITTER, JITTER, blocks + 1)
    ends = np.searchsorted(tokens, tokens[-1] * ((numbers + shifts) / blocks), "left")
    if len(order) >= 4 * ROWS * blocks:
        ends = (ends + ROWS // 2) // ROWS * ROWS
    ends[0] = 0
    ends[-1] = len(order)
    # Move boundaries so that no block is empty. Then every epoch has the same number of steps.
    ends = np.maximum.accumulate(ends - numbers) + numbers
    ends = np.minimum(ends, len(order) - blocks + numbers)
    shuffle = random.permutation(blocks).astype(np.int32)
    return Plan(order, ends, shuffle.reshape(steps, -1))


def quotas(corpora: Sequence[Corpus], tokens: Sequence[int]) -> list[Fraction]:
    """Returns how many target tokens each corpus supplies to an epoch, by its weight. `tokens` has
    the number of target tokens in the text of each corpus.

    Raises UserError if a corpus would be repeated more than `MAX_PASSES` times.
    """
    weights = [Fraction(corpus.weight) for corpus in corpora]
    amounts = [sum(tokens) * weight / sum(weights) for weight in weights]
    for corpus, amount, size in zip(corpora, amounts, tokens, strict=True):
        if amount > MAX_PASSES * size:
            raise UserError(
                f"corpus {corpus.name} has too little text ({size:,} target tokens) for its "
                f"weight: an epoch of {sum(tokens):,} tokens would repeat it more than "
                f"{MAX_PASSES} times; lower its weight"
            )
    return amounts


def _weighted(
    lengths: np.ndarray, short: np.ndarray, corpora: Sequence[StoredCorpus], seed: int, epoch: int
) -> tuple[np.ndarray, int]:
    """Chooses the examples of an epoch by the weights of the corpora.

    Each corpus is an endless sequence of passes. A pass has all examples of the corpus that are in
    `short`, in an order that depends on the seed, the corpus and the pass. An epoch takes the next
    tokens of the sequence, so that all examples of a corpus are used equally often.

    Returns the indices of the examples, in ascending order, and a lower bound for the examples of
    all epochs.
    """
    bounds = np.searchsorted(short, [corpus.start for corpus in corpora])
    corpus_examples = np.split(short, bounds[1:])
    sizes = [int(lengths[1, examples].sum(dtype=np.int64)) for examples in corpus_examples]
    amounts = quotas(corpora, sizes)
    chosen = []
    fewest = 0
    for corpus, examples in enumerate(corpus_examples):
        size = sizes[corpus]
        quota = amounts[corpus]
        if not quota:
            continue
        fewest += int(quota) // int(lengths[1, examples].max())
        # The epoch has the tokens `start` to `stop` - 1 of the sequence of passes.
        start = int(quota * epoch)
        stop = int(quota * (epoch + 1))
        for number in range(start // size, (stop - 1) // size + 1):
            # The same boundaries, counted from the first token of the pass.
            first = start - number * size
            last = stop - number * size
            if first <= 0 and last >= size:
                chosen.append(examples)
            else:
                random = random_stream(seed, Stream.PASS, number, corpus)
                chosen.append(part_of_pass(lengths, examples, first, last, random))
    return np.sort(np.concatenate(chosen)), max(fewest, 1)


def part_of_pass(
    lengths: np.ndarray, examples: np.ndarray, first: int, last: int, random: np.random.Generator
) -> np.ndarray:
    """Puts examples into a random order and counts their target tokens. Returns the examples whose
    first target token has one of the numbers `first` to `last` - 1.
    """
    # With all lengths 0, only the random part of the sort keys decides.
    no_lengths = np.broadcast_to(np.int32(0), lengths.shape)
    examples = _by_length(no_lengths, examples, random)
    starts = np.cumsum(lengths[1, examples], dtype=np.int64)
    starts -= lengths[1, examples]
    return examples[slice(*np.searchsorted(starts, (first, last)))]


def _by_length(
    lengths: np.ndarray, examples: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Returns the indices `examples` in the order of the examples' lengths, by sorting uint64 keys.

    From its highest to its lowest bits, a key consists of:
      - the example's length on the side in row 0 of `lengths`;
      - its length on the other side, in ascending order if the length in row 0 is even, and
        otherwise descending, so that neighbours have similar lengths on both sides and a block
        needs little padding;
      - a random number, so that each epoch combines examples of equal lengths differently;
      - the example's position in `examples`.
    Sorting integers is many times faster than np.lexsort.
    """
    longest = max(int(side[examples].max()) for side in lengths)
    length_bits = longest.bit_length()
    position_bits = len(examples).bit_length()
    random_bits = 64 - position_bits - 2 * length_bits
    keys = np.empty(len(examples), np.uint64)
    for part in _slices(len(examples)):
        major, minor = lengths[:, examples[part]]
        key = major.astype(np.uint64) << np.uint64(length_bits)
        key |= np.where(major % 2 == 0, minor, longest - minor).astype(np.uint64)
        key <<= np.uint64(random_bits)
        key |= random.integers(0, 1 << random_bits, len(key), np.uint64)
        key <<= np.uint64(position_bits)
        key |= np.arange(part.start, part.stop, dtype=np.uint64)
        keys[part] = key
    keys.sort()
    order = np.empty_like(examples)
    position_mask = np.uint64((1 << position_bits) - 1)
    for part in _slices(len(examples)):
        positions = (keys[part] & position_mask).astype(np.int64)
        order[part] = examples[positions]
    return order


def _slices(count: int) -> Iterator[slice]:
    """Yields slices that together cover 0 .. count - 1. Callers work on one slice at a time, to
    keep arrays small.
    """
    for start in range(0, count, SLICE):
        yield slice(start, min(start + SLICE, count))


def micro_batches(
    lengths: np.ndarray, blocks: list[np.ndarray], max_tokens: int, replicas: int
) -> list[np.ndarray]:
    """Cuts the blocks of a step into micro-batches that fit into a device's memory. Returns the
    examples of each.

    Args:
        lengths: int [2, N], number of source tokens (row 0) and target tokens (row 1) of each
            example.
        blocks: for each block of the step, the indices of its examples.
        max_tokens: maximum number of positions (tokens and padding) on each side of a micro-batch.
            An example with more tokens becomes a micro-batch with no other example.
        replicas: number of replicas. The number of micro-batches is a multiple of `replicas`; some
            may be empty.
    """
    # For each example of each block, the length of the example's longer side.
    block_lengths = [lengths[:, block].max(axis=0) for block in blocks]
    # Number of micro-batches in each block: enough for the block that needs the most.
    count = max(len(cuts(longest, max_tokens)) - 1 for longest in block_lengths)
    while count * len(blocks) % replicas:
        count += 1
    return [
        block[start:stop]
        for block, longest in zip(blocks, block_lengths, strict=True)
        for start, stop in itertools.pairwise(_even_cuts(longest, count, max_tokens))
    ]


def _even_cuts(lengths: np.ndarray, count: int, max_tokens: int) -> list[int]:
    """Returns the boundaries of `count` micro-batches in a block. The largest micro-batch is as
    small as possible.

    `lengths` holds the length of each example's longer side. A boundary is a position in `lengths`.
    """
    if count == 1:
        return [0, len(lengths)]

    def is_enough(limit: int) -> bool:
        return len(cuts(lengths, limit, count)) - 1 <= count

    # The higher the limit, the fewer micro-batches. So bisection finds the lowest limit.
    limits = range(1, max_tokens + 1)
    limit = limits[bisect.bisect_left(limits, True, key=is_enough)]
    boundaries = cuts(lengths, limit)
    num_empty = count + 1 - len(boundaries)
    return boundaries + [len(lengths)] * num_empty


def cuts(lengths: np.ndarray, limit: int, max_count: int | None = None) -> list[int]:
    """Returns the boundaries of batches: as few as possible, of at most `limit` positions or a
    single longer example.

    After `max_count` batches, a last one of any size holds the remaining examples. `lengths`, int
    [N], has the length of each example's longer side.
    """
    boundaries = [0]
    sizes = np.arange(1, len(lengths) + 1)
    while boundaries[-1] < len(lengths):
        if max_count is not None and len(boundaries) > max_count:
            return [*boundaries, len(lengths)]
        start = boundaries[-1]
        rest = lengths[start:]
        # With padding, each example of the batch is at least as long as the first. So no more
        # examples than these fit.
        if rest[0]:
            rest = rest[: limit // int(rest[0]) + 1]
        # Positions of a batch that ends after each example.
        positions = np.maximum.accumulate(rest) * sizes[: len(rest)]
        fitting = int(np.searchsorted(positions, limit, "right"))
        boundaries.append(start + max(fitting, 1))
    return boundaries


def first_steps(
    lengths: np.ndarray, epoch: Plan, max_tokens: int, replicas: int = 1
) -> list[list[np.ndarray]]:
    """Returns the micro-batches of each step, for the first `COUNTED_STEPS` steps of an epoch."""
    steps = range(min(epoch.steps, COUNTED_STEPS))
    return [micro_batches(lengths, epoch.blocks(step), max_tokens, replicas) for step in steps]


def padding(lengths: np.ndarray, steps: Iterable[list[np.ndarray]]) -> float:
    """Returns the share of padding among all positions in the micro-batches of `steps`."""
    tokens = positions = 0
    for examples in itertools.chain.from_iterable(steps):
        tokens += int(lengths[:, examples].sum())
        positions += count_positions(lengths, examples)
    return padding_share(tokens, positions)


def count_positions(lengths: np.ndarray, examples: np.ndarray) -> int:
    """Returns the number of positions of a micro-batch: tokens and padding of both sides."""
    longest = lengths[:, examples].max(axis=1, initial=0)
    return int(longest.sum()) * len(examples)


def padding_share(tokens: int, positions: int) -> float:
    """Returns the share of positions that are padding, from 0 to 1."""
    return 1.0 - tokens / positions if positions else 0.0
