"""Rules about text that Python and the served graph share. Each rule is written twice, side by side.

Only the graph's functions import TensorFlow, so that programs without a graph start fast.

Shapes: B batch, n outputs per text, L longest output.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

PAD_ID = 0
"""Fills rows up to the length of the longest one."""
EOS_ID = 1
"""Ends a text."""


def is_empty(text: str) -> bool:
    """Returns whether a text has no characters except ASCII white space. Empty texts are not translated."""
    return not text.strip(string.whitespace)


def graph_is_empty(texts: Any) -> Any:
    """Returns bool [B] for strings [B]; see `is_empty`."""
    import tensorflow as tf

    return tf.strings.strip(texts) == ""


def output_length(ids: Sequence[int]) -> int:
    """Returns the number of tokens before the first end or padding id."""
    return next((position for position, token in enumerate(ids) if token in (EOS_ID, PAD_ID)), len(ids))


def graph_output_length(ids: Any) -> Any:
    """Returns int32 [B, n] for ids [B, n, L]; see `output_length`."""
    import tensorflow as tf

    is_text = tf.cast((ids != EOS_ID) & (ids != PAD_ID), tf.int32)
    return tf.reduce_sum(tf.math.cumprod(is_text, axis=2), axis=2)


def one_line(text: str) -> str:
    """Returns the text with spaces for newlines, which a model can emit as bytes. So an output is always one line."""
    return text.replace("\n", " ")


def graph_one_line(texts: Any) -> Any:
    """Returns strings [B] for strings [B]; see `one_line`."""
    import tensorflow as tf

    return tf.strings.regex_replace(texts, "\n", " ")
