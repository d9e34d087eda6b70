"""From the step plan to arrays of ids, built ahead of the steps that use them."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from t2t_repro.data import batching
from t2t_repro.data.records import Records
from t2t_repro.errors import UserError

AHEAD = 4
"""Steps that are built before they are asked for."""

Part = tuple[np.ndarray, np.ndarray]
"""Source ids [B, S] and target ids [B, T], int32, 0 for padding."""


@dataclass(frozen=True)
class Batch:
    """The examples of one step.

    Attributes:
        step: the step that takes them, counted from 0.
        parts: the examples, cut for the devices.
        examples: their numbers.
        source_tokens: source tokens, padding not counted.
        target_tokens: target tokens, padding not counted.
    """

    step: int
    parts: list[Part]
    examples: np.ndarray
    source_tokens: int
    target_tokens: int


class Pipeline:
    """The batches of a training, by step.

    Args:
        records: the train split.
        batch_size: target tokens a step.
        max_length: examples with a longer side are left out.
        seed: decides the plan of each epoch.
        max_tokens: positions in a part on either side, padding included; may be changed until batches are asked for.
        replicas: the number of parts is a multiple of this many.

    Raises:
        UserError: no example is short enough.
    """

    def __init__(
        self, records: Records, batch_size: int, max_length: int, seed: int, max_tokens: int, replicas: int
    ) -> None:
        self._records, self._batch_size, self._max_length, self._seed = records, batch_size, max_length, seed
        self.max_tokens, self._replicas = max_tokens, replicas
        self._epoch, self._plan = 0, self._lay_out(0)
        self.first = self._plan
        """The plan of the first epoch."""
        self.too_long = len(records) - len(self._plan.order)
        """Examples left out for their length."""
        if not self._plan.steps:
            raise UserError(
                f"all {len(records):,} pairs are longer than max_length={max_length} tokens; "
                "give a higher one by --hparams=max_length=N, or shorter text"
            )

    def _lay_out(self, epoch: int) -> batching.Plan:
        return batching.plan(self._records.lengths, self._batch_size, self._max_length, self._seed, epoch)

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch, the same in each."""
        return self._plan.steps

    def batches(self, start: int, stop: int) -> Iterator[Batch]:
        """The batches of steps start .. stop - 1, the same whatever `start` is."""
        with ThreadPoolExecutor(1) as builder:
            coming = collections.deque(
                builder.submit(self._build, step) for step in range(start, min(start + AHEAD, stop))
            )
            for step in range(start, stop):
                batch = coming.popleft().result()
                if step + AHEAD < stop:
                    coming.append(builder.submit(self._build, step + AHEAD))
                yield batch

    def _build(self, step: int) -> Batch:
        epoch, position = divmod(step, self._plan.steps)
        if epoch != self._epoch:
            self._epoch, self._plan = epoch, self._lay_out(epoch)
        blocks = self._plan.blocks(position)
        parts = batching.parts(self._records.lengths, blocks, self.max_tokens, self._replicas)
        examples = np.concatenate(blocks)
        tokens = self._records.lengths[:, examples].sum(axis=1)
        return Batch(step, [pad(self._records, part) for part in parts], examples, int(tokens[0]), int(tokens[1]))


def pad(records: Records, examples: np.ndarray) -> Part:
    """The given examples as two arrays, each side padded with 0 to its longest."""
    pairs = [records[int(example)] for example in examples]
    sides = []
    for side in range(2):
        ids = np.zeros((len(pairs), max((len(pair[side]) for pair in pairs), default=1)), np.int32)
        for row, pair in zip(ids, pairs, strict=True):
            row[: len(pair[side])] = pair[side]
        sides.append(ids)
    return sides[0], sides[1]


def batches_once(records: Records, max_tokens: int) -> Iterator[Part]:
    """All records once, shortest first, in batches of at most `max_tokens` positions on either side."""
    order = np.lexsort(records.lengths)
    lengths = records.lengths[:, order]
    start = 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or (stop + 1 - start) * lengths[:, start : stop + 1].max() > max_tokens:
            yield pad(records, order[start:stop])
            start = stop
