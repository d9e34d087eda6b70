"""Byte-pair encoding as TensorFlow operations, in subword-nmt's vocabularies and in those of
Hugging Face.

In shapes, B is the number of texts, N the number of words of all texts together, S the number of
symbols of all words. Dimensions in parentheses have another size in each row (they are ragged).
"""

import abc
import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from t2t_repro.data.vocabularies.bpe import END, JOINT, LINE_ENDS, BpeVocabulary, Merges
from t2t_repro.data.vocabularies.huggingface import TokenizerVocabulary, has_prefix
from t2t_repro.data.vocabularies.text_rules import SPACE, graph_utf8

CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
GPT2_WORDS = rf"({CONTRACTIONS}| ?[a-z]+| ?1+| ?[!']+|\t+|\n)"
"""GPT-2's regular expression for texts in which a class stands for each character; see
`_gpt2_words`.
"""

BASE = 1 << 31
"""A pair of symbols has the key left * BASE + right. Symbols are smaller."""


def table(
    values: Mapping[Any, Any], key_type: Any, value_type: Any, default: Any
) -> tf.lookup.StaticHashTable:
    """Returns a table of `values`, with the `default` for other keys."""
    if not values:  # TensorFlow refuses an empty table
        values = {"" if key_type == tf.string else -1: default}
    keys = tf.constant(list(values), key_type)
    results = tf.constant(list(values.values()), value_type)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, results)
    return tf.lookup.StaticHashTable(initializer, default)


def joined(ids: Any, pieces: Any, separator: str = "") -> Any:
    """Returns the joined pieces of each row of ids, int32 [B, (S)], without ids that have no piece:
    strings [B].
    """
    ids = tf.ragged.boolean_mask(ids, ids < tf.size(pieces))
    texts = ids.with_flat_values(tf.gather(pieces, ids.flat_values))
    return tf.strings.reduce_join(texts, axis=1, separator=separator)


def is_same_row(rows: Any) -> Any:
    """Returns bool [S - 1] for the rows of S elements: True between neighbors in the same row."""
    return rows[1:] == rows[:-1]


def of_followers(flags: Any, first: bool, count: Any) -> Any:
    """Returns the flags of pairs of neighbors, bool [count - 1], as flags of the second neighbor,
    bool [count]. The first element gets `first`.
    """
    return tf.pad(flags, [[1, 0]], constant_values=first)[:count]


class _GraphBytePairs(tf.Module, abc.ABC):
    """A vocabulary that merges the symbols of words, all words of a batch at once.

    If `is_greedy`, a pair that a merge makes comes before other places of this merge, as in the
    library tokenizers. Only merges in an unusual order have such pairs.
    """

    def __init__(self, merges: Merges, is_greedy: bool) -> None:
        super().__init__()
        self._count = 1 + max((rank for rank, _ in merges.values()), default=0)
        ranks = {left * BASE + right: rank for (left, right), (rank, _) in merges.items()}
        self._ranks = table(ranks, tf.int64, tf.int32, self._count)
        results = [0] * (self._count + 1)
        is_single = [False] * (self._count + 1)
        earlier_symbols: set[int] = set()
        for pair, (rank, result) in sorted(merges.items(), key=lambda item: item[1]):
            results[rank] = result
            is_single[rank] = is_greedy and result in earlier_symbols
            earlier_symbols |= {*pair}
        self._results = tf.constant(results)
        self._is_single = tf.constant(is_single)

    def tokenize(self, texts: Any) -> Any:
        words = self._words(texts)
        words = tf.ragged.boolean_mask(words, words != "")
        distinct, numbers = tf.unique(words.flat_values)
        ids = tf.gather(self._ids(distinct), numbers)
        return words.with_flat_values(ids).merge_dims(1, 2)

    @abc.abstractmethod
    def _words(self, texts: Any) -> Any:
        """Returns the words of texts: strings [B, (words)]. A word may be empty."""

    @abc.abstractmethod
    def _ids(self, words: Any) -> Any:
        """Returns the ids of words, strings [N]: int32 [N, (pieces)]."""

    def _merged(self, words: Any) -> Any:
        """Returns the symbols of words, int32 [N, (symbols)], after all merges."""
        flat = words.flat_values
        any_size = tf.TensorShape([None])
        symbols, rows, _ = tf.while_loop(
            lambda symbols, rows, is_unfinished: is_unfinished,
            self._merge,
            (flat, words.value_rowids(), tf.size(flat) > 1),
            (any_size, any_size, tf.TensorShape([])),
        )
        return tf.RaggedTensor.from_value_rowids(symbols, rows, nrows=words.nrows(), validate=False)

    def _merge(self, symbols: Any, rows: Any, _: Any) -> tuple[Any, Any, Any]:
        """Merges, in each word, the pair of the lowest rank.

        Returns the symbols [S], their words' rows [S], and whether a pair was merged.
        """
        long_symbols = tf.cast(symbols, tf.int64)
        pairs = long_symbols[:-1] * BASE + long_symbols[1:]
        ranks = tf.where(is_same_row(rows), self._ranks.lookup(pairs), self._count)
        is_best = (ranks < self._count) & (ranks == _least(ranks, rows[:-1]))
        # Of overlapping pairs, as in "aaa", the first, third, ... are merged.
        is_start = is_best & ~tf.pad(is_best, [[1, 0]])[:-1]
        starts = tf.pad(tf.where(is_start)[:, 0], [[1, 0]])
        positions = tf.range(tf.size(ranks, tf.int64))
        offsets = positions - tf.gather(starts, tf.cumsum(tf.cast(is_start, tf.int32)))
        best_positions = tf.where(is_best, positions, tf.int64.max)
        is_first = positions == _least(best_positions, rows[:-1])
        may_repeat = ~tf.gather(self._is_single, ranks)
        is_merged = is_best & (offsets % 2 == 0) & (is_first | may_repeat)
        results = tf.gather(self._results, tf.pad(ranks, [[0, 1]]))
        symbols = tf.where(tf.pad(is_merged, [[0, 1]]), results, symbols)
        is_kept = ~tf.pad(is_merged, [[1, 0]])
        return (
            tf.boolean_mask(symbols, is_kept),
            tf.boolean_mask(rows, is_kept),
            tf.reduce_any(is_merged),
        )


def _least(values: Any, rows: Any) -> Any:
    """Returns the smallest value of the row of each value. Equal rows are neighbors."""
    return tf.gather(tf.math.segment_min(values, rows), rows)


class GraphBpeVocabulary(_GraphBytePairs):
    def __init__(self, vocabulary: BpeVocabulary) -> None:
        super().__init__(vocabulary.merges, is_greedy=False)
        self._has_final_symbol = vocabulary.has_final_symbol
        self._end = vocabulary.symbol_of[END]
        self._pieces = tf.constant(vocabulary.pieces(range(vocabulary.size)))
        self._symbol_of = table(
            vocabulary.symbol_of, tf.string, tf.int32, len(vocabulary.symbol_of)
        )
        self._inner_ids = tf.constant(vocabulary.inner_ids)
        self._last_ids = tf.constant(vocabulary.last_ids)

    def _words(self, texts: Any) -> Any:
        texts = tf.strings.regex_replace(texts, f"^[{LINE_ENDS}]+|[{LINE_ENDS}]+$", "")
        return tf.strings.split(texts, " ")

    def _ids(self, words: Any) -> Any:
        characters = tf.strings.unicode_split(words, "UTF-8")
        if self._has_final_symbol:
            ends = tf.fill([tf.size(words), 1], END)
            characters = tf.concat([characters, ends], axis=1)
        else:
            ends = tf.where(_is_last(characters), END, "")
            characters = characters.with_flat_values(characters.flat_values + ends)
        numbers = self._symbol_of.lookup(characters.flat_values)
        symbols = self._merged(characters.with_flat_values(numbers))
        is_kept = ~_is_last(symbols) | (symbols.flat_values != self._end)
        symbols = tf.ragged.boolean_mask(symbols, symbols.with_flat_values(is_kept))
        inner_ids = tf.gather(self._inner_ids, symbols.flat_values)
        last_ids = tf.gather(self._last_ids, symbols.flat_values)
        return symbols.with_flat_values(tf.where(_is_last(symbols), last_ids, inner_ids))

    def detokenize(self, ids: Any) -> Any:
        return tf.strings.regex_replace(joined(ids, self._pieces, " "), JOINT, "")


def _is_last(words: Any) -> Any:
    """Returns bool [S]: True for the last element of each row of [N, (S)]. No row may be empty."""
    rows = words.value_rowids()
    return tf.pad(~is_same_row(rows), [[0, 1]], constant_values=True)


class GraphTokenizerVocabulary(_GraphBytePairs):
    def __init__(self, vocabulary: TokenizerVocabulary) -> None:
        super().__init__(vocabulary.merges, is_greedy=True)
        pieces = vocabulary.pieces(range(vocabulary.size))
        _, before, after = vocabulary.kinds
        self._is_split = before == "Metaspace" and vocabulary.pre_tokenizer.get("split", True)
        self._is_byte_level = vocabulary.is_byte_level
        self._space = " " if self._is_byte_level else SPACE
        start = f"^([^{self._space}])" if has_prefix(vocabulary.pre_tokenizer) else ""
        self._start = "(?s)^(.)" if before == "none" else start
        """Regular expression for the beginning of a text before which a space is written."""
        special = vocabulary.special
        ids = {piece: number for number, piece in enumerate(pieces) if piece not in special}
        characters = {}
        if not self._is_byte_level:
            characters = {piece: number for piece, number in ids.items() if len(piece) == 1}
        self._character_ids = table(characters, tf.string, tf.int32, -1)
        self._byte_ids = tf.constant([ids[piece] for piece in vocabulary.byte_pieces])
        self._is_text = tf.constant([piece in ids for piece in pieces])
        bytes_of = {}
        if after != "Metaspace":
            bytes_of = {piece: bytes([byte]) for byte, piece in enumerate(vocabulary.byte_pieces)}
        if self._is_byte_level:
            self._is_byte = tf.constant([False] * len(pieces))
            texts = [_bytes_of_piece(piece, bytes_of) for piece in pieces]
        else:
            self._is_byte = tf.constant([piece in bytes_of for piece in pieces])
            texts = [bytes_of.get(piece, piece.replace(SPACE, " ").encode()) for piece in pieces]
        starts = texts
        if after == "Llama's":
            starts = [text.removeprefix(b" ") for text in texts]
        elif after == "Metaspace" and has_prefix(vocabulary.decoder):
            starts = [text.replace(b" ", b"") for text in texts]
        self._texts = tf.constant(texts)
        self._starts = tf.constant(starts)

    def _words(self, texts: Any) -> Any:
        texts = tf.strings.regex_replace(texts, " ", self._space)
        if self._start:
            texts = tf.strings.regex_replace(texts, self._start, rf"{self._space}\1")
        if self._is_byte_level:
            return _gpt2_words(texts)
        if self._is_split:
            texts = tf.strings.regex_replace(texts, SPACE, f" {SPACE}")
        return tf.strings.split(texts, " ")

    def _ids(self, words: Any) -> Any:
        characters = tf.strings.unicode_split(words, "UTF-8")
        ids = self._character_ids.lookup(characters.flat_values)
        has_id = ids >= 0
        # In ISO-8859-1, the code of a character is its byte.
        others = tf.where(has_id, "", characters.flat_values)
        codes = tf.strings.unicode_decode(others, "ISO-8859-1")
        byte_ids = codes.with_flat_values(tf.gather(self._byte_ids, codes.flat_values))
        counts = tf.cast(has_id, tf.int64)  # a character has one id or none
        known = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(ids, has_id), counts)
        symbols = characters.with_flat_values(tf.concat([known, byte_ids], axis=1))
        return self._merged(symbols.merge_dims(1, 2))

    def detokenize(self, ids: Any) -> Any:
        ids = tf.ragged.boolean_mask(ids, ids < tf.size(self._texts))
        is_text = tf.gather(self._is_text, ids.flat_values)
        ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(is_text))
        flat = ids.flat_values
        rows = ids.value_rowids()
        is_start = of_followers(~is_same_row(rows), True, tf.size(flat))
        texts = tf.gather(self._texts, flat)
        texts = tf.where(is_start, tf.gather(self._starts, flat), texts)
        # In a run of bytes that is not UTF-8, each byte becomes U+FFFD.
        is_byte = tf.gather(self._is_byte, flat)
        is_inner = ~is_start & is_byte & tf.pad(is_byte, [[1, 0]])[:-1]
        runs = tf.cumsum(tf.cast(~is_inner, tf.int32)) - 1
        run_texts = tf.strings.unsorted_segment_join(texts, runs, tf.size(flat))
        is_broken = tf.gather(graph_utf8(run_texts) != run_texts, runs)
        texts = tf.where(is_byte & is_broken, "\ufffd", texts)
        return graph_utf8(tf.strings.reduce_join(ids.with_flat_values(texts), axis=1))


def _bytes_of_piece(piece: str, bytes_of: Mapping[str, bytes]) -> bytes:
    """Returns the bytes for which the characters of a piece stand, or the piece in UTF-8 if one of
    them stands for no byte.
    """
    if bytes_of.keys() >= {*piece}:
        return b"".join(bytes_of[character] for character in piece)
    return piece.encode()


def _gpt2_words(texts: Any) -> Any:
    """Returns the words of texts, strings [B], as GPT-2's regular expression cuts them: strings [B,
    (words)].

    RE2 has no look-ahead, and its letters are those of another version of Unicode. So `GPT2_WORDS`
    is applied to texts that have "a" for a letter, "1" for a number and "!" for other characters,
    except those of `CONTRACTIONS`. White space is "\\t" before white space and at the end.
    Otherwise a space remains a space, and other white space is "\\n".
    """
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    flat = codes.flat_values
    rows = codes.value_rowids()
    is_letter, is_number, is_space = (
        tf.searchsorted(tf.constant(changes), flat, side="right") % 2 == 1
        for changes in _class_changes()
    )
    is_before_word = is_same_row(rows) & ~is_space[1:]
    is_last = tf.pad(is_before_word, [[0, 1]])[: tf.size(flat)]
    spaces = tf.where(is_last, tf.where(flat == ord(" "), " ", "\n"), "\t")
    visible = tf.where(is_letter, "a", tf.where(is_number, "1", "!"))
    classes = tf.where(is_space, spaces, visible)
    kept_codes = tf.constant([ord(char) for char in CONTRACTIONS.replace("|", "")])
    is_kept = tf.reduce_any(flat[:, None] == kept_codes, axis=1)
    classes = tf.where(is_kept, tf.strings.unicode_encode(flat[:, None], "UTF-8"), classes)
    classes = tf.strings.reduce_join(codes.with_flat_values(classes), axis=1)
    words = tf.strings.split(tf.strings.regex_replace(classes, GPT2_WORDS, r"\1,"), ",")
    characters = tf.RaggedTensor.from_row_lengths(flat, tf.strings.length(words.flat_values))
    return words.with_flat_values(tf.strings.unicode_encode(characters, "UTF-8"))


@functools.cache
def _class_changes() -> list[list[int]]:
    """Returns the codes at which characters begin or end to be letters, numbers and white space for
    tokenizers.
    """
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    # All characters that may be in a class, without surrogates.
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x40000))))
    changes = []
    for pattern in (r"\p{L}+", r"\p{N}+", r"\s+"):
        others = Split(Regex(pattern), "removed").pre_tokenize_str(text)
        bounds = [bound for _, span in others for bound in span][1:-1]
        changes.append([bound if bound < 0xD800 else bound + 0x800 for bound in bounds])
    return changes
