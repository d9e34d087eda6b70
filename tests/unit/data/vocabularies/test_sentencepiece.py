"""Tests that the vocabulary is lossless and reproducible, and has the ids that training relies on."""

from __future__ import annotations

import io
import itertools

import pytest
import sentencepiece

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
    model = io.BytesIO()
    defaults = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=400, hard_vocab_limit=False, minloglevel=2,
        **({"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1} | defaults | options),
    )  # fmt: skip
    with pytest.raises(UserError, match=rf"t5\.model: {message}"):
        SentencePieceVocabulary(model.getvalue(), "t5.model")


def test_a_sample_is_spread_evenly_over_sources_and_targets_and_has_at_most_the_limit() -> None:
    for count in range(50, 3000, 97):
        sampled = sample((f"ö{number:08}" for number in range(count)), 500)
        assert min(count, 50) // 3 <= len(sampled) <= 50
        numbers = [int(text[1:]) for text in sampled]
        [gap] = {after - before for before, after in itertools.pairwise(numbers)}
        assert gap % 2 and numbers[0] < gap and numbers[-1] >= count - gap


@pytest.mark.parametrize("field", [b"\x1a", b"\x2a"])
def test_a_table_of_rules_is_refused_before_sentencepiece_reads_it(vocab: Vocabulary, field: bytes) -> None:
    with pytest.raises(UserError, match="changes text"):
        SentencePieceVocabulary(vocab.model + field + b"\x03\x12\x01x")
