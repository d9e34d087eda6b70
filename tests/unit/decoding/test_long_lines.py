"""Tests that long texts are split after sentences, and that the translations of their segments are joined."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from t2t_repro.decoding.long_lines import join_texts, split_text


def count_characters(texts: Sequence[str]) -> list[int]:
    """Returns the numbers of characters, without outer white space, plus 1 for the end token."""
    return [len(text.strip()) + 1 for text in texts]


def test_parts_are_short_enough_and_concatenate_to_the_text() -> None:
    generator = random.Random(1)
    words = [*["the", "dog", "a", "Ω", "漢字", "。", ".", "!", "?", "...", '"', "”", ")"], *"   ", "  ", "\t", "\u3000"]
    most = 0
    for _ in range(300):
        text = "".join(generator.choices(words, k=generator.randrange(1, 40)))
        longest = generator.choice([2, 3, 5, 9, 20])
        parts = split_text(text, longest, count_characters)
        assert "".join(parts) == text
        assert all(parts)
        assert all(len(part.strip()) in range(max(longest, 2)) for part in parts)
        most = max(most, len(parts))
    assert most > 20


ENDS = [". ", "! ", "? ", "... ", '." ', "?” ", "!») ", ".  ", ".\t", "。", "！", "？", "… "]  # noqa: RUF001


def test_each_sentence_that_fits_is_a_part() -> None:
    generator = random.Random(2)
    cuts = 0
    for _ in range(100):
        sentences = [
            " ".join(generator.choices(["the", "3.5%", "cat", "漢", "on.the"], k=generator.randrange(1, 5)))
            + generator.choice(ENDS)
            for _ in range(generator.randrange(2, 8))
        ]
        longest = max(count_characters(sentences)) + generator.randrange(6)
        text = "".join(sentences)
        parts = split_text(text, longest, count_characters)
        # Sentences are not joined again: a model that was trained on single sentences cannot translate several at once.
        assert parts == sentences
        cuts += len(parts) - 1
    assert cuts > 100


@pytest.mark.parametrize(
    ("text", "longest", "parts"),
    [
        ("it is abcdefghij. so", 5, ["it ", "is ", "abcd", "efgh", "ij. ", "so"]),
        ("a b, c d, e f. g", 11, ["a b, c d, ", "e f. ", "g"]),
        ("Am 3. Mai 2020 galt z.B. das. Ja. '' ...", 35, ["Am 3. Mai 2020 galt z.B. das. ", "Ja. '' ..."]),
        ("Dr. J. Ross and Mrs. Doe left. So did I. Yes.", 32, ["Dr. J. Ross and Mrs. Doe left. ", "So did I. Yes."]),
        (
            'He said: "No." She left (at 3.15). Then what?',
            20,
            ['He said: "No." ', "She left (at 3.15). ", "Then what?"],
        ),
        ("今日は晴れ。明日は雨！本当？", 8, ["今日は晴れ。", "明日は雨！", "本当？"]),  # noqa: RUF001
        ("A one. ... '' ! Two. . ? ! ...", 99, ["A one. ... '' ! ", "Two. . ? ! ..."]),
        (
            "U.S. Army, e.g. J.R.R. T. in z. B. Ä. Bonn. “No.” It",
            99,
            ["U.S. Army, e.g. J.R.R. T. in z. B. Ä. Bonn. ", "“No.” ", "It"],
        ),
        ("बस। अब؟ 1. Nr. 5, v2.0. It", 99, ["बस। ", "अब؟ ", "1. Nr. 5, v2.0. ", "It"]),
        ("好。 “是。”“x", 99, ["好。 ", "“是。”", "“x"]),
        ("  one. two.  ", 6, ["  one. ", "two.  "]),
        *((text, 6, [text]) for text in ("", "  \t ", " ab ")),
    ],
)
def test_examples_are_split_as_by_hand(text: str, longest: int, parts: list[str]) -> None:
    assert split_text(text, longest, count_characters) == parts


def test_a_million_characters_are_split_in_seconds() -> None:
    start = time.process_time()
    parts = split_text("ab" * (1 << 19), 500, count_characters)
    assert len(parts) == -(-(1 << 20) // 499) and time.process_time() - start < 10


def test_translations_are_joined_with_the_white_space_between_their_sources() -> None:
    assert join_texts(["A"], ["a"]) == "A"
    assert join_texts(["A", "B", "C"], ["a. ", "b", " c"]) == "A B C"
    assert join_texts(["A", "B", "C", "D"], ["甲。", "乙\u3000", "丙", "\tx"]) == "AB C D"
    assert join_texts(["", "B"], ["a ", "b"]) == " B"
