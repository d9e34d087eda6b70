"""Tests that long texts are split after sentences, and that the translations of their segments are
joined.
"""

import time
from collections.abc import Sequence

import pytest

from odd_lines import odd_lines
from t2t_repro.decoding.long_lines import join_texts, split_text
from t2t_repro.decoding.sentences import graph_split_sentences, split_sentences


def count_characters(texts: Sequence[str]) -> list[int]:
    """Returns the numbers of characters, without outer white space, plus 1 for the end token."""
    return [len(text.strip()) + 1 for text in texts]


@pytest.mark.parametrize(
    ("text", "longest", "parts"),
    [
        ("it is abcdefghij. so", 5, ["it ", "is ", "abcd", "efgh", "ij. ", "so"]),
        ("a b, c d, e f. g", 11, ["a b, c d, ", "e f. ", "g"]),
        (
            "Am 3. Mai 2020 galt z.B. das. Ja. '' ...",
            35,
            ["Am 3. Mai 2020 galt z.B. das. ", "Ja. '' ..."],
        ),
        (
            "Dr. J. Ross and Mrs. Doe left. So did I. Yes.",
            32,
            ["Dr. J. Ross and Mrs. Doe left. ", "So did I. Yes."],
        ),
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
        (
            "Ay! Be? Co... Do.\tEy… Fa.” Go?”) H",
            99,
            ["Ay! ", "Be? ", "Co... ", "Do.\t", "Ey… ", "Fa.” ", "Go?”) ", "H"],
        ),
        ("3.5% on.the cat etc. or so. B", 99, ["3.5% on.the cat etc. or so. ", "B"]),
        *((text, 6, [text]) for text in ("", "  \t ", " ab ")),
    ],
)
def test_examples_are_split_as_by_hand(text: str, longest: int, parts: list[str]) -> None:
    assert split_text(text, longest, count_characters) == parts


def test_graphs_have_the_same_sentences() -> None:
    lines = [". ".join(odd_lines(60)), "! ".join(odd_lines(60)), "。".join(odd_lines(60))]
    lines += odd_lines(900)
    expected = [
        [sentence.decode() for sentence in row] for row in graph_split_sentences(lines).to_list()
    ]
    assert list(map(split_sentences, lines)) == expected


def test_a_million_characters_are_split_in_seconds() -> None:
    start = time.process_time()
    parts = split_text("ab" * (1 << 19), 500, count_characters)
    assert len(parts) == -(-(1 << 20) // 499) and time.process_time() - start < 10


def test_translations_are_joined_with_the_white_space_between_their_sources() -> None:
    assert join_texts(["A"], ["a"]) == "A"
    assert join_texts(["A", "B", "C"], ["a. ", "b", " c"]) == "A B C"
    assert join_texts(["A", "B", "C", "D"], ["甲。", "乙\u3000", "丙", "\tx"]) == "AB C D"
    assert join_texts(["", "B"], ["a ", "b"]) == " B"
