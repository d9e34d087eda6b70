"""Tags, which tell a model for several target languages which one to write: ">>de<< A man sleeps.";
other symbols.

A tag stands at the beginning of a source text. Each rule has a function in Python, and one in
TensorFlow whose name starts with `graph_`. In shapes, B is the number of texts.
"""

import re
from typing import Any

from t2t_repro.data.vocabularies.text_rules import WHITE_SPACE

TAG = ">>[0-9A-Za-z_.-]+<<"
"""Regular expression for a tag, for Python and for TensorFlow."""
START = f"{WHITE_SPACE}*({TAG}){WHITE_SPACE}*"
"""Regular expression for a tag and the white space around it, at the beginning of a text."""
SYMBOL_RULE = (
    "no white space or comma, not <pad>, </s> or <unk>, and not of the form >>de<<, which is for "
    "--targets"
)


def tag(language: str) -> str:
    """Returns the tag of a target language, e.g. ">>de<<"."""
    return f">>{language}<<"


def language_of(tag: str) -> str:
    return tag[2:-2]


def is_tag(piece: str) -> bool:
    return bool(re.fullmatch(TAG, piece))


def is_symbol(text: str) -> bool:
    """Returns True if the user may choose a text as a single piece of the vocabulary, such as
    "<bt>".
    """
    is_reserved = text in ("<pad>", "</s>", "<unk>") or is_tag(text)
    return bool(re.fullmatch(r"[^\s,]+", text)) and not is_reserved


def split_tag(text: str) -> tuple[str, str]:
    """Returns the tag with which a text begins, and the text after it; "" and the whole text if it
    has no tag.
    """
    match = re.match(START, text)
    return (match[1], text[match.end() :]) if match else ("", text)


def graph_split_tag(texts: Any) -> tuple[Any, Any]:
    """Applies `split_tag` to a tensor of strings [B]. Returns the tags and the other text: strings
    [B] each.
    """
    import tensorflow as tf

    pattern = f"(?s){START}(.*)"
    tags = tf.where(
        tf.strings.regex_full_match(texts, pattern),
        tf.strings.regex_replace(texts, pattern, r"\1"),
        "",
    )
    return tags, tf.strings.regex_replace(texts, f"^{START}", "")
