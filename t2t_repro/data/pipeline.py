"""Builds the batch of ids for each training step. A thread builds the next batches during the
current step.

In shapes, B is the number of examples, S the length of the longest source, and T the length of the
longest target.
"""

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import batching
from t2t_repro.data.groups import Group, planned
from t2t_repro.data.records import Records
from t2t_repro.data.subword_sampling import SampledRecords
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import MAX_INT, HParams

TOGETHER = 8
"""Number of batches that a background thread builds together while the 8 batches before them are
used. Batches of 4,096 tokens take a third less time than if each is built separately.
"""


class MicroBatch(NamedTuple):
    """B examples. Shorter rows end with padding, id 0."""

    inputs: np.ndarray
    """Source ids, int32 [B, S]."""
    targets: np.ndarray
    """Target ids, int32 [B, T]."""
    examples: np.ndarray
    """Indices of the examples in their split, int32 [B]."""


@dataclass(frozen=True)
class Batch:
    """The examples of one training step."""

    step: int
    """Number of the training step, from 0."""
    micro_batches: list[MicroBatch]
    """The step's examples, cut into micro-batches that fit into a device's memory. If there are R
    replicas, replica i % R computes micro-batch i. The micro-batches of other processes' replicas
    are empty.
    """
    examples: np.ndarray
    """Indices of the step's examples in the train split."""
    source_tokens: int
    """Number of source tokens in the step, counting end tokens but not padding."""
    target_tokens: int
    """Number of target tokens in the step, counting end tokens but not padding."""
    positions: int
    """Number of positions in the step, tokens and padding of both sides together."""


class Pipeline:
    """Builds the batches of a range of training steps, which may start at any step.

    Args:
        records: the examples of the train split.
        hparams: supplies batch_size and max_length. Examples with more than max_length tokens on a
            side are skipped.
        seed: determines which examples share a step, the order of the steps, and the sampled
            subwords.
        max_tokens: maximum number of positions on each side of a micro-batch, including padding; 0
            for one micro-batch.
        replicas: number of replicas. The number of micro-batches in a step is a multiple of
            `replicas`.
        vocabulary: vocabulary of the records, which only subword sampling needs.
    """

    def __init__(
        self,
        records: Records,
        hparams: HParams,
        seed: int,
        max_tokens: int,
        replicas: int,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self._groups = planned(records, hparams, seed)
        self._vocabulary, self._hparams, self._seed = vocabulary, hparams, seed
        self.max_tokens, self.replicas = max_tokens, replicas
        self.steps_per_epoch, self.examples_per_epoch = (
            self._groups.steps_per_epoch,
            self._groups.examples_per_epoch,
        )
        self.too_long = self._groups.too_long
        """Number of examples that are skipped because a side is longer than max_length."""
        if not self.steps_per_epoch:
            raise UserError(
                f"all pairs ({len(records):,}) are longer than max_length={hparams.max_length} "
                "tokens; give a higher limit by --hparams=max_length=N, or shorter text"
            )
        if hparams.subword_alpha and not vocabulary:
            raise UserError("subword_alpha needs the vocabulary; give it to Pipeline")
        self._enter(0)

    @property
    def first_group(self) -> Group:
        """The group of examples that has step 0."""
        return self._group if 0 in self._group.steps else self._groups.group(0)

    def _enter(self, step: int) -> None:
        """Plans the group of examples that has a step."""
        self._group = self._groups.group(step)
        self._examples: Records | SampledRecords = self._group.records
        if self._hparams.subword_alpha:
            assert self._vocabulary
            self._examples = SampledRecords(
                self._group, self._vocabulary, self._hparams, self._seed
            )

    def batches(
        self, start: int, stop: int, local_replicas: range | None = None
    ) -> Iterator[Batch]:
        """Yields the batches of the steps `start` to `stop` - 1.

        The batch of a step does not depend on `start`, so a resumed run gets the same batches as a
        run without a break. `local_replicas` are the numbers of the replicas that belong to this
        process, by default all. Only the records of their micro-batches are read.
        """
        local_replicas = range(self.replicas) if local_replicas is None else local_replicas
        with ThreadPoolExecutor(1) as builder:
            next_batches = builder.submit(list[Batch])  # returns no batches
            while start < stop:
                batches = next_batches.result()
                steps = range(
                    start, min(start + TOGETHER, self._groups.steps_of_group(start).stop, stop)
                )
                next_batches = builder.submit(self._build, steps, local_replicas)
                yield from batches
                start = steps.stop
            yield from next_batches.result()

    def _build(self, steps: range, local_replicas: range) -> list[Batch]:
        """Returns the batches of steps of the same group. Plans it if the steps before were in
        another one.
        """
        if steps.start not in self._group.steps:
            del self._group, self._examples  # Free their memory before the next group is planned.
            self._enter(steps.start)
        group = self._group
        blocks = [group.plan.blocks(step - group.steps.start) for step in steps]
        lengths = self._examples.lengths
        if isinstance(self._examples, SampledRecords):
            self._examples.draw(np.concatenate(list(itertools.chain(*blocks))))
            # In the order of the new lengths, micro-batches need less padding.
            blocks = [
                [block[lengths[:, block].max(axis=0).argsort(kind="stable")] for block in pair]
                for pair in blocks
            ]
        groups = [[np.concatenate(pair)] for pair in blocks]
        if self.max_tokens:
            groups = [
                batching.micro_batches(lengths, pair, self.max_tokens, self.replicas)
                for pair in blocks
            ]
        local_groups = [
            group if position % self.replicas in local_replicas else group[:0]
            for step_groups in groups
            for position, group in enumerate(step_groups)
        ]
        padded = pad(self._examples, local_groups)
        micro_batches = (
            batch._replace(examples=group.records.numbers_in_split(batch.examples))
            for batch in padded
        )
        batches = []
        for step, step_groups in zip(steps, groups, strict=True):
            examples = np.concatenate(step_groups)
            source_tokens, target_tokens = lengths[:, examples].sum(axis=1).tolist()
            positions = sum(batching.count_positions(lengths, group) for group in step_groups)
            step_batches = list(itertools.islice(micro_batches, len(step_groups)))
            numbers = group.records.numbers_in_split(examples)
            batches.append(
                Batch(step, step_batches, numbers, source_tokens, target_tokens, positions)
            )
        return batches


def pad(records: Records | SampledRecords, groups: Sequence[np.ndarray]) -> list[MicroBatch]:
    """Returns groups of records as micro-batches. Pads the ids of each side of a micro-batch to
    equal length.

    All records are read together, which is faster than one micro-batch after another. `groups` has
    the indices of each micro-batch's records.
    """
    numbers = np.concatenate(groups)
    ends = np.cumsum([len(group) for group in groups])[:-1]
    sides = []
    for ids, side_lengths in zip(records.read(numbers), records.lengths[:, numbers], strict=True):
        lengths = np.split(side_lengths, ends)
        group_ids = np.split(
            ids, np.cumsum([group_lengths.sum() for group_lengths in lengths])[:-1]
        )
        sides.append(list(map(_padded, group_ids, lengths)))
    return list(map(MicroBatch, *sides, groups))


def _padded(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the concatenated `ids` of B rows as an array [B, length of the longest row]; [0, 1]
    if B is 0.
    """
    width = int(lengths.max()) if len(lengths) else 1
    rows = np.zeros((len(lengths), width), np.int32)
    rows[np.arange(width) < lengths[:, None]] = ids
    return rows


def batches_once(
    records: Records, max_tokens: int, max_length: int = MAX_INT
) -> Iterator[MicroBatch]:
    """Yields each record once, in batches of at most `max_tokens` positions on each side.

    The batches of each corpus are ordered by target length. Omits records with more than
    `max_length` tokens on a side, as training does.
    """
    for corpus in records.corpora:
        order = _short(records, max_length, corpus)
        for start, stop in itertools.pairwise(
            batching.cuts(records.lengths[:, order].max(axis=0), max_tokens)
        ):
            yield pad(records, [order[start:stop]])[0]


def _short(records: Records, max_length: int, corpus: StoredCorpus) -> np.ndarray:
    """Returns the numbers of a corpus's records without a longer side, by target length, then by
    source length.
    """
    order = corpus.start + np.lexsort(records.lengths[:, corpus.start : corpus.stop])
    return order[records.lengths[:, order].max(axis=0) <= max_length]


def distinct_sources(
    records: Records, max_tokens: int, max_length: int = MAX_INT
) -> MicroBatch | None:
    """Returns a batch of examples that all have different sources; None if the records do not have
    two of them.

    The examples are those of medium length of the largest corpus, ordered by length. So the next
    row's source has about the same length, and a model cannot recognize it by its length or its
    tag. A batch of three or more examples has at most `max_tokens` positions, counting padding, on
    each side. Examples with more than `max_length` tokens on a side are omitted.
    """
    order = _short(records, max_length, max(records.corpora, key=lambda corpus: corpus.pairs))
    ranks: dict[bytes, int] = {}  # from the ids of a source to the example's index in `order`
    longest = 0
    for rank in np.argsort(np.abs(np.arange(len(order)) - len(order) // 2), kind="stable").tolist():
        longest = max(longest, int(records.lengths[:, order[rank]].max()))
        if len(ranks) >= 2 and (len(ranks) + 1) * longest > max_tokens:
            break
        ranks.setdefault(records[int(order[rank])][0].tobytes(), rank)
    return pad(records, [order[sorted(ranks.values())]])[0] if len(ranks) >= 2 else None
