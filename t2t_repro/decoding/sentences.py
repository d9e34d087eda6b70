"""Splits texts into sentences, in Python and, with the same patterns, in TensorFlow's graphs.

In shapes, B is the number of texts, and (N) the number of sentences in each text.
"""

from typing import Any

import regex  # type: ignore[import-untyped]

from t2t_repro.data.vocabularies.text_rules import WHITE_SPACE

STOP = "\ufdd0"
BREAK = "\ufdd1"
"""Marks in a text: the full stop of an abbreviation, and the end of a sentence. Unicode keeps these
codes free for the use inside programs.
"""
CLOSING = r"[\"'”’“‘»«›‹)\]]*"  # noqa: RUF001
INITIALS = rf"(^|[^\pL\pN])(\pL)\.({WHITE_SPACE}?\pL)\."
"""Full stops of two letters, such as "U.S.", "e.g." or "z. B.", end no sentence."""
ABBREVIATIONS = (
    r"(^|[^\pL\pN])(\p{Lu}|Mr|Mrs|Ms|Mme|Sra|Dr|Prof|St|Jr|Sr|Hr|Gen|Maj|Col|Capt|Lt|Sgt|Gov|Sen|"
    r"Rep|Rev|Jan|Feb|Aug|Sept|Oct|Nov|Dec|Nr|Fig|Vol|Abb|Art|Bd|pp?|vs|ca|bzw|sog|Mio|Mrd)\."
    rf"|(^|{WHITE_SPACE})([(\[\"'“„]?\d\d?)\."
)
"""Full stops of initials, common abbreviations and ordinal numbers end no sentence."""
MARK = (
    rf"(?:[.!?…‽؟۔։।॥።။។]{CLOSING}{WHITE_SPACE}+|"  # noqa: RUF001
    rf"[。！？｡][」』”’）】》〉]*{WHITE_SPACE}*)"  # noqa: RUF001
)
"""A mark, closing quotes and brackets, white space. Chinese and Japanese marks need no white space.
"""
END = rf"({MARK}(?:[^\pL\pN]*{MARK})*)"
"""End of a sentence. Characters without letters and digits between two marks belong to the sentence
before them.
"""
CONTINUED = rf"{BREAK}({WHITE_SPACE}*\p{{Ll}})"
"""An end before a small letter, which is none in a text with capital letters: the mark was that of
an abbreviation.
"""
WORDLESS = rf"{BREAK}([^\pL\pN]*)$"
"""An end after which no letter and no digit follows: none, because the rest is no sentence."""
MARKS = (
    (INITIALS, rf"\1\2{STOP}\3{STOP}"),
    (ABBREVIATIONS, rf"\1\2\3\4{STOP}"),
    # The character before a match is part of it, so a second pass finds those beside another match.
    (ABBREVIATIONS, rf"\1\2\3\4{STOP}"),
    (END, rf"\1{BREAK}"),
    (WORDLESS, r"\1"),
    (STOP, "."),
)
"""Patterns with their replacements, in the order in which they mark the ends of sentences."""


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a text, whose concatenation is the text."""
    marked = text
    for pattern, replacement in MARKS:
        marked = regex.sub(pattern, replacement, marked)
    if text != text.lower():
        marked = regex.sub(CONTINUED, r"\1", marked)
    return marked.split(BREAK)


def graph_split_sentences(texts: Any) -> Any:
    """Applies `split_sentences` to each of the strings [B]. Returns strings [B, (N)]."""
    import tensorflow as tf

    texts = tf.convert_to_tensor(texts, tf.string)
    marked = texts
    for pattern, replacement in MARKS:
        marked = tf.strings.regex_replace(marked, pattern, replacement)
    is_cased = texts != tf.strings.lower(texts, encoding="utf-8")
    joined = tf.strings.regex_replace(marked, CONTINUED, r"\1")
    return tf.strings.split(tf.where(is_cased, joined, marked), BREAK)
