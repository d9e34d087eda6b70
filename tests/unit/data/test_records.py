"""Tests TFRecord shards and their indexes against TensorFlow's readers and writers."""

import io
import os
from pathlib import Path
from random import Random
from unittest import mock

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from folders import contents
from properties import few
from shards import Pairs, by_tensorflow, pairs_of, write_shard, write_shards
from t2t_repro.data import records
from t2t_repro.data.records import (
    Records,
    chunk,
    find_files,
    find_shards,
    index_path,
    shard_path,
    write_chunks,
)
from user_errors import user_error

PAIRS = [
    ([5, 6, 1], [7, 1]),
    ([300, 70_000, 2, 1], [1]),
    ([8, 1], [9, 10, 11, 12, 1]),
    ([4, 1], [4, 1]),
]


def shard(folder: Path, number: int = 0, total: int = 1) -> Path:
    return shard_path(folder, "toy", "train", number, total)


def written(folder: Path, pairs: Pairs = PAIRS) -> Path:
    """Writes pairs as a shard and its index, and returns the path of the shard."""
    write_shard(shard(folder), pairs)
    return shard(folder)


def flip(path: Path, position: int) -> None:
    contents = bytearray(path.read_bytes())
    contents[position] ^= 1
    path.write_bytes(contents)


def failure(path: Path) -> str:
    return user_error(lambda: pairs_of(Records([path])))


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_an_index_that_does_not_match_is_named_and_rebuilt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    before = index_path(path).read_bytes()
    wrong = [np.array(3), np.array([(12, 1000, 1, 1)] * 4, records.INDEX)]
    for field, value in (
        ("source", 2**31 - 1),
        ("target", 1000),
        ("source", -1),
        ("target", -1),
        ("offset", 0),
    ):
        wrong.append(np.load(index_path(path)))
        wrong[-1][1][field] = value
    for damaged in (*map(saved, wrong), before[:-10]):
        index_path(path).write_bytes(damaged)
        assert pairs_of(Records([path])) == PAIRS
        assert (
            f"{index_path(path)}: does not match its shard; rebuilding it"
            in capsys.readouterr().err
        )
        assert index_path(path).read_bytes() == before
    os.utime(index_path(path), ns=(0, 0))
    Records([path])
    assert index_path(path).stat().st_mtime_ns == 0  # an index that matches is not rebuilt


def test_a_truncated_shard_is_an_error(tmp_path: Path) -> None:
    for cut in (1, 4, 5, 20):
        path = written(tmp_path)
        os.truncate(path, path.stat().st_size - cut)
        assert f"{path}: record 3 is damaged" in failure(path)
        index_path(path).unlink()
        assert f"{path}: record 3 is damaged" in failure(path)
    opened = Records([written(tmp_path)])
    for file in (path, index_path(path)):
        os.truncate(file, 0)
    assert f"{path}: record 0 is damaged" in user_error(pairs_of, opened)


def test_a_shard_that_is_deleted_or_replaced_can_be_read_until_the_end(tmp_path: Path) -> None:
    path = written(tmp_path)
    other = written(tmp_path / "other", PAIRS[:1])
    opened = Records([path])
    other.replace(path)
    index_path(path).unlink()
    assert pairs_of(opened) == PAIRS


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (["1-of-00003", "2-of-00003"], "0-of-00003: this shard is missing"),
        (["0-of-00003", "1-of-00003"], "2-of-00003: this shard is missing"),
        (
            ["0-of-00001", "0-of-00002", "1-of-00002"],
            "0-of-00002: not from the run of toy-train-00000-of-00001",
        ),
    ],
)
def test_missing_shards_and_shards_of_two_runs_are_errors(
    tmp_path: Path, names: list[str], named: str
) -> None:
    for name in names:
        write_shard(tmp_path / f"toy-train-0000{name}", PAIRS)
    assert f"toy-train-0000{named}; copy" in user_error(find_shards, tmp_path, "toy", "train")


def test_only_the_shards_of_problem_and_split_are_found_in_order(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, *([] for _ in range(12)))
    for other in (
        "toy-dev-00000-of-00001",
        "toy2-train-00000-of-00001",
        "my_toy-train-00000-of-00001",
        "toy.json",
    ):
        (tmp_path / other).write_bytes(b"")
    assert find_shards(tmp_path, "toy", "train") == paths
    assert len(find_files(tmp_path, "toy", "train")) == 24
    assert find_shards(tmp_path, "other", "train") == []


def test_an_id_that_is_not_in_the_vocabulary_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, [([5, 1], [6, 7, 1]), ([9, 1], [8, 1])])
    for was_reversed, sizes in ((False, (10, 9)), (True, (9, 10))):
        # Reading one by one is many times slower. Records that t2t-datagen wrote must not need it.
        with mock.patch.object(Records, "__getitem__", None):
            assert len(Records([path], was_reversed, sizes).read(np.arange(2))[was_reversed]) == 4
        for side in (0, 1):
            smaller = (sizes[0] - (side == 0), sizes[1] - (side == 1))
            message = user_error(Records([path], was_reversed, smaller).read, np.arange(2))
            assert f"record 1 is damaged (it has an id above {smaller[side] - 1})" in message


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff" * 20, ""),
        (by_tensorflow(inputs=[-1, 1], targets=[1]), "an id is negative"),
        (by_tensorflow(inputs=[2**40, 1], targets=[1]), ""),
        (by_tensorflow(inputs=[8, 1, 1], targets=[9, 10, 11, 1]), "its index has other lengths"),
    ],
)
def test_a_record_with_a_right_checksum_and_wrong_contents_is_refused(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    path = written(tmp_path)
    index = np.load(index_path(path))
    parts = [chunk([pair])[0] for pair in PAIRS[:2]]
    path.write_bytes(b"".join([*parts, records.record(data)]))
    index[2]["size"] = len(data)
    index_path(path).write_bytes(saved(index[:3]))
    assert f"record 2 is damaged ({reason}" in user_error(lambda: Records([path])[2])


def test_a_record_larger_than_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    index_path(path).unlink()
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 10)
    assert "record 0 is damaged" in failure(path)


def test_each_changed_byte_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    path = written(tmp_path, PAIRS[:2])
    index = index_path(path).read_bytes()
    offsets = np.load(index_path(path))["offset"].tolist()
    for position in range(path.stat().st_size):
        flip(path, position)
        stored = Records([path])
        record = int(offsets[1] - 12 <= position)
        for read in (lambda: stored.read(np.array([1, 0, 1])), lambda: stored[record]):  # noqa: B023
            assert user_error(read).startswith(
                f"{path}: record {record} is damaged (its checksum differs)"
            )
        assert stored.read(np.array([1 - record]))[0].tolist() == PAIRS[1 - record][0]
        index_path(path).unlink()
        assert f"record {record} is damaged" in failure(path)
        index_path(path).write_bytes(index)
        flip(path, position)


IDS = st.lists(st.integers(0, 300) | st.integers(0, 2**31 - 1), max_size=5)
SHARDS = st.lists(st.lists(st.tuples(IDS, IDS), max_size=4), min_size=1, max_size=3)
"""Draws a split: a list of shards. A shard is a list of pairs of source ids and target ids."""


@hypothesis.settings(few, max_examples=25)
@given(SHARDS, st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_any_written_records_are_read_again(
    tmp_path_factory: pytest.TempPathFactory,
    shards: list[Pairs],
    was_reversed: bool,
    has_index: bool,
    random: Random,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "records"
    for path in folder.glob("*"):  # delete the files of Hypothesis's previous example
        path.unlink()
    paths = [shard(folder, number, len(shards)) for number in range(len(shards))]
    for path, pairs in zip(paths, shards, strict=True):
        write_chunks(path, [chunk([pair]) for pair in pairs])
    if has_index:  # a shard does not depend on its chunks
        before = contents(folder)
        assert write_shards(folder, *shards) == paths and contents(folder) == before
    fingerprint = Records(paths).index_fingerprint
    if not has_index:
        for path in paths:
            index_path(path).unlink()
    stored = Records(find_shards(folder, "toy", "train"), was_reversed)
    assert stored.index_fingerprint == fingerprint and len(stored) == sum(map(len, shards))
    expected = [pair[::-1] if was_reversed else pair for pairs in shards for pair in pairs]
    assert pairs_of(stored) == expected
    assert stored.lengths.dtype == np.int32 and all(
        side.dtype == np.int32 for pair in stored for side in pair
    )
    with pytest.raises(IndexError):
        stored[len(expected)]
    assert stored.lengths.T.tolist() == [[len(source), len(target)] for source, target in expected]
    places = [
        (path, number)
        for path, pairs in zip(paths, shards, strict=True)
        for number in range(len(pairs))
    ]
    assert [stored.locate(number) for number in range(len(stored))] == places
    numbers = random.choices(range(len(stored)), k=7) if expected else []
    with mock.patch.object(records, "PARSED_TOGETHER", 3):
        read = stored.read(np.array(numbers, int))
    for side, ids in enumerate(read):
        assert ids.dtype == np.int32
        assert ids.tolist() == [i for number in numbers for i in expected[number][side]]
