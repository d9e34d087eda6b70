"""Tests how the ids of a MarianMT model's tables become ours, and which folders are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sentencepieces import trained
from t2t_repro.huggingface.config import MarianConfig
from t2t_repro.huggingface.vocabulary import read_vocabulary
from user_errors import user_error

TABLE = {"<unk>": 0, "</s>": 1, "x": 3, "▁dog": 2, ">>de<<": 5, "<pad>": 4}
CONFIG = MarianConfig(vocab_size=6, pad_token_id=4, eos_token_id=1, decoder_start_token_id=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(trained(vocab_size=40))
    (tmp_path / "vocab.json").write_text(json.dumps(TABLE))
    return tmp_path


def test_padding_is_0_the_end_is_1_and_other_pieces_keep_their_order(folder: Path) -> None:
    vocabulary, source_ids, target_ids = read_vocabulary(folder, CONFIG)
    assert source_ids == target_ids == [4, 1, 0, 2, 3, 5]
    assert vocabulary.sources.size == vocabulary.size == 6
    assert vocabulary.pieces(range(6)) == [
        next(piece for piece in TABLE if TABLE[piece] == n) for n in source_ids
    ]
    assert vocabulary.separate_source_size == 0


def test_each_side_may_have_its_table(folder: Path) -> None:
    (folder / "target_vocab.json").write_text('{"<pad>": 0, "y": 2, "</s>": 1, "<unk>": 3}')
    config = replace(CONFIG, decoder_vocab_size=4, decoder_start_token_id=0)
    vocabulary, source_ids, target_ids = read_vocabulary(folder, config)
    assert vocabulary.pieces(range(4)) == ["<pad>", "</s>", "y", "<unk>"]
    assert target_ids == [0, 1, 2, 3]
    assert vocabulary.separate_source_size == len(source_ids) == 6
    (folder / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    (folder / "target_vocab.json").unlink()
    assert "target_vocab.json" in user_error(read_vocabulary, folder, config)


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json"])
def test_a_missing_or_damaged_file_is_named(name: str, folder: Path) -> None:
    contents = (folder / name).read_bytes()
    for damaged in (contents[: len(contents) // 2], b"", b"[1]"):
        (folder / name).write_bytes(damaged)
        assert user_error(read_vocabulary, folder, CONFIG).startswith(f"{folder / name}:")
    (folder / name).unlink()
    assert user_error(read_vocabulary, folder, CONFIG).startswith(f"{folder / name}:")


CHANGES = ({"y": 6}, {"x": 2}, {"x": True}, {"x": "3"}, {"x": 1, "</s>": 3}, {"x": 4, "<pad>": 3})


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_does_not_fit_the_embedding_or_special_ids_is_refused(
    change: dict[str, Any], folder: Path
) -> None:
    (folder / "vocab.json").write_text(json.dumps({**TABLE, **change}))
    assert user_error(read_vocabulary, folder, CONFIG).startswith(f"{folder / 'vocab.json'}:")
