"""Finds the group of examples to which a training step belongs, and plans it.

A split that is not large has one group in each epoch, all its examples. A large split has groups of
about `GROUP_PAIRS` pairs. Each corpus is then an endless sequence of passes, which is cut into
parts of equal numbers of target tokens, and a group has the next part of each corpus. A pass has
all shards of the corpus in a random order. In a shard at the end of a part, the order of the
examples is random, too, so that each example occurs once in each pass. All random choices follow
from the seed, the epoch and the group.
"""

import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from t2t_repro.data import batching
from t2t_repro.data.batching import Plan, Stream, random_stream
from t2t_repro.data.large_split import LargeSplit, Part
from t2t_repro.data.records import INDEX, Records
from t2t_repro.hparam import HParams

GROUP_PAIRS = 10_000_000
"""Approximate number of pairs in a group. A plan of them needs 0.6 GB and 2 seconds."""


@dataclass(frozen=True)
class Group:
    """The examples of consecutive steps, with their plan."""

    epoch: int
    steps: range
    """Numbers of the steps, from the first step of the run, 0."""
    plan: Plan
    records: Records


class Piece(NamedTuple):
    """The examples of a shard whose first target tokens, in the order of a pass, are `first` to
    `last` - 1.
    """

    shard: int
    pass_number: int
    first: int
    last: int


class WholeSplit:
    """Plans the epochs of a split that is not large."""

    def __init__(self, records: Records, hparams: HParams, seed: int) -> None:
        self._records = records
        self._hparams = hparams
        self._seed = seed
        self.too_long = int((records.lengths.max(axis=0) > hparams.max_length).sum())
        """Number of examples that are skipped because a side is longer than max_length."""
        self._first = self._plan(0)
        self.steps_per_epoch = self._first.steps
        self.examples_per_epoch = len(self._first.order)

    def _plan(self, epoch: int) -> Plan:
        records = self._records
        hparams = self._hparams
        return batching.plan(
            records.lengths,
            hparams.batch_size,
            hparams.max_length,
            self._seed,
            epoch,
            records.corpora,
        )

    def steps_of_group(self, step: int) -> range:
        """Returns the numbers of the steps of the group that has a step."""
        first = step - step % self.steps_per_epoch
        return range(first, first + self.steps_per_epoch)

    def group(self, step: int) -> Group:
        """Returns the group that has a step."""
        epoch = step // self.steps_per_epoch
        plan = self._plan(epoch) if epoch else self._first
        return Group(epoch, self.steps_of_group(step), plan, self._records)


class GroupedSplit:
    """Plans the epochs of a large split; has the attributes and methods of `WholeSplit`."""

    def __init__(self, split: LargeSplit, hparams: HParams, seed: int) -> None:
        self._split = split
        self._max_length = hparams.max_length
        self._seed = seed
        self._tokens = split.target_tokens(hparams.max_length)
        """Number of target tokens of each shard, in examples that are not skipped."""
        pairs = split.totals("pairs", hparams.max_length)
        bounds = np.cumsum([0, *(corpus.shards for corpus in split.corpora)])
        self._shards = [np.arange(start, stop) for start, stop in itertools.pairwise(bounds)]
        """Numbers of each corpus's shards."""
        sizes = [int(self._tokens[shards].sum()) for shards in self._shards]
        self._quotas = list(map(Fraction, sizes))
        """Number of target tokens that each corpus supplies to an epoch."""
        if any(corpus.weight for corpus in split.corpora):
            self._quotas = batching.quotas(split.corpora, sizes)
        examples = 0.0
        for quota, size, shards in zip(self._quotas, sizes, self._shards, strict=True):
            if size:
                examples += float(quota / size) * pairs[shards].sum()
        self.examples_per_epoch = round(examples)
        self.too_long = len(split) - int(pairs.sum())
        self.steps_per_epoch = round(sum(sizes) / hparams.batch_size)
        self._groups_per_epoch = min(
            -(-self.examples_per_epoch // GROUP_PAIRS), self.steps_per_epoch
        )

    def _place(self, step: int) -> tuple[int, int]:
        """Returns the epoch of a step, and the number of its group in the epoch.

        Group g of an epoch begins with the step g * steps // groups, rounded down.
        """
        epoch, step_of_epoch = divmod(step, self.steps_per_epoch)
        number = ((step_of_epoch + 1) * self._groups_per_epoch - 1) // self.steps_per_epoch
        return epoch, number

    def steps_of_group(self, step: int) -> range:
        epoch, number = self._place(step)
        first = epoch * self.steps_per_epoch
        start = number * self.steps_per_epoch // self._groups_per_epoch
        stop = (number + 1) * self.steps_per_epoch // self._groups_per_epoch
        return range(first + start, first + stop)

    def group(self, step: int) -> Group:
        epoch, number = self._place(step)
        records = self._records(epoch * self._groups_per_epoch + number)
        steps = self.steps_of_group(step)
        random = random_stream(self._seed, Stream.GROUP, epoch, number)
        examples = np.arange(len(records), dtype=np.int32)
        plan = batching.arrange(
            records.lengths, examples, len(steps), batching.BLOCKS * len(steps), random
        )
        return Group(epoch, steps, plan, records)

    def _records(self, part: int) -> Records:
        """Returns the records of part `part` of all corpora's sequences of passes."""
        pieces = list[Piece]()
        for corpus in range(len(self._shards)):
            pieces += self._pieces(corpus, part)
        pieces.sort()
        # The arrays of a shard are freed after it. Small arrays that stay between them would leave
        # holes in memory. So all rows are collected in two growing buffers.
        shards = list[int]()
        ends = list[int]()
        rows = bytearray()
        numbers = bytearray()
        for shard, shard_pieces in itertools.groupby(pieces, operator.attrgetter("shard")):
            index = self._split.index(shard)
            lengths = self._split.lengths_in(index)
            chosen = [self._chosen(lengths, piece) for piece in shard_pieces]
            examples = np.sort(np.concatenate(chosen))
            rows += index[examples].tobytes()
            numbers += (self._split.starts[shard] + examples).astype(np.uint32).tobytes()
            shards.append(shard)
            ends.append(len(rows) // INDEX.itemsize)
        indexes = np.split(np.frombuffer(rows, INDEX), ends[:-1])
        return Part(self._split, shards, indexes, np.frombuffer(numbers, np.uint32))

    def _chosen(self, lengths: np.ndarray, piece: Piece) -> np.ndarray:
        """Returns the numbers in their shard of the examples of a piece, given all lengths [2, N]
        of the shard.
        """
        examples = np.flatnonzero(lengths.max(axis=0) <= self._max_length).astype(np.int32)
        if piece.first > 0 or piece.last < self._tokens[piece.shard]:
            random = random_stream(self._seed, Stream.SHARD, piece.pass_number, piece.shard)
            examples = batching.part_of_pass(lengths, examples, piece.first, piece.last, random)
        return examples

    def _pieces(self, corpus: int, part: int) -> Iterator[Piece]:
        """Yields the pieces of shards that a corpus contributes to part `part` of its sequence of
        passes.
        """
        quota = self._quotas[corpus]
        if not quota:
            return
        size = int(self._tokens[self._shards[corpus]].sum())
        start = int(quota * part / self._groups_per_epoch)
        stop = int(quota * (part + 1) / self._groups_per_epoch)
        for pass_number in range(start // size, (stop - 1) // size + 1):
            random = random_stream(self._seed, Stream.SHARDS_OF_PASS, pass_number, corpus)
            order = random.permutation(self._shards[corpus])
            ends = np.cumsum(self._tokens[order]) + pass_number * size
            for shard, end in zip(order.tolist(), ends.tolist(), strict=True):
                begin = end - int(self._tokens[shard])
                if max(start, begin) < min(stop, end):
                    yield Piece(shard, pass_number, start - begin, stop - begin)


def planned(records: Records, hparams: HParams, seed: int) -> WholeSplit | GroupedSplit:
    """Returns the plans of all epochs of a split."""
    if isinstance(records, LargeSplit):
        return GroupedSplit(records, hparams, seed)
    return WholeSplit(records, hparams, seed)
