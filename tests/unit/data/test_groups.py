"""Tests that the epochs of a large split are cut into groups without loss, and that few indexes are
read.
"""

import gc
import itertools
import os
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shards import write_shard, write_shards
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import groups, large_split
from t2t_repro.data.large_split import LargeSplit, counts_path, open_records
from t2t_repro.data.pipeline import Batch, Pipeline
from t2t_repro.data.records import Records, read_index
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from user_errors import user_error

LONGEST = 30
RANDOM = np.random.default_rng(7)
LENGTHS = RANDOM.integers(1, 34, (400, 2))
"""Source and target lengths of all examples. Some are longer than LONGEST."""
PAIRS = [
    ([5 + number] * source, [5 + number] * target)
    for number, (source, target) in enumerate(LENGTHS.tolist())
]
"""The ids of an example are its number and 5."""
SIZES = (70, 40, 90, 100, 60, 40)
"""Numbers of examples of the shards."""
SHORT = {number for number, lengths in enumerate(LENGTHS) if lengths.max() <= LONGEST}


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Writes `PAIRS` as shards."""
    bounds = itertools.pairwise(itertools.accumulate(SIZES, initial=0))
    return write_shards(tmp_path, *(PAIRS[start:stop] for start, stop in bounds))


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUP_PAIRS", 90)
    monkeypatch.setattr(large_split, "LARGE", 90)


def pipeline(split: Any, seed: int = 3) -> Pipeline:
    return Pipeline(split, HParams(batch_size=150, max_length=LONGEST), seed, 100, 2)


def corpora(*weights: float) -> tuple[StoredCorpus, ...]:
    """Returns two corpora, of the first two shards and of the others."""
    bounds = ((0, 110, 2), (110, 400, 4))
    return tuple(
        StoredCorpus(start=start, stop=stop, shards=shards, weight=weight)
        for (start, stop, shards), weight in zip(bounds, weights, strict=True)
    )


def assert_has_its_ids(batch: Batch) -> None:
    for inputs, targets, examples in batch.micro_batches:
        for source, target, number in zip(inputs, targets, examples.tolist(), strict=True):
            assert [row[row > 0].tolist() for row in (source, target)] == list(PAIRS[number])


@pytest.mark.parametrize("split_corpora", [(), corpora(0, 0)])
def test_each_epoch_has_each_example_once(
    paths: list[Path], split_corpora: tuple[StoredCorpus, ...]
) -> None:
    data = pipeline(LargeSplit(paths, corpora=split_corpora))
    steps = data.steps_per_epoch
    tokens = LENGTHS[sorted(SHORT), 1].sum()
    assert (
        steps == round(tokens / 150)
        and data.examples_per_epoch == len(SHORT) == 400 - data.too_long
    )
    by_epoch: list[list[int]] = [[], [], []]
    for batch in data.batches(0, 3 * steps):
        assert_has_its_ids(batch)
        assert 75 < batch.target_tokens < 225
        assert batch.target_tokens == LENGTHS[batch.examples, 1].sum()
        by_epoch[batch.step // steps] += batch.examples.tolist()
    for examples in by_epoch:
        assert Counter(examples) == Counter(SHORT)
    assert by_epoch[0] != by_epoch[1] != by_epoch[2]


@pytest.mark.parametrize(("max_length", "examples"), [(30, 110), (2, 0)])
def test_a_corpus_may_have_only_longer_examples(
    tmp_path: Path, max_length: int, examples: int
) -> None:
    short = [([5] * 20, [5] * 20)] * 55
    long = [([5] * 40, [5] * 20)] * 60
    paths = write_shards(tmp_path, short, short, long, long, long, long)
    split = LargeSplit(paths, corpora=corpora(0, 0))
    hparams = HParams(batch_size=150, max_length=max_length)
    if not examples:
        assert "max_length" in user_error(Pipeline, split, hparams, 3, 100, 2)
        return
    data = Pipeline(split, hparams, 3, 100, 2)
    batches = data.batches(0, data.steps_per_epoch)
    assert sorted(np.concatenate([batch.examples for batch in batches])) == list(range(examples))
    assert data.too_long == 240


def test_memory_has_only_one_group(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    data = pipeline(LargeSplit(paths))
    original = LargeSplit.index
    was_freed = list[bool]()
    first = weakref.ref(data.first_group)

    def index(split: LargeSplit, shard: int) -> np.ndarray:
        gc.collect()
        was_freed.append(first() is None)
        return original(split, shard)

    monkeypatch.setattr(LargeSplit, "index", index)
    next(data.batches(data.steps_per_epoch, data.steps_per_epoch + 1))
    assert was_freed and all(was_freed)
    assert data.first_group.steps.start == 0


def test_a_batch_does_not_depend_on_the_first_step_of_the_run(paths: list[Path]) -> None:
    split = LargeSplit(paths)
    whole = list(pipeline(split).batches(0, 60))
    for start in (1, 13, 44):
        for batch, expected in zip(pipeline(split).batches(start, 60), whole[start:], strict=True):
            assert batch.examples.tolist() == expected.examples.tolist()
            for ours, theirs in zip(batch.micro_batches, expected.micro_batches, strict=True):
                list(map(np.testing.assert_array_equal, ours, theirs))
    assert any(
        batch.examples.tolist() != other.examples.tolist()
        for batch, other in zip(whole, pipeline(split, seed=4).batches(0, 60), strict=True)
    )


def test_weights_are_shares_of_target_tokens_and_all_examples_of_a_corpus_are_used_equally_often(
    paths: list[Path],
) -> None:
    data = pipeline(LargeSplit(paths, corpora=corpora(3, 1)))
    examples = np.concatenate(
        [batch.examples for batch in data.batches(0, 2 * data.steps_per_epoch)]
    )
    tokens = [LENGTHS[examples[part], 1].sum() for part in (examples < 110, examples >= 110)]
    assert tokens[0] / sum(tokens) == pytest.approx(0.75, abs=0.01)
    assert sum(tokens) == pytest.approx(2 * LENGTHS[sorted(SHORT), 1].sum(), rel=0.02)
    counts = Counter(examples.tolist())
    for corpus in (range(110), range(110, 400)):
        uses = {counts[number] for number in corpus if number in SHORT}
        assert max(uses) - min(uses) <= 1


def test_a_group_reads_only_its_indexes(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def read_index(path: Path) -> np.ndarray:
        index = original(path)
        rows.append(len(index))
        return index

    original = large_split.read_index
    monkeypatch.setattr("t2t_repro.data.records.read_index", read_index)
    monkeypatch.setattr(large_split, "read_index", read_index)
    first = LargeSplit(paths)
    assert sum(rows) == 400
    rows.clear()
    split = open_records(400, paths)
    assert isinstance(split, LargeSplit) and not rows
    data = pipeline(split)
    assert sum(rows) < 300
    rows.clear()
    next(data.batches(3 * data.steps_per_epoch - 1, 3 * data.steps_per_epoch))
    assert sum(rows) < 300
    assert split.index_fingerprint == first.index_fingerprint == Records(paths).index_fingerprint
    assert [split.locate(number) for number in (0, 69, 70, 399)] == [
        Records(paths).locate(number) for number in (0, 69, 70, 399)
    ]
    assert split.tokens(110, 400) == Records(paths).tokens(110, 400)
    assert (
        LargeSplit(paths, was_reversed=True).tokens(0, 400) == Records(paths).tokens(0, 400)[::-1]
    )


def test_a_group_keeps_only_the_rows_of_its_examples(paths: list[Path]) -> None:
    data = pipeline(LargeSplit(paths, corpora=corpora(3, 1)))
    group = data.first_group
    examples = np.concatenate(
        [block for step in range(group.plan.steps) for block in group.plan.blocks(step)]
    )
    assert sorted(examples) == list(range(len(group.records)))
    assert group.records.lengths.max() <= LONGEST
    share = len(group.steps) / data.steps_per_epoch
    assert group.records.lengths[1].sum() == pytest.approx(
        share * LENGTHS[sorted(SHORT), 1].sum(), rel=0.1
    )


def test_a_damaged_record_is_named_by_its_number_in_its_shard(paths: list[Path]) -> None:
    split = LargeSplit(paths)
    number = int(LENGTHS[310:360].sum(axis=1).argmax()) + 310
    shard, row = split.locate(number)
    contents = bytearray(shard.read_bytes())
    contents[read_index(shard)["offset"][row] + 5] ^= 1
    shard.write_bytes(contents)
    os.utime(shard, ns=(0, 0))
    data = Pipeline(LargeSplit(paths), HParams(batch_size=150, max_length=40), 3, 100, 2)
    with pytest.raises(UserError, match=f"{shard}: record {row} is damaged"):
        list(data.batches(0, data.steps_per_epoch))


def test_few_records_are_read_at_once_and_leave_no_file_of_counts(paths: list[Path]) -> None:
    assert not isinstance(open_records(40, paths[1:2]), LargeSplit)
    assert not counts_path(paths[0]).exists()


def test_counts_are_those_of_the_shards_that_exist(paths: list[Path]) -> None:
    assert len(LargeSplit(paths)) == 400
    counts_path(paths[0]).write_bytes(counts_path(paths[0]).read_bytes()[:-20])
    assert len(LargeSplit(paths)) == 400
    split = LargeSplit(paths)
    write_shard(paths[5], PAIRS[:30])
    assert len(LargeSplit(paths)) == 390
    with pytest.raises(UserError, match="has changed"):
        split.index(5)
