"""Compares vocabularies from elsewhere, in Python and as TensorFlow operations, with results of
their own libraries.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from t2t_repro.data.vocabularies.graph import graph_vocabulary
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary

DATA = Path(__file__).parent / "data" / "vocabularies"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    results: dict[str, Any] = json.loads((DATA / "results.json").read_text("utf-8"))
    return results


def check_graph(
    vocabulary: Vocabulary, texts: list[str], ids: list[list[int]], decoded: list[str]
) -> None:
    """Asserts that the vocabulary as TensorFlow operations has these ids and texts."""
    graph = graph_vocabulary(vocabulary)
    assert [[*row, 1] for row in graph.tokenize(texts).to_list()] == ids
    rows = tf.ragged.constant([row[:-1] for row in ids], tf.int32, row_splits_dtype=tf.int64)
    assert [text.decode() for text in graph.detokenize(rows).numpy()] == decoded


@pytest.mark.parametrize("name", ["codes.bpe", "codes_0.1.bpe"])
def test_words_are_cut_as_subword_nmt_does(name: str, golden: dict[str, Any]) -> None:
    vocabulary = load_vocabulary(DATA / name)
    pieces = set(vocabulary.pieces(range(3, vocabulary.size)))
    ids = vocabulary.encode(golden["texts"])
    expected = [
        [piece if piece in pieces else "<unk>" for piece in line.split(" ") if piece]
        for line in golden[name]
    ]
    assert [" ".join(vocabulary.pieces(row[:-1])) for row in ids] == list(map(" ".join, expected))
    assert sum("<unk>" not in row for row in expected) > 100
    decoded = [re.sub("(@@ )|(@@ ?$)", "", " ".join(row)) for row in expected]
    assert vocabulary.decode(ids) == decoded
    check_graph(vocabulary, golden["texts"], ids, decoded)


@pytest.mark.parametrize("name", ["metaspace.json", "llama.json", "gpt2.json"])
def test_texts_have_the_tokens_of_the_library_tokenizers(name: str, golden: dict[str, Any]) -> None:
    pytest.importorskip("tokenizers", reason="the extra tokenizers is not installed")
    vocabulary = load_vocabulary(DATA / name)
    tokens, decoded = zip(*golden[name], strict=True)
    ids = vocabulary.encode(golden["texts"])
    assert [vocabulary.pieces(row[:-1]) for row in ids] == list(tokens)
    assert vocabulary.decode(ids) == list(decoded)
    check_graph(vocabulary, golden["texts"], ids, list(decoded))
