"""Tests the pieces of subword-nmt's vocabularies and damaged files. test_vocabularies.py of golden
compares texts.
"""

import pytest

from t2t_repro.data.vocabularies.bpe import BpeVocabulary
from user_errors import user_error


@pytest.mark.parametrize(
    ("codes", "pieces"),
    {
        "#version: 0.2\nl o\nlo w</w>\nl o\n": "l@@ l o@@ o w@@ w lo@@ low",
        "#version: 0.2.0\r\nl o\r\n": "l@@ l o@@ o lo@@",
        "\ufeff#version: 0.1\nl o\nlo </w>\n": "l@@ l o@@ o lo@@ lo",
        "l o\n\n\n": "l@@ l o@@ o lo@@ lo",
    }.items(),
)
def test_the_pieces_are_the_characters_and_what_the_codes_make(codes: str, pieces: str) -> None:
    vocabulary = BpeVocabulary(codes.encode())
    assert vocabulary.pieces(range(vocabulary.size)) == ["<pad>", "</s>", "<unk>", *pieces.split()]


def test_each_kind_of_damage_is_one_line() -> None:
    damages = {
        b"#version: 0.3\nl o\n": "codes:1",
        b"#version: x\nl o\n": "codes:1",
        b"#version: 0.2\n": "codes:2",
        b"#version: 0.2\nl o\n\nlo w\n": "codes:3",
        b"l o w\n": "codes:1",
        b"": "codes:1",
        b"l \xff\n": "byte 2",
        b"l o\n" * 500_001: "500,001",
    }
    for damage, place in damages.items():
        assert place in user_error(BpeVocabulary, damage, "codes")
