"""Compares vocabularies of MarianMT models, in Python and as TensorFlow operations, with `MarianTokenizer`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import tensorflow as tf

from t2t_repro.data.vocabularies.graph import graph_vocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.huggingface.config import read_config
from t2t_repro.huggingface.vocabulary import read_vocabulary

RECORDED = Path(__file__).parent / "data" / "marian"
MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "huggingface"
needs_models = pytest.mark.skipif(not MODELS.exists(), reason="../shared/golden/huggingface does not exist")


def check_encoding(vocabulary: Vocabulary, texts: Sequence[str], ids: list[list[int]], numbers: list[int]) -> None:
    """Asserts that texts have these ids in Python and in the graph. `numbers` has transformers' number of each id."""
    encoded = vocabulary.encode(texts)
    assert [[numbers[number] for number in row] for row in encoded] == ids
    assert [[*row, 1] for row in graph_vocabulary(vocabulary).tokenize(texts).to_list()] == encoded


def check_decoding(vocabulary: Vocabulary, ids: list[list[int]], texts: list[str], numbers: list[int]) -> None:
    rows = [[numbers.index(number) for number in row] for row in ids]
    assert vocabulary.decode(rows) == texts
    ragged = tf.ragged.constant(rows, tf.int32, ragged_rank=1, row_splits_dtype=tf.int64)
    assert [text.decode() for text in graph_vocabulary(vocabulary).detokenize(ragged).numpy()] == texts


def test_small_vocabulary_with_languages() -> None:
    vocabulary, source_ids, target_ids = read_vocabulary(RECORDED, read_config(RECORDED))
    results = json.loads((RECORDED / "results.json").read_text("utf-8"))
    check_encoding(vocabulary.sources, results["texts"], results["source_ids"], source_ids)
    check_encoding(vocabulary, results["texts"], results["target_ids"], target_ids)
    check_decoding(vocabulary, results["rows"], results["decoded"], target_ids)
    assert sorted(vocabulary.tags) == [">>deu<<", ">>nds_Latn<<"]
    plain = [text for text in results["texts"] if not text.startswith(">>") and text == text.strip("\x00\x01")]
    assert vocabulary.encode_sources(plain) == vocabulary.sources.encode(plain)


@needs_models
@pytest.mark.parametrize("name", ["opus_like", "separate"])
def test_trained_models(name: str) -> None:
    expected = {path.stem: path.read_text("utf-8") for path in (MODELS / name / "expected").glob("*.[jt]*")}
    vocabulary, source_ids, target_ids = read_vocabulary(MODELS / name, read_config(MODELS / name))
    odd = json.loads(expected["odd_ids"])
    for texts, ids in ((expected["source"].split("\n")[:-1], json.loads(expected["source_ids"])), (odd, odd.values())):
        check_encoding(vocabulary.sources, list(texts), list(ids), source_ids)
        assert vocabulary.encode_sources(list(texts)) == vocabulary.sources.encode(list(texts))
    greedy_ids = [row[1:-1] for row in json.loads(expected["greedy_ids"])]
    check_decoding(vocabulary, greedy_ids, expected["greedy"].split("\n")[:-1], target_ids)
    assert vocabulary.separate_source_size == (vocabulary.size if name == "separate" else 0)
