"""Splits texts into sentences. TensorFlow operations, so that t2t-decoder and exported graphs split in the same way.

In shapes, B is the number of texts, and (N) the number of sentences in each text.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from t2t_repro.data.vocabularies.text_rules import WHITE_SPACE

STOP, BREAK = "\ufdd0", "\ufdd1"
"""Marks in a text: the full stop of an abbreviation, and the end of a sentence. Unicode keeps these codes free for the
use inside programs."""
CLOSING = r"[\"'”’»)\]]*"  # noqa: RUF001
ABBREVIATIONS = r"\b([A-Z]|\d\d?|Mr|Mrs|Ms|Dr|Prof|St|Nr|Fig)\."
"""Full stops of initials, ordinal numbers and common abbreviations end no sentence."""
END = rf"([.!?…]{CLOSING}{WHITE_SPACE}+|[。！？][」』”’）]*)"  # noqa: RUF001
"""End of a sentence: a mark, closing quotes and brackets, white space. Chinese and Japanese marks need no white space.
"""
CONTINUED = rf"{BREAK}({WHITE_SPACE}*\p{{Ll}})"
"""An end before a small letter, which is none in a text with capital letters: the mark was that of an abbreviation."""
WORDLESS = rf"{BREAK}([^\pL\pN{BREAK}]*)({BREAK}|$)"
"""Characters without letters and digits between two ends: they belong to the sentence before them."""


def split_sentences(texts: Any) -> Any:
    """Returns the sentences of texts, strings [B]: strings [B, (N)]. Those of a text concatenate to the text."""
    texts = tf.convert_to_tensor(texts, tf.string)
    marked = tf.strings.regex_replace(texts, ABBREVIATIONS, rf"\1{STOP}")
    marked = tf.strings.regex_replace(marked, END, rf"\1{BREAK}")
    is_cased = texts != tf.strings.lower(texts, encoding="utf-8")
    marked = tf.where(is_cased, tf.strings.regex_replace(marked, CONTINUED, r"\1"), marked)
    for _ in range(2):  # the ends beside a match are not part of it, so a second pass finds those of its neighbors
        marked = tf.strings.regex_replace(marked, WORDLESS, r"\1\2")
    return tf.strings.split(tf.strings.regex_replace(marked, STOP, "."), BREAK)
