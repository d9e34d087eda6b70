"""Tests which rows a model's embeddings get when its vocabulary changes."""

import numpy as np
import pytest

from t2t_repro.checkpoints.adaptation import adapt
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.tensor2tensor import TokenVocabulary
from t2t_repro.errors import UserError


def words(*pieces: str) -> TokenVocabulary:
    return TokenVocabulary("\n".join(["<pad>", "<EOS>", *pieces, ""]).encode())


def table(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)


def test_pieces_keep_their_rows_and_new_ones_get_the_mean_of_those_that_spell_them() -> None:
    old = words("under", "stand", "s", "un")
    new = words("stands", "understands", "stand", "?")
    weights = {"m/embedding/table": table(6), "m/dense/kernel": table(6)}
    adapted, counts = adapt(weights, old, new)
    pad, end, under, stand, s, _ = weights["m/embedding/table"]
    everything = weights["m/embedding/table"].mean(axis=0)
    expected = [pad, end, (stand + s) / 2, (under + stand + s) / 3, stand, everything]
    np.testing.assert_allclose(adapted["m/embedding/table"], expected, rtol=1e-6)
    assert adapted["m/dense/kernel"] is weights["m/dense/kernel"]
    assert counts == {"m/embedding/table": {"same": 3, "spelled": 2, "other": 1}}


def test_each_table_follows_the_vocabulary_of_its_side() -> None:
    old = words("ja", "nein").with_sources(words("yes", "no", "maybe"))
    new = words("nein", "ja").with_sources(words("maybe", "yes", "no"))
    weights = {
        "m/embedding/table": table(5),
        "m/target_embedding/table": table(4, seed=1),
        "m/softmax/table": table(4, seed=2),
        "m/softmax_bias": table(4)[:, 0],
    }
    adapted, _ = adapt(weights, old, new)
    for name, weight in weights.items():
        order = [0, 1, 4, 2, 3] if name == "m/embedding/table" else [0, 1, 3, 2]
        np.testing.assert_array_equal(adapted[name], weight[order])


def test_characters_without_a_piece_are_spelled_by_their_bytes() -> None:
    old = sentencepiece.train(["the cat sat on the mat"] * 9, 300)
    new = sentencepiece.train(["the bär sat on the mat"] * 9, 300)
    rows = table(old.size)
    adapted, counts = adapt({"m/embedding/table": rows}, old, new)
    [number] = [i for i, piece in enumerate(new.pieces(range(new.size))) if piece == "ä"]
    by_piece = dict(zip(old.pieces(range(old.size)), rows, strict=True))
    expected = (by_piece["<0xC3>"] + by_piece["<0xA4>"]) / 2
    np.testing.assert_allclose(adapted["m/embedding/table"][number], expected, rtol=1e-6)
    assert counts["m/embedding/table"].total() == new.size


def test_a_vocabulary_without_a_common_piece_is_refused() -> None:
    with pytest.raises(UserError):
        adapt({"m/embedding/table": table(4)}, words("yes", "no"), words("ja", "nein"))


def test_between_kinds_of_vocabularies_pieces_match_without_their_marks() -> None:
    old = sentencepiece.train(["the cat sat on the mat"] * 9, 300)
    weights = {"m/embedding/table": table(old.size)}
    adapted, _ = adapt(weights, old, words("the", "them"))
    row = dict(zip(old.pieces(range(old.size)), weights["m/embedding/table"], strict=True))
    expected = [row["\u2581the"], (row["\u2581the"] + row["\u2581m"]) / 2]
    np.testing.assert_allclose(adapted["m/embedding/table"][2:], expected, rtol=1e-6)
