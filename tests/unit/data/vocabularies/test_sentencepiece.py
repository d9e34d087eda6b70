"""Tests that the vocabulary is lossless and reproducible, and has the ids that training relies on."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
import sentencepiece
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary, sample, train
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError

NAMES = ("dog", "cat", "fox", "street", "hill", "red", "green", "blue", "over", "under")
TEXTS = [f"The {a} {b} runs, {c}." for a in NAMES for b in NAMES for c in NAMES]


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    """Returns a vocabulary that was learned from a few English words."""
    return train(TEXTS, 400)


ODD = ("", "   ", "  two  spaces  ", "a\tb\u2028\u2029\u000b\u000c\u0085\r\nc\x00d", "⁇ <unk> </s> <0x41>",
       "\u00a0\u3000\u200b\ufeff 👩‍👩‍👧 漢字 עברית", "e\u0301 é \ufb01 ① Ⅷ \ufffd \U0010ffff")  # fmt: skip


def test_decoding_restores_every_text_and_stops_at_the_first_end_or_padding(vocab: Vocabulary) -> None:
    for text, ids in zip(ODD, vocab.encode(ODD), strict=True):
        assert ids[-1] == EOS_ID and not {PAD_ID, EOS_ID, 2} & set(ids[:-1]) and max(ids) < vocab.size
        assert vocab.decode([ids, [*ids, 9], [*ids[:-1], PAD_ID, 9]]) == [text] * 3
    assert vocab.decode([[]]) == [""]


@pytest.mark.parametrize("size", [1, 260])
def test_the_error_for_a_small_size_names_the_smallest_possible_one(size: int) -> None:
    symbols = ("<1>", "<2>")
    smallest = 256 + 3 + 2 + len(set("".join(TEXTS)))
    assert train(TEXTS, smallest, symbols).size == smallest
    with pytest.raises(UserError, match=f"--vocab_size={size}: .*{smallest}"):
        train(TEXTS, size, symbols)


def test_symbols_are_one_piece_everywhere() -> None:
    symbols = ("(NP", " )", "<2de>", "漢字")
    vocab = train(TEXTS, 350, symbols)
    assert vocab.missing_symbols(["(VP", *symbols, "\u2581)", "<3de>"]) == ["(VP", "<3de>"]
    assert vocab.size == 350
    ids = [vocab._processor.PieceToId(symbol.replace(" ", "\u2581")) for symbol in symbols]
    assert len(set(ids)) == 4 and min(ids) > 2  # Ids 0 to 2 are padding, end and unknown.
    for symbol, i in zip(symbols, ids, strict=True):
        for text in (symbol, f"The{symbol}dog", f" {symbol}{symbol} 😀{symbol}"):
            [encoded] = vocab.encode([text])
            assert encoded.count(i) == text.count(symbol)
            assert vocab.decode([encoded]) == [text]
    assert not vocab.is_byte[ids].any()
    assert vocab.is_byte.sum() == 256 and vocab.is_byte[vocab.encode(["😀"])[0]].sum() == 4


def test_a_model_that_is_truncated_or_too_large_is_named(vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """SentencePiece raises no error if a file is truncated between two fields, so Vocabulary must detect the damage."""
    for size in range(0, len(vocab.model), 3):
        with pytest.raises(UserError, match=r"^cut\.model: "):
            SentencePieceVocabulary(vocab.model[:size], "cut.model")
    monkeypatch.setattr("t2t_repro.data.vocabularies.sentencepiece.MAX_PIECES", vocab.size - 1)
    with pytest.raises(UserError, match="not a SentencePiece model"):
        SentencePieceVocabulary(vocab.model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"byte_fallback": False}, "changes text that it encodes and decodes"),
        ({"remove_extra_whitespaces": True}, "changes text that it encodes and decodes"),
        ({"pad_id": 3}, "padding must be id 0 and the end id 1"),
    ],
)
def test_a_model_that_loses_text_or_has_other_ids_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=rf"t5\.model: {message}"):
        SentencePieceVocabulary(trained(options), "t5.model")


def trained(options: dict[str, object]) -> bytes:
    """Returns a model that SentencePiece's own trainer made."""
    model = io.BytesIO()
    defaults = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=400, hard_vocab_limit=False, minloglevel=2,
        **({"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1} | defaults | options),
    )  # fmt: skip
    return model.getvalue()


def test_a_sample_is_spread_evenly_over_sources_and_targets_and_has_at_most_the_limit() -> None:
    for count in range(50, 3000, 97):
        sampled = sample((f"ö{number:08}" for number in range(count)), 500)
        assert min(count, 50) // 3 <= len(sampled) <= 50
        numbers = [int(text[1:]) for text in sampled]
        [gap] = {after - before for before, after in itertools.pairwise(numbers)}
        assert gap % 2 and numbers[0] < gap and numbers[-1] >= count - gap


def test_damaged_and_hidden_rules_and_pieces_that_are_not_utf8_are_refused(vocab: Vocabulary, tmp_path: Path) -> None:
    """A tag of a protobuf field may be written in more bytes than necessary, which only some readers understand."""
    (tmp_path / "tsv").write_text("64 6F 67\t63 61 74\n")  # "dog" becomes "cat"
    fields = UnknownFieldSet(Empty.FromString(trained({"normalization_rule_tsv": str(tmp_path / "tsv")})))
    [rules] = [field.data for field in fields if field.field_number == 3]
    length = bytes([len(rules) & 127 | 128, len(rules) >> 7 & 127 | 128, len(rules) >> 14])
    for tag in (b"\x1a", b"\x9a\x00"):
        with pytest.raises(UserError, match="changes text"):
            SentencePieceVocabulary(vocab.model + tag + length + rules)
    piece = vocab.model.index("▁The".encode())
    for damaged in (
        *(vocab.model + field + b"\x03\x12\x01x" for field in (b"\x1a", b"\x2a")),
        vocab.model[:piece] + b"\xff" + vocab.model[piece + 1 :],
    ):
        with pytest.raises(UserError, match="not a SentencePiece model"):
            SentencePieceVocabulary(damaged)
