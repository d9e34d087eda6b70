"""Tests of learned vocabularies, which are lossless, and of models that other programs made with
SentencePiece.
"""

import itertools
import pickle

import pytest
import sentencepiece

from odd_lines import odd_lines
from sentencepieces import TEXTS, trained
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary, sample, train
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    """Returns a vocabulary that was learned from a few English words."""
    return train(TEXTS, 400)


ODD = (
    "",
    "   ",
    "  two  spaces  ",
    "a\tb\u2028\u2029\u000b\u000c\u0085\r\nc\x00d",
    "⁇ <unk> </s> <0x41>",
    "\u00a0\u3000\u200b\ufeff 👩‍👩‍👧 漢字 עברית",
    "e\u0301 é \ufb01 ① Ⅷ \ufffd \U0010ffff",
)


def test_decoding_restores_every_text_and_stops_at_the_first_end_or_padding(
    vocab: Vocabulary,
) -> None:
    for text, ids in zip(ODD, vocab.encode(ODD), strict=True):
        assert (
            ids[-1] == EOS_ID and not {PAD_ID, EOS_ID, 2} & set(ids[:-1]) and max(ids) < vocab.size
        )
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
    ids = [vocab.processor.PieceToId(symbol.replace(" ", "\u2581")) for symbol in symbols]
    assert len(set(ids)) == 4 and min(ids) > 2  # Ids 0 to 2 are padding, end and unknown.
    for symbol, i in zip(symbols, ids, strict=True):
        for text in (symbol, f"The{symbol}dog", f" {symbol}{symbol} 😀{symbol}"):
            [encoded] = vocab.encode([text])
            assert encoded.count(i) == text.count(symbol)
            assert vocab.decode([encoded]) == [text]
    assert not vocab.is_byte[ids].any()
    assert vocab.is_byte.sum() == 256 and vocab.is_byte[vocab.encode(["😀"])[0]].sum() == 4


MODELS = {
    "unigram": {},
    "bpe": {"model_type": "bpe"},
    "bytes": {"byte_fallback": True, "vocab_size": 400},
    "word": {"model_type": "word"},
    "char": {"model_type": "char"},
    "suffix": {"treat_whitespace_as_suffix": True, "add_dummy_prefix": False},
    "case": {"normalization_rule_name": "nmt_nfkc_cf", "remove_extra_whitespaces": False},
    "padding last": {"pad_id": 3, "unk_surface": "?", "unk_piece": "[UNK]"},
    "padding only": {"eos_id": -1, "bos_id": -1, "pad_id": 1, "model_type": "bpe"},
    "symbols": {
        "user_defined_symbols": ["<pad>", ">>de<<", "\ufb01x"],
        "control_symbols": ["<2de>"],
    },
    "end as text": {"user_defined_symbols": ["</s>"], "eos_id": -1},
}
"""Options of spm_train."""


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_any_model_encodes_and_decodes_as_sentencepiece_does(options: dict[str, object]) -> None:
    model = trained(**options)
    original = sentencepiece.SentencePieceProcessor(model_proto=model)
    reserved = [original.pad_id(), original.eos_id()]
    model_ids = reserved + [
        number for number in range(original.GetPieceSize()) if number not in reserved
    ]
    texts = [*TEXTS[::40], *odd_lines(200)]
    vocabulary = pickle.loads(pickle.dumps(SentencePieceVocabulary(model)))
    ids = vocabulary.encode(texts)
    encoded = original.Encode(texts)
    assert [[model_ids[number] for number in row[:-1]] for row in ids] == encoded
    assert all(row[-1] == EOS_ID and not {PAD_ID, EOS_ID} & set(row[:-1]) for row in ids)
    assert vocabulary.decode([[*row, 9] for row in ids]) == original.Decode(encoded)
    pieces = vocabulary.pieces(range(vocabulary.size))
    assert pieces[2:] == [original.IdToPiece(number) for number in model_ids[2:]] and len(
        set(pieces)
    ) == len(pieces)
    assert vocabulary.is_byte.sum() == (256 if "byte_fallback" in options else 0)
    assert vocabulary.missing_symbols(["<3de>", pieces[-1]]) == ["<3de>"]
    assert pieces[vocabulary.unknown_id] == options.get("unk_piece", "<unk>")


@pytest.mark.parametrize(
    "options", [{}, {"model_type": "bpe", "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": 2}]
)
def test_a_truncated_model_is_named(options: dict[str, object]) -> None:
    """SentencePiece raises no error if a file is truncated between two fields."""
    for model in (trained(**options), train(TEXTS, 400).model):
        # The table of normalization rules, which is one field, begins before byte 8,000.
        for end in (
            *range(0, min(len(model), 8000)),
            *range(8000, len(model), 997),
            len(model) - 1,
        ):
            with pytest.raises(UserError, match=r"^cut\.model: "):
                SentencePieceVocabulary(model[:end], "cut.model")


def test_damaged_and_too_large_models_are_refused(
    vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = vocab.model.index("▁The".encode())
    unknown = vocab.model.index(b"<unk>")
    for damaged in (
        *(vocab.model + field + b"\x03\x12\x01x" for field in (b"\x1a", b"\x2a")),
        *(vocab.model + field for field in (b"\x10\x01", b"\x12\x02\x1a\x00")),  # of other types
        vocab.model[:piece] + b"\xff" + vocab.model[piece + 1 :],
        vocab.model[:unknown] + vocab.model[unknown:].replace(b"\x18\x02", b"\x18\x01", 1),
        b"#version: 0.2\nt h\n",
    ):
        with pytest.raises(UserError, match=r"^damaged\.model: "):
            SentencePieceVocabulary(damaged, "damaged.model")
    monkeypatch.setattr("t2t_repro.data.vocabularies.sentencepiece.MAX_PIECES", vocab.size - 1)
    with pytest.raises(UserError):
        SentencePieceVocabulary(vocab.model)


def test_a_sample_is_spread_evenly_over_sources_and_targets_and_has_at_most_the_limit() -> None:
    for count in range(50, 3000, 97):
        sampled = sample((f"ö{number:08}" for number in range(count)), 500)
        assert min(count, 50) // 3 <= len(sampled) <= 50
        numbers = [int(text[1:]) for text in sampled]
        [gap] = {after - before for before, after in itertools.pairwise(numbers)}
        assert gap % 2 and numbers[0] < gap and numbers[-1] >= count - gap
