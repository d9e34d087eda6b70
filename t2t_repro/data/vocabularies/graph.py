"""The vocabularies as TensorFlow operations, for the exported graph.

Each class here encodes and decodes as the vocabulary whose name it contains; a test compares them.
Other files hold the classes of other kinds. Texts are strings in UTF-8, so a lone surrogate is
U+FFFD here.

In shapes, B is the number of texts, N the number of tokens of all texts together. Dimensions in
parentheses have another size in each row (they are ragged).
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf
import tensorflow_text

from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.data.vocabularies.bpe import BpeVocabulary
from t2t_repro.data.vocabularies.graph_bpe import (
    GraphBpeVocabulary,
    GraphTokenizerVocabulary,
    is_same_row,
    joined,
    of_followers,
    table,
)
from t2t_repro.data.vocabularies.huggingface import TokenizerVocabulary
from t2t_repro.data.vocabularies.marian import CODE, MarianVocabulary
from t2t_repro.data.vocabularies.sentencepiece import UNIGRAM, SentencePieceVocabulary
from t2t_repro.data.vocabularies.tensor2tensor import (
    RESERVED,
    UNDEFINED,
    ByteVocabulary,
    SubwordVocabulary,
    TokenVocabulary,
    escaped,
)
from t2t_repro.data.vocabularies.text_rules import SPACE, WHITE_SPACE, graph_strip, graph_utf8
from t2t_repro.data.vocabularies.vocabulary import Vocabulary

MAX_BYTES = (1 << 31) - 1
"""Maximum length of a text or token for TensorFlow's operations. No text is as long."""


class GraphVocabulary(Protocol):
    """A vocabulary as TensorFlow operations."""

    def tokenize(self, texts: Any) -> Any:
        """Returns the ids of strings [B], without end ids: int32 [B, (S)]."""

    def detokenize(self, ids: Any) -> Any:
        """Returns the texts of ids, int32 [B, (S)], without end and padding ids: strings [B]."""


def graph_vocabulary(vocabulary: Vocabulary) -> GraphVocabulary:
    """Returns the vocabulary as TensorFlow operations."""
    graphs: dict[type[Vocabulary], Callable[[Any], GraphVocabulary]] = {
        SentencePieceVocabulary: GraphSentencePieceVocabulary,
        SubwordVocabulary: GraphSubwordVocabulary,
        TokenVocabulary: GraphTokenVocabulary,
        ByteVocabulary: GraphByteVocabulary,
        BpeVocabulary: GraphBpeVocabulary,
        TokenizerVocabulary: GraphTokenizerVocabulary,
        MarianVocabulary: GraphMarianVocabulary,
    }
    return graphs[type(vocabulary)](vocabulary)


def differences(vocabulary: Vocabulary) -> str:
    """Returns a sentence that says which texts the graph treats in another way than the vocabulary,
    or "".
    """
    if isinstance(vocabulary, TokenVocabulary) and vocabulary.unknown_id is None:
        return (
            "the exported model ignores words that its vocabulary lacks; t2t-decoder refuses them"
        )
    return ""


class GraphSentencePieceVocabulary(tf.Module):
    def __init__(self, vocabulary: SentencePieceVocabulary) -> None:
        super().__init__()
        # SentencePiece reports that our vocabularies have no normalization rules.
        with quiet_tensorflow():
            # In a loaded SavedModel, tokenizers with the same name would share the model of the
            # first one.
            self._tokenizer = tensorflow_text.SentencepieceTokenizer(
                vocabulary.checked_model,
                out_type=tf.int32,
                add_eos=False,
                name=f"vocabulary_{vocabulary.fingerprint}",
            )
            self._fast_tokenizer = None
            if vocabulary.model_type == UNIGRAM:
                self._fast_tokenizer = tensorflow_text.FastSentencepieceTokenizer(
                    vocabulary.checked_model
                )
        self._pieces = tf.constant(vocabulary.pieces(vocabulary.ids))
        self._ids, self._model_ids = (
            tf.constant(ids, tf.int32) for ids in (vocabulary.ids, vocabulary.model_ids)
        )
        numbers = range(vocabulary.unknown_id, vocabulary.size)
        visible = (number for number in numbers if vocabulary.decode([[number]])[0].strip())
        self._guard = next(visible, vocabulary.unknown_id)
        self._guard_bytes = len(vocabulary.decode([[self._guard]])[0].encode())
        self._keeps_spaces = vocabulary.keeps_spaces

    def tokenize(self, texts: Any) -> Any:
        ids = self._tokenizer.tokenize(texts)
        if self._fast_tokenizer:
            # Rounding decides between two splits with almost the same score. The fast tokenizer
            # rounds as SentencePiece does in Python, but it lacks bytes and some kinds of
            # normalization. So compare the texts of the splits.
            fast_ids = tf.cast(self._fast_tokenizer.tokenize(texts), tf.int32)
            fast_ids = fast_ids.with_row_splits_dtype(tf.int64)
            is_same = joined(ids, self._pieces) == joined(fast_ids, self._pieces)
            count = ids.nrows()
            rows = tf.range(count) + tf.where(is_same, count, 0)
            ids = tf.gather(tf.concat([ids, fast_ids], axis=0), rows)
        return ids.with_flat_values(tf.gather(self._ids, ids.flat_values))

    def detokenize(self, ids: Any) -> Any:
        texts = self._text(ids)
        if not self._keeps_spaces:
            return texts
        # TensorFlow Text's version of SentencePiece removes all spaces at the beginning of a text,
        # and that of Python only the first of them. After another piece, both keep all spaces.
        guards = tf.fill([ids.nrows(), 1], self._guard)
        guarded = self._text(tf.concat([guards, ids], axis=1))
        guarded = tf.strings.substr(guarded, self._guard_bytes, MAX_BYTES)
        has_space = tf.strings.length(guarded) > tf.strings.length(texts)
        return tf.where(has_space, tf.strings.regex_replace(guarded, "^ ", ""), texts)

    def _text(self, ids: Any) -> Any:
        model_ids = ids.with_flat_values(tf.gather(self._model_ids, ids.flat_values))
        return self._tokenizer.detokenize(model_ids)


class GraphMarianVocabulary(GraphSentencePieceVocabulary):
    def __init__(self, vocabulary: MarianVocabulary) -> None:
        super().__init__(model := vocabulary.sentencepiece)
        name = f"strings_{model.fingerprint}"
        with quiet_tensorflow():
            self._strings = tensorflow_text.SentencepieceTokenizer(
                model.checked_model, tf.string, name=name
            )
        self._unknown = vocabulary.unknown_id
        self._unknown_of_model = model.model_ids[model.unknown_id]
        self._id_of = table(vocabulary.id_of, tf.string, tf.int32, self._unknown)
        self._table = tf.constant(vocabulary.pieces(range(vocabulary.size)))

    def tokenize(self, texts: Any) -> Any:
        codes = tf.strings.regex_replace(texts, f"(?s)^({CODE})?.*", r"\1")
        texts = tf.strings.regex_replace(texts, f"^{CODE}", "")
        ids = super().tokenize(texts)
        model_ids = tf.gather(self._model_ids, ids.flat_values)
        # The table may have the text of a piece that is unknown to the model. Only the tokenizer of
        # strings returns it.
        is_unknown = self._tokenizer.tokenize(texts).flat_values == self._unknown_of_model
        unknown_texts = tf.boolean_mask(self._strings.tokenize(texts).flat_values, is_unknown)
        places = tf.where(model_ids == self._unknown_of_model)
        pieces = tf.gather(self._pieces, model_ids)
        pieces = tf.tensor_scatter_nd_update(pieces, places, unknown_texts)
        codes = tf.ragged.boolean_mask(codes[:, None], codes[:, None] != "")
        pieces = tf.concat([codes, ids.with_flat_values(pieces)], axis=1)
        return pieces.with_flat_values(self._id_of.lookup(pieces.flat_values))

    def detokenize(self, ids: Any) -> Any:
        is_known = (ids < tf.size(self._table)) & (ids != self._unknown)
        ids = tf.ragged.boolean_mask(ids, is_known)
        pieces = ids.with_flat_values(tf.gather(self._table, ids.flat_values))
        texts = self._strings.detokenize(pieces)
        return graph_strip(tf.strings.regex_replace(texts, SPACE, " "))


class GraphSubwordVocabulary(tf.Module):
    def __init__(self, vocabulary: SubwordVocabulary) -> None:
        super().__init__()
        self._changes = tf.constant(_alphanumeric_changes(), tf.int32)
        self._pieces = tf.constant(vocabulary.pieces(range(vocabulary.size)))
        self._id_of = table(vocabulary.id_of, tf.string, tf.int64, -1)
        alphabet = vocabulary.alphabet
        escapes = {ord(char): escaped(char, alphabet)[:-1] for char in sorted(alphabet)}
        self._escapes = table(escapes, tf.int32, tf.string, "")
        self._matcher = tensorflow_text.WordpieceTokenizer(
            self._id_of,
            suffix_indicator="",
            max_bytes_per_word=MAX_BYTES,
            max_chars_per_token=vocabulary.longest,
            unknown_token=None,
        )

    def tokenize(self, texts: Any) -> Any:
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        flat = codes.flat_values
        rows = codes.value_rowids()
        is_alphanumeric = self._is_alphanumeric(flat)
        is_new = ~is_same_row(rows) | (is_alphanumeric[1:] != is_alphanumeric[:-1])
        starts = tf.where(of_followers(is_new, True, tf.size(flat)))[:, 0]
        tokens = tf.RaggedTensor.from_row_starts(flat, starts)  # codes [N, (characters)]
        rows = tf.gather(rows, starts)
        follows = of_followers(is_same_row(rows), False, tf.size(starts))
        is_inner = follows & tf.pad(follows, [[0, 1]])[1:]
        is_space = (tokens.row_lengths() == 1) & (tf.gather(flat, starts) == ord(" "))
        is_kept = ~(is_space & is_inner)
        tokens = tf.ragged.boolean_mask(tokens, is_kept)
        ids = self._matcher.tokenize(_escaped(tokens, self._escapes))
        rows = tf.boolean_mask(rows, is_kept)
        tokens = tf.RaggedTensor.from_value_rowids(ids, rows, nrows=codes.nrows())
        return tf.cast(tokens.merge_dims(1, 2), tf.int32)

    def _is_alphanumeric(self, codes: Any) -> Any:
        """Returns bool [N] for the codes [N] of characters."""
        return tf.searchsorted(self._changes, codes, side="right") % 2 == 1

    def detokenize(self, ids: Any) -> Any:
        tokens = tf.strings.split(joined(ids, self._pieces), "_")
        tokens = tf.ragged.boolean_mask(tokens, tokens != "")
        texts = _unescaped(tokens.flat_values)
        rows = tokens.value_rowids()
        first_codes = tf.strings.unicode_decode(texts, "UTF-8")[:, :1].flat_values
        is_alphanumeric = self._is_alphanumeric(first_codes)
        has_space = is_alphanumeric[1:] & is_alphanumeric[:-1] & is_same_row(rows)
        spaces = tf.where(of_followers(has_space, False, tf.size(texts)), " ", "")
        return tf.strings.reduce_join(tokens.with_flat_values(spaces + texts), axis=1)


class GraphTokenVocabulary(tf.Module):
    """`TokenVocabulary` as TensorFlow operations. Without a token for unknown words, it ignores
    such words.
    """

    def __init__(self, vocabulary: TokenVocabulary) -> None:
        super().__init__()
        self._pieces = tf.constant(vocabulary.pieces(range(vocabulary.size)))
        self._id_of = table(vocabulary.id_of, tf.string, tf.int32, vocabulary.unknown_id or -1)

    def tokenize(self, texts: Any) -> Any:
        words = tf.strings.split(tf.strings.regex_replace(texts, WHITE_SPACE, " "), " ")
        words = tf.ragged.boolean_mask(words, words != "")
        ids = words.with_flat_values(self._id_of.lookup(words.flat_values))
        return tf.ragged.boolean_mask(ids, ids >= 0)

    def detokenize(self, ids: Any) -> Any:
        return joined(ids, self._pieces, " ")


class GraphByteVocabulary(tf.Module):
    def __init__(self, _: ByteVocabulary) -> None:
        super().__init__()

    def tokenize(self, texts: Any) -> Any:
        # In ISO-8859-1, the code of a character is its byte.
        return tf.strings.unicode_decode(texts, "ISO-8859-1") + len(RESERVED)

    def detokenize(self, ids: Any) -> Any:
        pieces = [b""] * len(RESERVED) + [bytes([byte]) for byte in range(256)]
        return graph_utf8(joined(ids, tf.constant(pieces)))


def _escaped(tokens: Any, escapes: tf.lookup.StaticHashTable) -> Any:
    """Returns tokens, codes [N, (characters)], with escapes and "_" at the end: strings [N]. In
    Python, this is `escaped`.
    """
    as_numbers = tf.strings.join(["\\", tf.strings.as_string(tokens.flat_values), ";"])
    characters = escapes.lookup(tokens.flat_values)
    characters = tf.where(characters == "", as_numbers, characters)
    return tf.strings.reduce_join(tokens.with_flat_values(characters), axis=1) + "_"


def _unescaped(tokens: Any) -> Any:
    """Returns escaped tokens, strings [N] without "_", as text: strings [N]."""
    separated = tf.strings.regex_replace(tokens, r"(\\u|\\\\|\\[0-9]+;)", r"_\1_")
    parts = tf.strings.split(separated, "_")
    texts = parts.flat_values
    digits = tf.strings.regex_replace(texts, r"^\\0*([0-9]+);$", r"\1")
    is_code = tf.strings.regex_full_match(texts, r"\\[0-9]+;")
    # A number with more than seven digits is not a character.
    is_short = is_code & (tf.strings.length(digits) <= len(str(sys.maxunicode)))
    digits = tf.where(is_short, digits, str(sys.maxunicode + 1))
    codes = tf.strings.to_number(digits, tf.int32)
    codes = tf.where(codes > sys.maxunicode, ord(UNDEFINED), codes)
    # unicode_encode writes U+FFFD for lone surrogates.
    texts = tf.where(is_code, tf.strings.unicode_encode(codes[:, None], "UTF-8"), texts)
    texts = tf.where(texts == r"\u", "_", tf.where(texts == r"\\", "\\", texts))
    return tf.strings.reduce_join(parts.with_flat_values(texts), axis=1)


@functools.cache
def _alphanumeric_changes() -> list[int]:
    """Returns the codes of characters at which `str.isalnum` becomes true or false, in ascending
    order.
    """
    flags = [chr(code).isalnum() for code in range(sys.maxunicode + 1)] + [False]
    return [code for code, flag in enumerate(flags) if flag != flags[code - 1]]
