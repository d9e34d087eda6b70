"""Tests that data directories that tensor2tensor wrote are read. TensorFlow writes their shards in
the tests.
"""

from pathlib import Path

import pytest
import tensorflow as tf

from programs import error, succeed
from t2t_repro.data import records
from t2t_repro.data.dataset import foreign_format, load_data
from t2t_repro.errors import UserError

PROBLEM = "translate_ende_wmt8k"
VOCABULARY = "vocab.translate_ende_wmt8k.8192.subwords"
SUBWORDS = ("<pad>", "<EOS>", "a_", "b_", "c_", "\\", "_", "u", ";", *"0123456789")
TRAIN = [([2, 3, 1], [4, 1]), ([3, 1], [2, 2, 1]), ([4, 4, 4, 1], [3, 1])]
DEV = [([2, 1], [3, 4, 1])]


def write_shard(
    path: Path, pairs: list[tuple[list[int], list[int]]], **other_features: list[int]
) -> None:
    """Writes a shard as tensor2tensor does: a tf.train.Example for each pair, without an index."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for source, target in pairs:
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
                for name, ids in {"inputs": source, "targets": target, **other_features}.items()
            }
            writer.write(
                tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
            )


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Returns a data directory of tensor2tensor with two training shards and a dev shard."""
    write_shard(tmp_path / f"{PROBLEM}-train-00000-of-00002", TRAIN[:2])
    write_shard(tmp_path / f"{PROBLEM}-train-00001-of-00002", TRAIN[2:])
    write_shard(tmp_path / f"{PROBLEM}-dev-00000-of-00001", DEV)
    (tmp_path / VOCABULARY).write_text("".join(f"'{subword}'\n" for subword in SUBWORDS))
    return tmp_path


def pairs(data_dir: Path, problem: str, split: str) -> list[tuple[list[int], list[int]]]:
    """Returns the pairs of ids in a split."""
    split_records = load_data(str(data_dir), problem).records[split]
    return [
        tuple(ids.tolist() for ids in split_records[number]) for number in range(len(split_records))
    ]


def test_pairs_and_vocabulary_are_those_of_the_files(data_dir: Path) -> None:
    assert pairs(data_dir, PROBLEM, "train") == TRAIN
    assert pairs(data_dir, PROBLEM, "dev") == DEV
    assert pairs(data_dir, f"{PROBLEM}_rev", "dev") == [(target, source) for source, target in DEV]
    data = load_data(str(data_dir), PROBLEM)
    assert data.vocabulary.decode([[2, 3, 1]]) == ["a b"] and data.vocabulary.size == len(SUBWORDS)
    assert data.description.vocabulary == VOCABULARY
    assert data.description.vocabulary_fingerprint == data.vocabulary.fingerprint
    assert data.description.pairs == {"train": 3, "dev": 1}
    assert data.problem.languages == ("en", "de") and data.problem.target_space_id == 0
    assert data.problem.decode_hparams.extra_length == 100


def test_indexes_are_written_once_and_the_fingerprint_identifies_the_data(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert foreign_format(str(data_dir), PROBLEM)
    assert not foreign_format(str(data_dir), "translate_enfr_wmt8k")
    before = load_data(str(data_dir), PROBLEM).description
    assert "indexing 3 shards of problem translate_ende_wmt8k" in capsys.readouterr().err
    assert load_data(str(data_dir), PROBLEM).description == before
    assert capsys.readouterr().err == "" and len(list(data_dir.glob("*.index"))) == 3
    shard = data_dir / f"{PROBLEM}-train-00001-of-00002"
    write_shard(shard, [([4, 4, 1], [3, 1])])
    records.index_path(shard).unlink()
    assert load_data(str(data_dir), PROBLEM).description.fingerprint != before.fingerprint


def test_damaged_data_is_refused(data_dir: Path) -> None:
    shard = data_dir / f"{PROBLEM}-train-00000-of-00002"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-3])
    with pytest.raises(UserError, match=r"train-00000-of-00002: record 1 is damaged"):
        load_data(str(data_dir), PROBLEM)
    shard.write_bytes(whole)
    write_shard(shard, TRAIN, targets_segmentation=[1, 1])
    with pytest.raises(
        UserError, match=r"train-00000-of-00002: packed examples, which are not supported"
    ):
        load_data(str(data_dir), PROBLEM)
    for name, message in (
        (
            f"{PROBLEM}-dev-00000-of-00001",
            "dev-00000-of-00001: this shard is missing; copy it here from the folder",
        ),
        (VOCABULARY, "wmt8k.8192.subwords: no such vocabulary; copy it here"),
        (
            f"{PROBLEM}-train-00001-of-00002",
            "train-00001-of-00002: this shard is missing; copy the shards",
        ),
    ):
        (data_dir / name).rename(data_dir / "away")
        with pytest.raises(UserError, match=message):
            load_data(str(data_dir), PROBLEM)
        (data_dir / "away").rename(data_dir / name)


def test_the_trainer_opens_the_data(data_dir: Path) -> None:
    flags = ("--hparams_set=transformer_tiny", f"--data_dir={data_dir}")
    dry_run = (*flags, "--dry_run", "--train_steps=2", "--hparams=learning_rate_warmup_steps=1")
    result = succeed("trainer", f"--problem={PROBLEM}", *dry_run)
    assert "micro-batches a step" in result.stdout
    message = error("trainer", f"--problem={PROBLEM}", *flags, "--generate_data")
    assert f"{data_dir} has data that tensor2tensor generated" in message
    message = error("trainer", "--problem=text2text_tmpdir", *flags, "--tmp_dir=raw")
    assert f"--problem=text2text_tmpdir --tmp_dir=raw --data_dir={data_dir}" in message
    message = error("trainer", "--problem=translate_enfr_wmt32k", *flags)
    assert "no data of problem 'translate_enfr_wmt32k'" in message
    assert "--problem=wmt_enfr" in message
    message = error("datagen", f"--problem={PROBLEM}_rev", f"--data_dir={data_dir / 'new'}")
    assert "--problem=wmt_ende" in message
    assert not (data_dir / "new").exists()
