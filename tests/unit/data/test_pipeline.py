"""Tests that a step has the same batch no matter where a run starts, and that an epoch has each
example once.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shards import Pairs, write_shards
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import batching
from t2t_repro.data import records as records_module
from t2t_repro.data.pipeline import Batch, MicroBatch, Pipeline, batches_once, distinct_sources
from t2t_repro.data.records import Records
from t2t_repro.hparam import MAX_INT, HParams
from user_errors import user_error

LONGEST = 200
"""The plans of these tests omit longer examples. The shards have a few of them."""


def examples() -> Pairs:
    """Returns 150 pairs of source ids and target ids with 1 to 300 tokens a side. One has an empty
    target.
    """
    random = np.random.default_rng(3)
    sides = [
        [random.integers(1, 9000, n).tolist() for n in random.geometric(0.08, 150)]
        for _ in range(2)
    ]
    sides[0][:2] = [[5] * 300, [1]]
    sides[1][1:4] = [[1], [], [6] * 300]
    return list(zip(*sides, strict=True))


EXAMPLES = examples()


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """Returns `EXAMPLES` in three shards."""
    monkeypatch.setattr(records_module, "PARSED_TOGETHER", 3)
    return stored(tmp_path, *(EXAMPLES[start : start + 50] for start in (0, 50, 100)))


def stored(folder: Path, *shards: Pairs) -> Records:
    """Writes the shards of a split, and opens them."""
    return Records(write_shards(folder, *shards))


def padded(rows: list[list[int]]) -> np.ndarray:
    """Returns `rows` as an array in which shorter rows end with zeros; its shape is [0, 1] if there
    are no rows.
    """
    width = max(map(len, rows), default=1)
    return np.array([row + [0] * (width - len(row)) for row in rows], np.int32).reshape(
        len(rows), width
    )


def assert_equal(micro_batch: MicroBatch, numbers: list[int]) -> None:
    """Asserts that a micro-batch has certain examples."""
    assert micro_batch.examples.tolist() == numbers
    for side, ids in enumerate(micro_batch[:2]):
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids, padded([EXAMPLES[number][side] for number in numbers]))


def values(batch: Batch) -> list[Any]:
    arrays = [array.tolist() for micro_batch in batch.micro_batches for array in micro_batch]
    return [
        batch.step,
        arrays,
        batch.examples.tolist(),
        batch.source_tokens,
        batch.target_tokens,
        batch.positions,
    ]


@pytest.mark.parametrize("weights", [(0.0, 0.0), (1.0, 5.0)])
def test_batches_are_the_same_from_any_start(
    records: Records, weights: tuple[float, float]
) -> None:
    corpora = (
        StoredCorpus("a", weights[0], stop=40),
        StoredCorpus("b", weights[1], start=40, stop=150),
    )
    records = Records(records.paths, corpora=corpora)
    once = Pipeline(records, HParams(batch_size=300, max_length=LONGEST), 1, 60, 1)
    stop = 2 * once.steps_per_epoch + 1
    unbroken = list(map(values, once.batches(0, stop)))
    assert len(unbroken) == stop
    for start in (stop - 1, 0, 1, 8, stop):
        assert list(map(values, once.batches(start, stop))) == unbroken[start:]
    epoch = [number for batch in unbroken[: once.steps_per_epoch] for number in batch[2]]
    assert (len({*epoch}) < len(epoch)) == any(weights)


def test_batches_equal_those_of_plain_reading(records: Records) -> None:
    ours = Pipeline(records, HParams(batch_size=500, max_length=LONGEST), 1, 60, 2)
    assert ours.too_long == len([pair for pair in EXAMPLES if max(map(len, pair)) > LONGEST]) == 2
    batches = ours.batches(0, 2 * ours.steps_per_epoch)
    for epoch in range(2):
        epoch_plan = batching.plan(records.lengths, 500, LONGEST, 1, epoch)
        for position in range(epoch_plan.steps):
            batch = next(batches)
            assert batch.step == epoch * epoch_plan.steps + position
            groups = batching.micro_batches(records.lengths, epoch_plan.blocks(position), 60, 2)
            for group, micro_batch in zip(groups, batch.micro_batches, strict=True):
                assert_equal(micro_batch, group.tolist())
            numbers = np.concatenate(groups).tolist()
            assert batch.examples.tolist() == numbers
            for side, tokens in enumerate((batch.source_tokens, batch.target_tokens)):
                assert tokens == sum(len(EXAMPLES[number][side]) for number in numbers)
            assert batch.positions == sum(
                ids.size for sides in batch.micro_batches for ids in sides[:2]
            )
    assert next(batches, None) is None
    message = user_error(
        Pipeline, stored(records.paths[0].parent / "long", EXAMPLES[:1]), HParams(), 1, 60, 2
    )
    assert "all pairs (1) are longer than max_length=256 tokens" in message


def test_each_worker_reads_only_its_share(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = list[int]()
    read = Records.read
    monkeypatch.setattr(
        Records, "read", lambda self, part: numbers.extend(part.tolist()) or read(self, part)
    )
    whole = Pipeline(records, HParams(batch_size=2000, max_length=LONGEST), 1, 100, 6)
    expected = list(whole.batches(0, whole.steps_per_epoch))
    once = sorted(numbers)
    numbers.clear()
    for local in (range(2), range(2, 4), range(4, 6)):
        for batch, whole_batch in zip(
            whole.batches(0, len(expected), local), expected, strict=True
        ):
            assert (batch.positions, batch.target_tokens) == (
                whole_batch.positions,
                whole_batch.target_tokens,
            )
            np.testing.assert_array_equal(batch.examples, whole_batch.examples)
            for place, cuts in enumerate(
                zip(batch.micro_batches, whole_batch.micro_batches, strict=True)
            ):
                assert_equal(cuts[0], cuts[1].examples.tolist() if place % 6 in local else [])
    assert sorted(numbers) == once


@pytest.mark.parametrize(("max_tokens", "max_length"), [(1, MAX_INT), (40, 7), (100_000, LONGEST)])
def test_batches_once_hold_every_short_pair_once_shortest_target_first(
    records: Records, max_tokens: int, max_length: int
) -> None:
    short = [number for number in range(150) if max(map(len, EXAMPLES[number])) <= max_length]
    order = sorted(short, key=lambda number: (len(EXAMPLES[number][1]), len(EXAMPLES[number][0])))
    expected: list[list[int]] = [[]]
    for number in order:
        longest = max(len(side) for other in [*expected[-1], number] for side in EXAMPLES[other])
        if expected[-1] and (len(expected[-1]) + 1) * longest > max_tokens:
            expected.append([])
        expected[-1].append(number)
    for batch, numbers in zip(batches_once(records, max_tokens, max_length), expected, strict=True):
        assert_equal(batch, numbers)


MEDIUM = [
    ([3] * length, [4] * length)
    for length in (np.random.default_rng(1).permutation(99) + 1).tolist()
]
"""Pairs of all lengths up to 99. The medium length is 50."""


@pytest.mark.parametrize(
    ("max_tokens", "max_length", "lengths"),
    [
        (260, 99, [48, 49, 50, 51, 52]),
        (259, 99, [48, 49, 50, 51]),
        (1, 99, [49, 50]),
        (20, 9, [4, 5, 6]),
    ],
)
def test_distinct_sources_are_examples_of_medium_length(
    tmp_path: Path, max_tokens: int, max_length: int, lengths: list[int]
) -> None:
    batch = distinct_sources(stored(tmp_path, MEDIUM), max_tokens, max_length)
    assert batch
    for ids, token in zip(batch[:2], (3, 4), strict=True):
        np.testing.assert_array_equal(ids, padded([[token] * length for length in lengths]))


def test_equal_sources_do_not_count_as_distinct(tmp_path: Path) -> None:
    pairs = [([3], [5]), ([3], [6]), ([4], [7]), ([3], [8])]
    batch = distinct_sources(stored(tmp_path, pairs), 1000)
    assert batch and (batch.inputs.tolist(), batch.targets.tolist()) == ([[3], [4]], [[6], [7]])
    assert distinct_sources(stored(tmp_path, pairs[:2]), 1000) is None
