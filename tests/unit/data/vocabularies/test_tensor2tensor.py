"""Tests tensor2tensor's vocabularies against a slow version of its rules, and with damaged files.

tests/golden/test_t2t_vocabularies.py compares them with tensor2tensor's own results.
"""

import itertools
import pickle
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from properties import few
from subwords import SUBTOKENS, file_of, small_subwords
from t2t_repro.data.vocabularies.bpe import BpeVocabulary
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.tensor2tensor import (
    BYTES_MODEL,
    ByteVocabulary,
    SubwordVocabulary,
    TokenVocabulary,
)
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from user_errors import user_error


@pytest.fixture(scope="module")
def subwords() -> SubwordVocabulary:
    return small_subwords()


@pytest.fixture(scope="module")
def tokens() -> TokenVocabulary:
    return TokenVocabulary("<pad>\n<EOS>\nthe\ndog\n<unk>\nÄpfel\n".encode())


TEXTS = st.text(st.sampled_from("the dog, 12_\\u;'\"ä中😀\r\n\u2028é") | st.characters())
"""Texts of any characters, even lone surrogates, and often those of the vocabulary."""


@few
@given(TEXTS)
@example(" ")
@example(" the, the ")
@example("  the  the  ")
def test_each_text_is_restored_and_has_the_longest_subtokens(
    subwords: SubwordVocabulary, text: str
) -> None:
    [ids] = subwords.encode([text])
    assert subwords.decode([ids]) == [text]
    pieces = subwords.pieces(ids[:-1])
    for piece, following in itertools.pairwise(pieces):
        longer = (piece + following[:size] for size in range(1, len(following) + 1))
        assert piece.endswith("_") or not any(joined in subwords.id_of for joined in longer)


def test_ids_that_no_text_has_are_decoded_as_tensor2tensor_does(
    subwords: SubwordVocabulary,
) -> None:
    def decoded(subtokens: list[str]) -> str:
        return subwords.decode([[SUBTOKENS.index(subtoken) for subtoken in subtokens]])[0]

    assert decoded(["\\", *"1114112", ";"]) == decoded(["\\", *"9" * 5000, ";"]) == "\u3013"
    assert decoded(["\\", *"55296", ";"]) == "\ud800"
    assert decoded(["th", "_", "_", "e_", "._", "12"]) == "th e.12"
    assert decoded(["\\", ";", "_"]) == "\\;"
    rows = [[2, EOS_ID, 2], [2, 0, 2], [2, 10_000], []]
    assert subwords.decode(rows) == ["the", "the", "the", ""]


def test_quotation_marks_may_be_double_or_missing(subwords: SubwordVocabulary) -> None:
    text = "the ä_12.9"
    # A byte order mark.
    assert SubwordVocabulary(b"\xef\xbb\xbf" + subwords.model).alphabet == subwords.alphabet
    for quote in ('"', ""):
        other = SubwordVocabulary(
            file_of([subtoken for subtoken in SUBTOKENS if subtoken.strip("'\" \r\u2028")], quote)
        )
        assert other.pieces(other.encode([text])[0]) == subwords.pieces(subwords.encode([text])[0])


def damaged(line: int, new_line: str) -> bytes:
    lines = file_of(SUBTOKENS).split(b"\n")
    lines[line - 1] = new_line.encode("latin-1")
    return b"\n".join(lines)


@pytest.mark.parametrize(
    "kind, model, message",
    [
        (SubwordVocabulary, damaged(4, "'\xff'"), "old.x: not UTF-8 (byte "),
        (SubwordVocabulary, damaged(1, "'the_'"), "old.x:1: must be <pad>, not 'the_'"),
        (SubwordVocabulary, damaged(2, "'</s>'"), "old.x:2: must be <EOS>"),
        (SubwordVocabulary, file_of(SUBTOKENS[:20]), "old.x: has no subtoken '0', which all"),
        (SubwordVocabulary, b"", "old.x: has only 1 line;"),
        (TokenVocabulary, b"\n" * 1_000_001, "old.x: has 1,000,001 lines, more than 1,000,000"),
        (ByteVocabulary, b"bytes", "old.x: must be the line 'UTF-8 bytes, "),
    ],
)
def test_a_damaged_file_is_named_with_its_line(
    kind: type[Vocabulary], model: bytes, message: str
) -> None:
    assert user_error(kind, model, "old.x").startswith(message)


def test_the_longest_subtoken_is_found() -> None:
    subwords = SubwordVocabulary(file_of([*SUBTOKENS, "thedogatethecat_"]))
    assert subwords.encode(["thedogatethecat"]) == [[len(SUBTOKENS), EOS_ID]]


def test_the_last_of_two_equal_lines_counts() -> None:
    repeated = SubwordVocabulary(damaged(5, "'the_'"))
    assert repeated.encode(["the"]) == [[4, EOS_ID]]
    assert repeated.decode([[2], [4]]) == ["the", "the"]
    words = TokenVocabulary(b"<pad>\n<EOS>\nthe\n the\n")
    assert words.encode(["the"]) == [[3, EOS_ID]] and words.decode([[2, 3]]) == ["the the"]


def test_words_are_split_at_white_space_and_unknown_ones_replaced(tokens: TokenVocabulary) -> None:
    ids = tokens.encode([" the\u3000dog\tsat ", "", "<pad> Äpfel"])
    assert ids == [[2, 3, 4, 1], [1], [4, 5, 1]]
    assert tokens.decode([[2, 3, 4, 1, 2], [99, 5]]) == ["the dog <unk>", "Äpfel"]


@few
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_are_those_of_utf8(text: str) -> None:
    vocabulary = ByteVocabulary()
    [ids] = vocabulary.encode([text])
    assert ids == [*(byte + 2 for byte in text.encode()), EOS_ID]
    assert vocabulary.decode([ids]) == [text]


def test_bytes_have_names() -> None:
    vocabulary = ByteVocabulary()
    assert vocabulary.decode([[0xC3 + 2, 0x41 + 2], [0xF0 + 2, 0x9F + 2]]) == ["\ufffdA", "\ufffd"]
    names = ["<pad>", "<EOS>", "A", "<0x20>", "<0xFF>"]
    assert vocabulary.pieces([0, 1, 67, 34, 257]) == names
    assert len({*vocabulary.pieces(range(258))}) == 258
    assert "id 258 is not in the vocabulary of 258" in user_error(vocabulary.pieces, [258])
    assert "lone surrogate" in user_error(vocabulary.encode, ["a\ud800"])


def test_the_kind_follows_from_the_name_or_is_given(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    def load(name: str, model: bytes, kind: str = "") -> type[Vocabulary]:
        (tmp_path / name).write_bytes(model)
        return type(load_vocabulary(tmp_path / name, kind))

    words = file_of(SUBTOKENS, "")
    assert load("vocab.x.32768.subwords.zh", words) is SubwordVocabulary
    assert load("vocab.ende.8192", file_of(SUBTOKENS)) is SubwordVocabulary
    assert load("vocab.x.tokens", b"a\nb\nc\n") is TokenVocabulary
    assert load("vocab.txt", b"a\nb\nc\n", "tokens") is TokenVocabulary
    assert load("x.bytes", BYTES_MODEL) is ByteVocabulary
    assert (
        load("codes.bpe.32000", b"a b\n")
        is load("codes.de", b"#version: 0.2\na b\n")
        is BpeVocabulary
    )
    assert load("spm", tiny_vocabulary.model) is SentencePieceVocabulary
    with pytest.raises(UserError, match="unknown vocabulary kind 'token'; did you mean 'tokens'"):
        load("v", b"", "token")
    with pytest.raises(
        UserError,
        match=r"words: not a SentencePiece model; .* name ends with \.subwords or \.tokens",
    ):
        load("words", words)


def test_a_vocabulary_is_saved_and_sent_to_other_processes(
    tmp_path: Path,
    subwords: SubwordVocabulary,
    tokens: TokenVocabulary,
    tiny_vocabulary: Vocabulary,
) -> None:
    for vocabulary in (subwords, tokens, ByteVocabulary(), tiny_vocabulary):
        path = tmp_path / f"vocab.x{vocabulary.suffix}"
        vocabulary.save(path)
        for copy in (load_vocabulary(path), pickle.loads(pickle.dumps(vocabulary))):
            assert type(copy) is type(vocabulary)
            assert copy.encode(["the dog"]) == vocabulary.encode(["the dog"])
            assert copy.fingerprint == vocabulary.fingerprint
    assert TokenVocabulary(subwords.model).fingerprint != subwords.fingerprint
