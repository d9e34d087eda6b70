"""Builds the batch of ids for each training step. A thread builds the next batches during the current step.

In shapes, B is the number of examples, S the length of the longest source, and T the length of the longest target.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from t2t_repro.data import batching
from t2t_repro.data.records import Records
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams

AHEAD = 4
"""Maximum number of batches that a background thread builds in advance."""

MicroBatch = tuple[np.ndarray, np.ndarray]
"""Source ids, int32 [B, S], and target ids, int32 [B, T], of B examples. Shorter rows end with padding, id 0."""


@dataclass(frozen=True)
class Batch:
    """The examples of one training step."""

    step: int
    """Number of the training step, from 0."""
    micro_batches: list[MicroBatch]
    """The step's examples, cut into micro-batches that fit into a device's memory."""
    examples: np.ndarray
    """Indices of the step's examples in the train split."""
    source_tokens: int
    """Number of source tokens in the step, counting end tokens but not padding."""
    target_tokens: int
    """Number of target tokens in the step, counting end tokens but not padding."""


class Pipeline:
    """Builds the batches of a range of training steps, which may start at any step.

    Args:
        records: the examples of the train split.
        hparams: supplies batch_size and max_length. Examples with more than max_length tokens on a side are skipped.
        seed: determines which examples share a step, and the order of the steps.
        max_tokens: maximum number of positions on each side of a micro-batch, including padding.
        replicas: number of replicas. The number of micro-batches in a step is a multiple of `replicas`.

    Raises:
        UserError: if all examples are longer than max_length.
    """

    def __init__(self, records: Records, hparams: HParams, seed: int, max_tokens: int, replicas: int) -> None:
        self.lengths = records.lengths
        """int32 [2, N], number of source tokens (row 0) and target tokens (row 1) of each example."""
        self.max_tokens, self.replicas = max_tokens, replicas
        self._records, self._hparams, self._seed = records, hparams, seed
        self._epoch, self._plan = 0, self._make_plan(0)
        self.first_epoch = self._plan
        """Plan of the steps of the first epoch."""
        self.too_long = len(records) - len(self._plan.order)
        """Number of examples that are skipped because a side is longer than max_length."""
        if not self._plan.steps:
            raise UserError(
                f"all {len(records):,} pairs are longer than max_length={hparams.max_length} tokens; "
                "give a higher limit by --hparams=max_length=N, or shorter text"
            )

    def _make_plan(self, epoch: int) -> batching.Plan:
        return batching.plan(self.lengths, self._hparams.batch_size, self._hparams.max_length, self._seed, epoch)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in each epoch."""
        return self._plan.steps

    def batches(self, start: int, stop: int) -> Iterator[Batch]:
        """Yields the batches of the steps `start` to `stop` - 1.

        The batch of a step does not depend on `start`, so a resumed run gets the same batches as a run without a break.
        """
        with ThreadPoolExecutor(1) as builder:
            queue = collections.deque(
                builder.submit(self._build, step) for step in range(start, min(start + AHEAD, stop))
            )
            for step in range(start, stop):
                batch = queue.popleft().result()
                if step + AHEAD < stop:
                    queue.append(builder.submit(self._build, step + AHEAD))
                yield batch

    def _build(self, step: int) -> Batch:
        epoch, position = divmod(step, self._plan.steps)
        if epoch != self._epoch:
            self._epoch, self._plan = epoch, self._make_plan(epoch)
        blocks = self._plan.blocks(position)
        numbers = batching.micro_batches(self.lengths, blocks, self.max_tokens, self.replicas)
        micro_batches = [pad(self._records, examples) for examples in numbers]
        examples = np.concatenate(blocks)
        source_tokens, target_tokens = self.lengths[:, examples].sum(axis=1).tolist()
        return Batch(step, micro_batches, examples, source_tokens, target_tokens)


def pad(records: Records, examples: np.ndarray) -> MicroBatch:
    """Returns the records with the indices `examples` as a micro-batch. Pads the ids of each side to equal length."""
    pairs = [records[int(example)] for example in examples]
    sides = []
    for side in range(2):
        ids = np.zeros((len(pairs), max((len(pair[side]) for pair in pairs), default=1)), np.int32)
        for row, pair in zip(ids, pairs, strict=True):
            row[: len(pair[side])] = pair[side]
        sides.append(ids)
    return sides[0], sides[1]


def batches_once(records: Records, max_tokens: int) -> Iterator[MicroBatch]:
    """Yields each record once, ordered by target length, in batches of at most `max_tokens` positions on each side."""
    order = np.lexsort(records.lengths)
    lengths = records.lengths[:, order]
    start = 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or (stop + 1 - start) * lengths[:, start : stop + 1].max() > max_tokens:
            yield pad(records, order[start:stop])
            start = stop


def distinct_sources(records: Records, max_tokens: int) -> MicroBatch | None:
    """Returns a batch of examples that all have different sources; None if the records do not have two of them.

    The examples are those of medium length, ordered by length. So the next row's source has about the same length, and
    a model cannot recognize it by its length.

    Args:
        records: examples to choose from.
        max_tokens: maximum number of positions, counting padding, on each side of a batch of three or more examples.
    """
    order = np.lexsort(records.lengths)  # by target length, then by source length
    ranks: dict[bytes, int] = {}  # from the ids of a source to the example's index in `order`
    longest = 0
    for rank in np.argsort(np.abs(np.arange(len(order)) - len(order) // 2), kind="stable").tolist():
        longest = max(longest, int(records.lengths[:, order[rank]].max()))
        if len(ranks) >= 2 and (len(ranks) + 1) * longest > max_tokens:
            break
        ranks.setdefault(records[int(order[rank])][0].tobytes(), rank)
    return pad(records, order[sorted(ranks.values())]) if len(ranks) >= 2 else None
