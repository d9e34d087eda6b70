"""Tests of hostile shards and indexes, whose checksums are correct but whose contents are wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from shards import write_shard
from t2t_repro.data import records
from t2t_repro.data.records import Records, index_path
from t2t_repro.errors import UserError

PAIRS = [([2, 3, 1], [4, 1]), ([5, 1], [6, 7, 1]), ([8, 1], [1])]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "toy-train-00000-of-00001"
    write_shard(path, PAIRS)
    return path


@pytest.mark.parametrize("value", [-1, 0, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("field", ["offset", "size", "source", "target"])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_changed_row_of_an_index_is_replaced(shard: Path, row: int, field: str, value: int) -> None:
    index = np.load(index_path(shard))
    index[row][field] = value
    np.save(index_path(shard).open("wb"), index)
    stored = Records([shard])
    try:
        pairs = [[ids.tolist() for ids in stored[number]] for number in range(len(stored))]
    except UserError as error:
        assert value == 0 and f"record {row} is damaged (its index has other lengths)" in str(error)
    else:
        assert pairs == [[*map(list, pair)] for pair in PAIRS]
    assert stored.lengths.min() >= 0 and stored.lengths.max() < 10


def example(**features: list[int]) -> bytes:
    feature = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids)) for name, ids in features.items()}
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff" * 20, "record 1 is damaged"),
        (example(inputs=[-1, 1], targets=[1]), "an id is negative"),
        (example(inputs=[2**40, 1], targets=[1]), "record 1 is damaged"),
        (example(inputs=[400, 1], targets=[1]), "it has an id above 399"),
    ],
    ids=["random bytes", "negative", "too large for 32 bits", "outside the vocabulary"],
)
def test_a_record_with_a_right_checksum_and_wrong_ids_is_refused(shard: Path, data: bytes, reason: str) -> None:
    length = struct.pack("<Q", len(data))
    with shard.open("r+b") as file:
        file.seek(int(np.load(index_path(shard))[1]["offset"]) - 12)
        file.write(length + records._masked_crc(length) + data + records._masked_crc(data))
        file.truncate()
    with pytest.raises(UserError, match=reason) as error:
        stored = Records([shard], vocab_sizes=(400, 400))
        stored[1]
    assert "\n" not in str(error.value)


def test_records_with_wrong_ids_are_refused_if_they_are_read_together(shard: Path) -> None:
    message = "record 1 is damaged \\(it has an id above 6\\)"
    with pytest.raises(UserError, match=message):
        Records([shard], vocab_sizes=(7, 7)).read(np.arange(3))
    index = np.load(index_path(shard))
    index[1]["source"], index[1]["target"] = 3, 2
    np.save(index_path(shard).open("wb"), index)
    with pytest.raises(UserError, match="record 1 is damaged \\(its index has other lengths\\)"):
        Records([shard]).read(np.arange(3))


def test_a_record_larger_than_the_limit_is_refused(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_path(shard).unlink()
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 10)
    with pytest.raises(UserError, match="record 0 is damaged"):
        Records([shard])


def test_a_link_in_place_of_an_index_is_not_followed(shard: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("a file of the user")
    index_path(shard).unlink()
    index_path(shard).symlink_to(victim)
    assert len(Records([shard])) == len(PAIRS)
    assert victim.read_text() == "a file of the user"
