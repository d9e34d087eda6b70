"""Compares encoded and decoded texts with those of tensor2tensor 1.15.7.

The files come from tensor2tensor's own text encoders; ../shared/golden/t2t_models/README.md
describes them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_models import MODELS, NEED_MODELS
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import (
    ByteVocabulary,
    SubwordVocabulary,
    TokenVocabulary,
)
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.errors import UserError

pytestmark = NEED_MODELS


def rows_of(name: str) -> Any:
    return json.loads((MODELS / "encodings" / name).read_text("utf-8"))


@pytest.fixture(scope="module")
def subwords() -> SubwordVocabulary:
    vocabulary = load_vocabulary(MODELS / "data_dir" / "vocab.translate_tatoeba1k.1024.subwords")
    assert isinstance(vocabulary, SubwordVocabulary)
    return vocabulary


def test_texts_have_the_same_subwords(subwords: SubwordVocabulary) -> None:
    golden = rows_of("subword_encode.json")
    assert subwords.size == golden["vocab_size"]
    for row in golden["rows"]:
        assert subwords.encode([row["text"]]) == [[*row["ids"], EOS_ID]], row
        assert subwords.pieces(row["ids"]) == row["decode_list"]
        assert subwords.decode([row["ids"]]) == [row["decode"]], row


def test_tokens_have_the_same_subwords(subwords: SubwordVocabulary) -> None:
    for row in rows_of("subword_encode_without_tokenizing.json"):
        assert list(subwords.ids_of_token(row["token"])) == row["ids"]


def test_any_ids_have_the_same_text(subwords: SubwordVocabulary) -> None:
    rows = rows_of("subword_decode.json")
    without_reserved = [row for row in rows if not {PAD_ID, EOS_ID} & set(row["ids"])]
    assert len(without_reserved) > 200 and "\ud800" in [row["decode"] for row in without_reserved]
    for row in without_reserved:
        assert subwords.pieces(row["ids"]) == row["subtokens"]
        assert subwords.decode([row["ids"]]) == [row["decode"]], row


def test_words_have_the_same_ids(tmp_path: Path) -> None:
    golden = rows_of("token_encode.json")
    contents = (MODELS / "encodings" / golden["vocab_file"]).read_bytes()
    tokens = TokenVocabulary(contents)
    assert tokens.size == golden["vocab_size"]
    # tensor2tensor replaced unknown words by "You", so rename this word to one of ours.
    replacing = TokenVocabulary(contents.replace(b"\nYou\n", b"\nUNK\n"))
    for row in golden["rows"]:
        if "error" in row["plain"]:
            with pytest.raises(
                UserError, match="has no word " + row["plain"]["error"].removeprefix("KeyError: ")
            ):
                tokens.encode([row["text"]])
        else:
            assert tokens.encode([row["text"]]) == [[*row["plain"]["ids"], EOS_ID]]
            assert tokens.decode([row["plain"]["ids"]]) == [row["plain"]["decode"]]
        text = row["text"].replace("You ", "UNK ")
        assert replacing.encode([text]) == [[*row["replace_oov"]["ids"], EOS_ID]]


def test_texts_have_the_same_bytes() -> None:
    golden = rows_of("byte_encode.json")
    vocabulary = ByteVocabulary()
    assert vocabulary.size == golden["vocab_size"]
    for row in golden["rows"]:
        assert vocabulary.encode([row["text"]]) == [[*row["ids"], EOS_ID]]
    for row in golden["decode"]:
        assert vocabulary.decode([row["ids"]]) == [row["decode_strip_extraneous"]]
