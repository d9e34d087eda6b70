"""Tests vocabularies in `tokenizer.json` files: ids, special tokens, and which files are refused.

tests/golden/test_vocabularies.py compares texts with results of the library tokenizers.
"""

import pickle
from pathlib import Path
from typing import Any

import pytest

from t2t_repro.data.vocabularies.graph import graph_vocabulary
from t2t_repro.data.vocabularies.huggingface import TokenizerVocabulary
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from tokenizers_json import LLAMA, METASPACE, SPECIAL, VOCAB, added_token, tokenizer_json
from user_errors import user_error

pytest.importorskip("tokenizers", reason="the extra tokenizers is not installed")
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
    ],
    "pair": [],
    "special_tokens": {},
}
SEP = {"type": "RobertaProcessing", "sep": ["<s>", 1], "cls": ["</s>", 2], "trim_offsets": True}
PADDING = {"pad_token": "<unk>", "pad_id": 0}
NO_END = [added_token("<unk>"), added_token("<s>"), added_token("[PAD]")]


@pytest.mark.parametrize(
    ("pieces", "changes"),
    [
        (["<pad>", "</s>", "<unk>", "<s>"], {}),
        (["<pad>", "<s>", "<unk>", "</s>"], {"post_processor": TEMPLATE}),
        (
            ["<pad>", "<s>", "<unk>", "</s>"],
            {"post_processor": {"type": "Sequence", "processors": [{}, SEP]}},
        ),
        (["<unk>", "</s>", "<s>", "'"], {"padding": PADDING}),
        (["[PAD]", "</s>", "<unk>", "<s>"], {"added_tokens": NO_END}),
    ],
)
def test_padding_and_the_end_are_the_first_ids(pieces: list[str], changes: dict[str, Any]) -> None:
    vocabulary = TokenizerVocabulary(tokenizer_json(**changes))
    assert vocabulary.pieces(range(4)) == pieces
    assert vocabulary.size == len({*pieces[:2], *VOCAB})


def test_the_name_of_a_special_token_is_ordinary_text() -> None:
    names = (*SPECIAL, "-")
    vocabulary = TokenizerVocabulary(
        tokenizer_json(**LLAMA, added_tokens=list(map(added_token, names)))
    )
    texts = ["</s>", "a<pad> b", "<unk>", "<0x41>", "dog-"]
    ids = vocabulary.encode(texts)
    assert vocabulary.decode(ids) == texts
    assert not {"<pad>", *names} & {piece for row in ids for piece in vocabulary.pieces(row[:-1])}
    assert graph_vocabulary(vocabulary).tokenize(texts).to_list() == [row[:-1] for row in ids]
    assert vocabulary.decode([[2, 3, *ids[0]]]) == ["</s>"]  # special tokens have no text


def test_a_pair_that_a_merge_makes_may_come_before_other_places_of_the_merge() -> None:
    vocab = {**VOCAB, "he": 501, "the": 502, "thet": 503}
    vocabulary = TokenizerVocabulary(
        tokenizer_json({"vocab": vocab, "merges": ["the t", "h e", "t he"]})
    )
    [ids] = vocabulary.encode(["thethe"])
    assert vocabulary.pieces(ids[:-1]) == ["\u2581", "thet", "he"]
    assert graph_vocabulary(vocabulary).tokenize(["thethe"]).to_list() == [ids[:-1]]


def test_a_tokenizer_that_cannot_be_served_is_refused_with_its_reason(tmp_path: Path) -> None:
    for reason, changes in {
        "WordPiece": {"model": {"type": "WordPiece"}},
        "Unigram": {"model": {"type": "Unigram", "vocab": [["a", -1.0]]}},
        "dropout": {"model": {"dropout": 0.1}},
        "end_of_word_suffix": {"model": {"end_of_word_suffix": "</w>"}},
        "not special": {"added_tokens": [added_token("<0x02>", special=False)]},
        "Lowercase": {"normalizer": {"type": "Lowercase"}},
        "Whitespace": {"pre_tokenizer": {"type": "Whitespace"}},
        "decoder none": {"decoder": None},
        "U+2581": {"pre_tokenizer": {**METASPACE, "replacement": "_"}},
        "byte": {"model": {"byte_fallback": False}},
        "piece of a byte": {
            "pre_tokenizer": {"type": "ByteLevel"},
            "decoder": {"type": "ByteLevel"},
        },
        "GPT-2's": {
            "pre_tokenizer": {"type": "ByteLevel", "use_regex": False},
            "decoder": {"type": "ByteLevel"},
        },
    }.items():
        message = user_error(TokenizerVocabulary, tokenizer_json(**changes), "x.json")
        assert message.startswith("x.json: ") and reason in message and "cannot" in message
    repeated_id = {"added_tokens": [added_token("[PAD]", 3)]}
    for changes in (
        {"model": {"vocab": 1}},
        {"model": {"merges": ["t x"]}},
        repeated_id,
        {"padding": [1]},
    ):
        assert "not a sound" in user_error(TokenizerVocabulary, tokenizer_json(**changes), "x.json")


def test_the_kind_follows_from_the_name_or_the_contents(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "vocab.x.429.tokenizer", "x"):
        (tmp_path / name).write_bytes(tokenizer_json())
        vocabulary = load_vocabulary(tmp_path / name)
        assert isinstance(vocabulary, TokenizerVocabulary)
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert (
        copy.encode(["the dog"]) == vocabulary.encode(["the dog"])
        and copy.fingerprint == vocabulary.fingerprint
    )
