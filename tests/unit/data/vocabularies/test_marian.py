"""Tests of the vocabularies of MarianMT models; tests/golden/test_marian.py compares them with
`MarianTokenizer`.
"""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from sentencepieces import TEXTS, trained
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.marian import MarianVocabulary, marian_file
from user_errors import user_error

SOURCE = trained(vocab_size=60)
TARGET = trained(model_type="bpe", vocab_size=50)
PIECES = ["<pad>", "</s>", ">>de<<", "<unk>", *"▁Thedog.<>/sé", "▁dog", "</s>x", "中文"]


@pytest.fixture
def vocabulary() -> MarianVocabulary:
    return MarianVocabulary(marian_file(PIECES, TARGET, SOURCE))


def test_a_language_is_one_id_at_the_beginning_of_a_source(vocabulary: MarianVocabulary) -> None:
    [plain] = vocabulary.encode_sources(["The dog"])
    assert vocabulary.encode_sources([">>de<< The dog", " >>de<<The dog"]) == [[2, *plain]] * 2
    assert vocabulary.decode_sources([[2, *plain]])[0].startswith(">>de<< ")


def test_names_of_special_pieces_are_ordinary_text() -> None:
    # The model knows none of the characters, so "</s>" and "<pad>" are cut as one unknown piece.
    model = trained(
        sentence_iterator=iter(["中 文 字"] * 9), vocab_size=8, normalization_rule_name="identity"
    )
    vocabulary = MarianVocabulary(marian_file([*PIECES, "@"], model))
    for text in ("</s>", "中 <pad>", "@"):
        [[*ids, end]] = vocabulary.encode([text])
        assert end == 1 and not {0, 1} & {*ids}
    assert vocabulary.pieces(vocabulary.encode(["@"])[0])[1] == "@"


def test_a_file_holds_the_whole_vocabulary(vocabulary: MarianVocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "vocab.x.marian")
    separate = vocabulary.with_sources(MarianVocabulary(marian_file(PIECES[:9], SOURCE)))
    for copied in (
        load_vocabulary(tmp_path / "vocab.x.marian"),
        pickle.loads(pickle.dumps(vocabulary)),
    ):
        assert copied.fingerprint == vocabulary.fingerprint
        assert copied.encode_sources(TEXTS[:5]) == vocabulary.encode_sources(TEXTS[:5])
    assert (separate.separate_source_size, vocabulary.separate_source_size) == (9, 0)
    copied = pickle.loads(pickle.dumps(separate))
    assert copied.encode_sources(TEXTS[:5]) == separate.encode_sources(TEXTS[:5])
    others = [(PIECES, TARGET), (PIECES, SOURCE, TARGET), ([*PIECES, "x"], TARGET, SOURCE)]
    fingerprints = {MarianVocabulary(marian_file(*other)).fingerprint for other in others}
    assert len({vocabulary.fingerprint, separate.fingerprint, *fingerprints}) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("model"),
        lambda fields: fields.update(model="a" + fields["model"]),
        lambda fields: fields.update(source_model=fields["model"][:400]),
        lambda fields: fields.update(pieces=PIECES[:3]),
        lambda fields: fields.update(pieces=["<unk>", *PIECES]),
        lambda fields: fields.update(pieces=[*PIECES, "é"]),
        lambda fields: fields.update(pieces="<unk>" * 9),
    ],
)
def test_a_damaged_file_is_refused(change: Callable[[dict[str, object]], object]) -> None:
    fields = json.loads(marian_file(PIECES, TARGET, SOURCE))
    change(fields)
    assert user_error(MarianVocabulary, json.dumps(fields).encode(), "x.marian").startswith(
        "x.marian: "
    )
