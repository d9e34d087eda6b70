"""Tests that the rules about text give the same results in Python and in a TensorFlow graph."""

import unicodedata

import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabularies import text_rules

BLANK = (
    " "
    "\t\n\r\x85\xa0\u3000\u200b\ufeff\u2060\xad\u200e\u200d\u180e\u034f\ufe0f\u2800\u3164\x00\x7f\x1b"
)
"""Characters that nobody sees: white space, controls, joiners, variation selectors, fillers."""
NOT_BLANK = "a.Ω漢\u0301\u0600\U0001f600"


EMPTY = {
    "": True,
    **dict.fromkeys([*BLANK, BLANK], True),
    **dict.fromkeys(NOT_BLANK, False),
    " a ": False,
}
ONE_LINE = {"": "", "a": "a", "a\nb\n\n": "a b  ", "\r\x0b\u0085\u2028": "\r\x0b\u0085\u2028"}


def test_rules_about_texts_are_the_same_in_the_graph() -> None:
    assert {text: text_rules.is_empty(text) for text in EMPTY} == EMPTY
    assert tf.function(text_rules.graph_is_empty)(
        tf.constant(list(EMPTY))
    ).numpy().tolist() == list(EMPTY.values())
    assert {text: text_rules.one_line(text) for text in ONE_LINE} == ONE_LINE
    lines = tf.function(text_rules.graph_one_line)(tf.constant(list(ONE_LINE))).numpy()
    assert [line.decode() for line in lines] == list(ONE_LINE.values())


def test_the_length_of_an_output_is_the_same_in_the_graph() -> None:
    ids = np.array(
        [[5, 6, 1, 7], [5, 0, 1, 7], [1, 0, 0, 0], [0, 5, 1, 0], [2, 3, 4, 5], [0, 0, 0, 0]],
        np.int32,
    )
    lengths = [2, 1, 0, 0, 4, 0]
    assert [text_rules.output_length(output) for output in ids.tolist()] == lengths
    assert tf.function(text_rules.graph_output_length)(ids).numpy().tolist() == lengths
    assert text_rules.output_length([]) == 0


def test_white_space_is_the_same_in_the_graph() -> None:
    texts = [
        f"{char}{char}a{char}b{char}"
        for char in map(chr, [*range(0xD800), *range(0xE000, 0x20000)])
    ]
    stripped = tf.function(text_rules.graph_strip)(tf.constant(texts)).numpy()
    assert [text.decode() for text in stripped] == [text.strip() for text in texts]


def test_an_empty_text_is_the_same_in_the_graph() -> None:
    texts = [*map(chr, [*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE1000)])]
    is_empty = [text_rules.is_empty(text) for text in texts]
    assert tf.function(text_rules.graph_is_empty)(tf.constant(texts)).numpy().tolist() == is_empty
    categories = {
        unicodedata.category(text) for text, empty in zip(texts, is_empty, strict=True) if not empty
    }
    assert not categories & {"Cc", "Zs", "Zl", "Zp"}


def test_an_output_has_no_lone_surrogates() -> None:
    assert text_rules.one_line("a\ud800\n\udfff\U0001f600") == "a\ufffd \ufffd\U0001f600"
