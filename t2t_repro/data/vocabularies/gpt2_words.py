"""GPT-2's words as TensorFlow operations: letters, digits or signs with the space before them, and white space.

In shapes, B is the number of texts. Dimensions in parentheses have another size in each row (they are ragged).
"""

import functools
from typing import Any

import tensorflow as tf

CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
WORDS = rf"({CONTRACTIONS}| ?[a-z]+| ?1+| ?[!']+|\t+|\n)"
"""GPT-2's regular expression for texts in which a class stands for each character; see `graph_gpt2_words`."""


def graph_gpt2_words(texts: Any) -> Any:
    """Returns the words of texts, strings [B], as GPT-2's regular expression cuts them: strings [B, (words)].

    RE2 has no look-ahead, and its letters are those of another version of Unicode. So `WORDS` is applied to texts that
    have "a" for a letter, "1" for a number and "!" for other characters, except those of `CONTRACTIONS`. White space
    is "\\t" before white space and at the end. Otherwise a space remains a space, and other white space is "\\n".
    """
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    flat, rows = codes.flat_values, codes.value_rowids()
    is_letter, is_number, is_space = (
        tf.searchsorted(tf.constant(changes), flat, side="right") % 2 == 1 for changes in _class_changes()
    )
    is_last = tf.pad((rows[1:] == rows[:-1]) & ~is_space[1:], [[0, 1]])[: tf.size(flat)]
    spaces = tf.where(is_last, tf.where(flat == ord(" "), " ", "\n"), "\t")
    classes = tf.where(is_space, spaces, tf.where(is_letter, "a", tf.where(is_number, "1", "!")))
    is_kept = tf.reduce_any(flat[:, None] == tf.constant([ord(char) for char in CONTRACTIONS.replace("|", "")]), axis=1)
    classes = tf.where(is_kept, tf.strings.unicode_encode(flat[:, None], "UTF-8"), classes)
    classes = tf.strings.reduce_join(codes.with_flat_values(classes), axis=1)
    words = tf.strings.split(tf.strings.regex_replace(classes, WORDS, r"\1,"), ",")
    characters = tf.RaggedTensor.from_row_lengths(flat, tf.strings.length(words.flat_values))
    return words.with_flat_values(tf.strings.unicode_encode(characters, "UTF-8"))


@functools.cache
def _class_changes() -> list[list[int]]:
    """Returns the codes at which characters begin or end to be letters, numbers and white space for tokenizers."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x40000))))  # all other characters are in no class
    changes = []
    for pattern in (r"\p{L}+", r"\p{N}+", r"\s+"):
        others = Split(Regex(pattern), "removed").pre_tokenize_str(text)
        bounds = [bound for _, span in others for bound in span][1:-1]
        changes.append([bound if bound < 0xD800 else bound + 0x800 for bound in bounds])
    return changes
