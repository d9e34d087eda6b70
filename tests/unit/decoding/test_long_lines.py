"""Long texts cut where a reader would, and put together again."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.long_lines import joined, pieces

Count = Callable[[str], int]


def characters(text: str) -> int:
    """As many tokens as characters, white space around them left out, and one for the end."""
    return len(text.strip()) + 1


@pytest.fixture(params=["characters", "subwords"])
def count(request: pytest.FixtureRequest, tiny_vocabulary: Vocabulary) -> Count:
    if request.param == "characters":
        return characters
    return lambda text: len(tiny_vocabulary.encode([text.strip()], num_threads=1)[0])


def test_pieces_are_the_text_and_none_is_too_long_but_a_single_character(count: Count) -> None:
    generator = random.Random(1)
    signs = [
        "the",
        "dog",
        "a",
        "Ω",
        "漢字",
        "。",
        ".",
        "!",
        "?",
        "...",
        '"',
        "”",
        ")",
        " ",
        " ",
        " ",
        "  ",
        "\t",
        "\u3000",
    ]
    most = 0
    for _ in range(300):
        text = "".join(generator.choices(signs, k=generator.randrange(1, 40)))
        longest = generator.choice([2, 3, 5, 9, 20])
        found = pieces(text, longest, count)
        assert "".join(found) == text
        assert all(found)
        assert all(count(piece) <= longest or len(piece.strip()) == 1 for piece in found)
        assert len(found) == 1 or count(text) > longest
        most = max(most, len(found))
    assert most > 20


ENDS = [". ", "! ", "? ", "... ", '." ', "?” ", "!») ", ".  ", ".\t", "。", "！", "？", "; ", ": ", "… "]  # noqa: RUF001


def test_sentences_that_fit_stay_whole(count: Count) -> None:
    generator = random.Random(2)
    cuts = 0
    for _ in range(100):
        sentences = [
            " ".join(generator.choices(["the", "3.5", "cat", "漢", "on.the"], k=generator.randrange(1, 5)))
            + generator.choice(ENDS)
            for _ in range(generator.randrange(2, 8))
        ]
        longest = max(map(count, sentences)) + generator.randrange(6)
        found, left = pieces("".join(sentences), longest, count), list(sentences)
        for piece in found:
            own = ""
            while len(own) < len(piece):
                own += left.pop(0)
            assert own == piece
        assert not left
        # As few as there can be one after the other: no piece has room for the sentence after it.
        assert all(count(one + other) > longest for one, other in itertools.pairwise(found))
        cuts += len(found) - 1
    assert cuts > 100


def test_words_that_fit_stay_whole(count: Count) -> None:
    generator = random.Random(3)
    for _ in range(50):
        words = generator.choices(
            ["the", "cat", "sat", "3.14", "U.S.A", "don't", "漢字"], k=generator.randrange(10, 40)
        )
        text = "".join(word + generator.choice([" ", "  ", "\t"]) for word in words) + "."
        found = pieces(text, max(map(count, words)) + 3, count)
        assert len(found) > 1
        assert [word for piece in found for word in piece.split()] == text.split()
        assert all(piece[-1].isspace() for piece in found[:-1])


def test_a_word_that_fits_nowhere_is_cut_between_characters() -> None:
    assert pieces("it is abcdefghij. so", 5, characters) == ["it ", "is ", "abcd", "efgh", "ij. ", "so"]


def test_by_hand() -> None:
    text = 'He said: "No." She left (at 3.15). Then what?'
    assert pieces(text, 20, characters) == ['He said: "No." ', "She left (at 3.15). ", "Then what?"]
    assert pieces("今日は晴れ。明日は雨！本当？", 8, characters) == ["今日は晴れ。", "明日は雨！", "本当？"]  # noqa: RUF001
    assert pieces("Yes. No. Yes. No.", 9, characters) == ["Yes. No. ", "Yes. No."]


@pytest.mark.parametrize("text", ["", " ", "  \t ", "short", " ab "])
def test_what_is_short_enough_stays_as_it_is(text: str) -> None:
    assert pieces(text, 6, characters) == [text]


def test_white_space_at_the_borders_stays() -> None:
    assert pieces("  one. two.  ", 6, characters) == ["  one. ", "two.  "]


def test_translations_are_joined_as_the_pieces_were_apart() -> None:
    assert joined(["A"], ["a"]) == "A"
    assert joined(["A", "B", "C"], ["a. ", "b", " c"]) == "A B C"
    assert joined(["A", "B", "C", "D"], ["甲。", "乙\u3000", "丙", "\tx"]) == "AB C D"
    assert joined(["", "B"], ["a ", "b"]) == " B"
