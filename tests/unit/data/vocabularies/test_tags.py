"""Tests the tags of target languages, in Python and in TensorFlow, and how a vocabulary encodes
tagged sources.
"""

import pytest
import tensorflow as tf

from subwords import small_subwords
from t2t_repro.data.vocabularies.sentencepiece import train
from t2t_repro.data.vocabularies.tags import graph_split_tag, split_tag, tag
from t2t_repro.data.vocabularies.tensor2tensor import TokenVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary

WORDS = b"<pad>\n<EOS>\n<unk>\nthe\ndog\n>>de<<\n>>fr<<\n>>\n"
TEXTS = {
    ">>de<< the dog": (">>de<<", "the dog"),
    " \u3000>>zh-Hant_TW.x<<the\ndog \n": (">>zh-Hant_TW.x<<", "the\ndog \n"),
    ">>de<< >>fr<< a": (">>de<<", ">>fr<< a"),
    ">>de<<": (">>de<<", ""),
    **{
        text: ("", text)
        for text in ("", " ", "the >>de<< dog", ">>d e<< a", ">><< a", ">>é<< a", "> >de<<", " a\n")
    },
}
"""Texts with their tags, and the texts after the tags."""


def test_a_tag_is_split_off_in_python_and_in_the_graph() -> None:
    assert {text: split_tag(text) for text in TEXTS} == TEXTS
    rows = zip(
        *(values.numpy().tolist() for values in graph_split_tag(tf.constant(list(TEXTS)))),
        strict=True,
    )
    assert [tuple(value.decode() for value in row) for row in rows] == list(TEXTS.values())


@pytest.mark.parametrize("kind", ["sentencepiece", "tokens", "separate"])
def test_a_source_has_the_id_of_its_tag_and_the_ids_of_the_other_text(kind: str) -> None:
    targets: Vocabulary = TokenVocabulary(WORDS)
    if kind != "tokens":
        pieces = train(["the dog >> <<", "a cat"], 300, [tag("de"), tag("fr")])
        targets = targets.with_sources(pieces) if kind == "separate" else pieces
    sources = targets.sources
    assert sorted(targets.tags) == sorted(sources.tags) == [">>de<<", ">>fr<<"]
    number = targets.tags[">>fr<<"]
    assert sources.pieces([number]) == [">>fr<<"]
    texts = [
        " >>fr<<  the dog ",
        ">>fr<<the dog",
        "the dog",
        ">>fr<<",
        ">>it<< the dog",
        ">>fr<< >>it<< dog",
    ]
    [dog, nothing, foreign, nested] = sources.encode(
        ["the dog", "", ">>it<< the dog", ">>it<< dog"]
    )
    expected = [[number, *dog], [number, *dog], dog, [number, *nothing], foreign, [number, *nested]]
    assert targets.encode_sources(texts) == expected


def test_a_vocabulary_without_tags_takes_a_tag_for_text() -> None:
    vocabulary = small_subwords()
    assert not vocabulary.tags and vocabulary.encode_sources([" >>de<< do"]) == vocabulary.encode(
        [">>de<< do"]
    )
