"""Tests that a step has the same batch no matter where a run starts, and that an epoch has each example once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from shards import write_shard
from t2t_repro.data import batching
from t2t_repro.data import records as records_module
from t2t_repro.data.pipeline import MicroBatch, Pipeline, batches_once, distinct_sources
from t2t_repro.data.records import Records, shard_path
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams

COUNT = 60


def pairs(count: int = COUNT) -> list[tuple[list[int], list[int]]]:
    """Returns `count` different pairs of source ids and target ids. Each source and target has 2 to 11 tokens."""
    random = np.random.default_rng(0)
    return [
        ([number + 2] * int(random.integers(1, 11)) + [1], [number + 2] * int(random.integers(1, 11)) + [1])
        for number in range(count)
    ]


@pytest.fixture
def records(tmp_path: Path) -> Records:
    path = shard_path(tmp_path, "toy", "train", 0, 1)
    write_shard(path, pairs())
    return Records([path])


def pipeline(records: Records, max_length: int = 11) -> Pipeline:
    return Pipeline(records, HParams(batch_size=50, max_length=max_length), seed=1, max_tokens=40, replicas=1)


def unpadded(micro_batches: Iterable[MicroBatch]) -> list[tuple[list[int], list[int]]]:
    """Returns the pairs in micro-batches without padding. Asserts that zeros pad each row to the longest row."""
    batch_pairs = []
    for sides in micro_batches:
        for ids in sides[:2]:
            assert ids.dtype == np.int32
            lengths = (ids != 0).sum(axis=1)
            np.testing.assert_array_equal(ids != 0, np.arange(ids.shape[1]) < lengths[:, None])
            assert ids.shape[1] == max(lengths, default=1)
        batch_pairs += [
            tuple(side[side != 0].tolist() for side in pair)  # type: ignore[misc]
            for pair in zip(*sides[:2], strict=True)
        ]
    return batch_pairs


def test_batches_are_the_same_from_any_start(records: Records) -> None:
    once = pipeline(records)
    stop = 3 * once.steps_per_epoch
    unbroken = list(once.batches(0, stop))
    assert [batch.step for batch in unbroken] == list(range(stop))
    for start in range(stop):
        assert str(list(pipeline(records).batches(start, stop))) == str(unbroken[start:])
    assert str(list(once.batches(1, 3))) == str(unbroken[1:3])
    assert list(pipeline(records).batches(5, 5)) == []


def test_longer_pairs_are_skipped_and_counted(records: Records) -> None:
    ours = pipeline(records, max_length=6)
    assert ours.too_long == len([pair for pair in pairs() if max(map(len, pair)) > 6])
    batches = ours.batches(0, ours.steps_per_epoch)
    short_pairs = [pair for pair in pairs() if max(map(len, pair)) <= 6]
    assert sorted(unpadded(cut for batch in batches for cut in batch.micro_batches)) == sorted(short_pairs)
    with pytest.raises(UserError, match="all 60 pairs are longer than max_length=1 tokens"):
        pipeline(records, max_length=1)


def plain_records(paths: list[Path]) -> list[tuple[list[int], list[int]]]:
    """Returns the pairs of shards in order, parsed one by one by TensorFlow's message class."""
    examples = []
    for path in paths:
        contents = path.read_bytes()
        while contents:
            size = int.from_bytes(contents[:8], "little")
            feature = tf.train.Example.FromString(contents[12 : 12 + size]).features.feature
            examples.append(tuple(list(feature[side].int64_list.value) for side in ("inputs", "targets")))
            contents = contents[16 + size :]
    return examples  # type: ignore[return-value]


def padded(rows: list[list[int]]) -> np.ndarray:
    """Returns `rows` as an array in which shorter rows end with zeros; its shape is [0, 1] if there are no rows."""
    width = max(map(len, rows), default=1)
    return np.array([row + [0] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)


def test_batches_equal_those_of_plain_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards_of_all_lengths: list[Path]
) -> None:
    monkeypatch.setattr(records_module, "PARSED_TOGETHER", 3)
    stored, examples = Records(shards_of_all_lengths), plain_records(shards_of_all_lengths)
    ours = Pipeline(stored, HParams(batch_size=500, max_length=300), 1, 60, 2)
    batches = ours.batches(0, 2 * ours.steps_per_epoch)
    for epoch in range(2):
        epoch_plan = batching.plan(stored.lengths, 500, 300, 1, epoch)
        for step in range(epoch_plan.steps):
            groups = batching.micro_batches(stored.lengths, epoch_plan.blocks(step), 60, 2)
            batch = next(batches)
            assert len(batch.micro_batches) == len(groups)
            for group, sides in zip(groups, batch.micro_batches, strict=True):
                for side, ids in enumerate(sides[:2]):
                    expected = padded([examples[number][side] for number in group])
                    assert ids.dtype == expected.dtype and ids.shape == expected.shape
                    assert ids.tobytes() == expected.tobytes()
            assert [batch.source_tokens, batch.target_tokens] == [
                sum(len(examples[number][side]) for number in batch.examples) for side in (0, 1)
            ]
            assert batch.positions == sum(ids.size for sides in batch.micro_batches for ids in sides[:2])
            assert batch.examples.tolist() == [number for sides in batch.micro_batches for number in sides.examples]
    assert next(batches, None) is None


@pytest.fixture
def shards_of_all_lengths(tmp_path: Path) -> list[Path]:
    """Returns three shards of 150 pairs with 1 to 300 tokens a side, some with an empty target."""
    random = np.random.default_rng(3)
    paths = [shard_path(tmp_path, "long", "train", number, 3) for number in range(3)]
    for path in paths:
        sides = [[random.integers(1, 9000, n).tolist() for n in random.geometric(0.08, 50)] for _ in range(2)]
        sides[0][:2], sides[1][1:4] = [[5] * 300, [1]], [[1], [], [6] * 300]
        write_shard(path, list(zip(*sides, strict=True)))
    return paths


def test_each_worker_reads_only_its_share(shards_of_all_lengths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    hparams, numbers = HParams(batch_size=2000, max_length=300), []
    read = Records.read
    monkeypatch.setattr(Records, "read", lambda self, part: numbers.extend(part.tolist()) or read(self, part))
    whole = Pipeline(Records(shards_of_all_lengths), hparams, 1, 100, 6)
    expected = list(whole.batches(0, whole.steps_per_epoch))
    once = sorted(numbers)
    numbers.clear()
    for local in (range(2), range(2, 4), range(4, 6)):
        batches = list(whole.batches(0, len(expected), local))
        for batch, whole_batch in zip(batches, expected, strict=True):
            assert (batch.positions, batch.target_tokens) == (whole_batch.positions, whole_batch.target_tokens)
            np.testing.assert_array_equal(batch.examples, whole_batch.examples)
            cuts = zip(batch.micro_batches, whole_batch.micro_batches, strict=True)
            for place, (sides, whole_sides) in enumerate(cuts):
                for ids, whole_ids in zip(sides, whole_sides, strict=True):
                    assert (ids.tolist() == whole_ids.tolist()) if place % 6 in local else len(ids) == 0
    assert sorted(numbers) == once


@pytest.mark.parametrize("max_tokens", [1, 11, 40, 10_000])
def test_batches_once_hold_every_pair_once_shortest_first(records: Records, max_tokens: int) -> None:
    batches = list(batches_once(records, max_tokens))
    batch_pairs = unpadded(batches)
    assert sorted(batch_pairs) == sorted(pairs())
    targets = [len(target) for _, target in batch_pairs]
    assert targets == sorted(targets)
    assert all(ids.size <= max_tokens or len(ids) == 1 for sides in batches for ids in sides[:2])
    if max_tokens == 10_000:
        assert len(batches) == 1


@pytest.mark.parametrize(
    ("max_tokens", "lengths"), [(5 * 52, [48, 49, 50, 51, 52]), (5 * 52 - 1, [48, 49, 50, 51]), (1, [49, 50])]
)
def test_distinct_sources_are_examples_of_medium_length(tmp_path: Path, max_tokens: int, lengths: list[int]) -> None:
    path = shard_path(tmp_path, "toy", "dev", 0, 1)
    write_shard(path, [([3] * length, [4] * length) for length in np.random.default_rng(1).permutation(99) + 1])
    batch = distinct_sources(Records([path]), max_tokens)
    assert batch and unpadded([batch]) == [([3] * length, [4] * length) for length in lengths]


@pytest.mark.parametrize(("sources", "expected"), [([3], None), ([3, 3], None), ([3, 3, 4, 3], {3, 4})])
def test_equal_sources_do_not_count_as_distinct(tmp_path: Path, sources: list[int], expected: set[int] | None) -> None:
    path = shard_path(tmp_path, "toy", "dev", 0, 1)
    write_shard(path, [([source, 1], [5, 1]) for source in sources])
    batch = distinct_sources(Records([path]), 1000)
    assert (batch and set(batch[0][:, 0].tolist())) == expected
    assert batch is None or len(batch[0]) == len(expected or ())
