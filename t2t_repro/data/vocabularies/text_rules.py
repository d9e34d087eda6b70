"""Rules about text that Python programs and the exported TensorFlow graph share.

Each rule has a function in Python and a function in TensorFlow, whose name starts with `graph_`.
Only the `graph_` functions import TensorFlow, so that programs without a graph start fast.

In shapes, B is the number of texts, and L the length of the longest text.
"""

import re
from collections.abc import Sequence
from typing import Any

from t2t_repro.errors import UserError

PAD_ID = 0
"""Id of padding, which fills each row of a batch up to the length of the longest row."""
EOS_ID = 1
"""Id of the end token, the last token of a text."""
SPACE = "\u2581"
"""The character that stands for a space in the pieces of SentencePiece and of Llama's tokenizer."""
WHITE_SPACE = "[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""Regular expression for the characters that `str.strip` and `str.split` take for white space."""
VISIBLE = re.compile(
    "[^\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""A character that is no white space, no control character and none that Unicode calls ignorable,
such as U+200B.
"""
SURROGATES = re.compile("[\ud800-\udfff]")


def is_empty(text: str) -> bool:
    """Returns True if no character of a text is visible. Programs do not translate such a text."""
    return not VISIBLE.search(text)


def graph_is_empty(texts: Any) -> Any:
    """Applies `is_empty` to a tensor of strings [B]. Returns bool [B]."""
    import tensorflow as tf

    return ~tf.strings.regex_full_match(texts, f"(?s).*{VISIBLE.pattern}.*")


def graph_strip(texts: Any) -> Any:
    """Applies `str.strip` to a tensor of strings [B]. Returns strings [B]."""
    import tensorflow as tf

    return tf.strings.regex_replace(texts, f"^{WHITE_SPACE}+|{WHITE_SPACE}+$", "")


def utf8(text: str) -> bytes:
    """Returns a text in UTF-8. Raises UserError if it has a lone surrogate, which no UTF-8 text
    contains.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{text[:50]!a}: not UTF-8 text, because character {error.start + 1} is a lone "
            "surrogate; remove it"
        ) from None


def graph_utf8(texts: Any) -> Any:
    """Returns strings [B] with U+FFFD in place of bytes that are not UTF-8."""
    import tensorflow as tf

    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def output_length(ids: Sequence[int]) -> int:
    """Returns the number of ids before the first end or padding id."""
    ends = (position for position, token in enumerate(ids) if token in (EOS_ID, PAD_ID))
    return next(ends, len(ids))


def graph_output_length(ids: Any) -> Any:
    """Applies `output_length` to each row of a tensor of ids [B, L]. Returns int32 [B]."""
    import tensorflow as tf

    is_text = tf.cast((ids != EOS_ID) & (ids != PAD_ID), tf.int32)
    return tf.reduce_sum(tf.math.cumprod(is_text, axis=1), axis=1)


def one_line(text: str) -> str:
    """Returns the text with a space for each newline, and U+FFFD for each lone surrogate.

    A model can emit these characters, but an output must be one line of UTF-8.
    """
    return SURROGATES.sub("\ufffd", text.replace("\n", " "))


def graph_one_line(texts: Any) -> Any:
    """Applies `one_line` to a tensor of strings [B] in UTF-8, so without surrogates. Returns
    strings [B].
    """
    import tensorflow as tf

    return tf.strings.regex_replace(texts, "\n", " ")
