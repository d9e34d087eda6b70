"""Byte-pair encoding as TensorFlow operations, and subword-nmt's vocabularies.

In shapes, B is the number of texts, N the number of words of all texts together, S the number of symbols of all words.
Dimensions in parentheses have another size in each row (they are ragged).
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from t2t_repro.data.vocabularies.bpe import END, JOINT, LINE_ENDS, BpeVocabulary, Merges


def table(values: Mapping[Any, Any], key_type: Any, value_type: Any, default: Any) -> tf.lookup.StaticHashTable:
    """Returns a table of `values`, with the `default` for other keys."""
    keys = tf.constant(list(values), key_type)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, tf.constant(list(values.values()), value_type))
    return tf.lookup.StaticHashTable(initializer, default)


class GraphMerges(tf.Module):
    """`Merges` as TensorFlow operations: all words of a batch at once."""

    def __init__(self, merges: Merges) -> None:
        super().__init__()
        self._count = len(merges.merges)
        self._base = 1 + max(symbol for merge in merges.merges for symbol in merge)
        ranks = {left * self._base + right: rank for rank, (left, right, _) in enumerate(merges.merges)}
        self._ranks = table(ranks, tf.int64, tf.int32, self._count)
        self._results = tf.constant([result for _, _, result in merges.merges] + [0], tf.int32)

    def apply(self, words: Any) -> Any:
        """Returns the symbols of words after all merges: int32 [N, (symbols)]."""
        symbols, rows, _ = tf.while_loop(
            lambda symbols, rows, is_unfinished: is_unfinished,
            self._merge,
            (words.flat_values, words.value_rowids(), tf.size(words.flat_values) > 1),
            (tf.TensorShape([None]), tf.TensorShape([None]), tf.TensorShape([])),
        )
        return tf.RaggedTensor.from_value_rowids(symbols, rows, nrows=words.nrows(), validate=False)

    def _merge(self, symbols: Any, rows: Any, _: Any) -> tuple[Any, Any, Any]:
        """Merges, in each word, the pair of the lowest rank.

        Returns the symbols [S], their words' rows [S], and whether a pair was merged.
        """
        pairs = tf.cast(symbols[:-1], tf.int64) * self._base + tf.cast(symbols[1:], tf.int64)
        is_known = (rows[1:] == rows[:-1]) & (symbols[:-1] < self._base) & (symbols[1:] < self._base)
        ranks = tf.where(is_known, self._ranks.lookup(pairs), self._count)
        best = tf.gather(tf.math.segment_min(ranks, rows[:-1]), rows[:-1])
        is_best = (ranks == best) & (ranks < self._count)
        # Of overlapping pairs, as in "aaa", the first, third, ... are merged.
        is_start = is_best & ~tf.pad(is_best, [[1, 0]])[:-1]
        starts = tf.pad(tf.where(is_start)[:, 0], [[1, 0]])
        offsets = tf.range(tf.size(ranks, tf.int64)) - tf.gather(starts, tf.cumsum(tf.cast(is_start, tf.int32)))
        is_merged = is_best & (offsets % 2 == 0)
        results = tf.gather(self._results, tf.pad(ranks, [[0, 1]]))
        symbols = tf.where(tf.pad(is_merged, [[0, 1]]), results, symbols)
        is_kept = ~tf.pad(is_merged, [[1, 0]])
        return tf.boolean_mask(symbols, is_kept), tf.boolean_mask(rows, is_kept), tf.reduce_any(is_merged)


class GraphBpeVocabulary(tf.Module):
    """`BpeVocabulary` as TensorFlow operations."""

    def __init__(self, vocabulary: BpeVocabulary) -> None:
        super().__init__()
        self._size, self._has_final_symbol = vocabulary.size, vocabulary.has_final_symbol
        self._pieces = tf.constant(vocabulary.pieces(range(vocabulary.size)))
        self._symbol_of = table(vocabulary.symbol_of, tf.string, tf.int32, len(vocabulary.symbol_of))
        self._end = vocabulary.symbol_of[END]
        self._inner_ids, self._last_ids = tf.constant(vocabulary.inner_ids), tf.constant(vocabulary.last_ids)
        self._merges = GraphMerges(vocabulary.merges)

    def tokenize(self, texts: Any) -> Any:
        texts = tf.strings.regex_replace(texts, f"^[{LINE_ENDS}]+|[{LINE_ENDS}]+$", "")
        words = tf.strings.split(texts, " ")
        words = tf.ragged.boolean_mask(words, words != "")
        distinct, numbers = tf.unique(words.flat_values)
        ids = tf.gather(self._ids(distinct), numbers)
        return words.with_flat_values(ids).merge_dims(1, 2)

    def _ids(self, words: Any) -> Any:
        """Returns the ids of words, strings [N]: int32 [N, (pieces)]."""
        characters = tf.strings.unicode_split(words, "UTF-8")
        if self._has_final_symbol:
            characters = tf.concat([characters, tf.fill([tf.size(words), 1], END)], axis=1)
        else:
            characters = characters.with_flat_values(characters.flat_values + tf.where(_is_last(characters), END, ""))
        symbols = self._merges.apply(characters.with_flat_values(self._symbol_of.lookup(characters.flat_values)))
        is_kept = ~_is_last(symbols) | (symbols.flat_values != self._end)
        symbols = tf.ragged.boolean_mask(symbols, symbols.with_flat_values(is_kept))
        flat = symbols.flat_values
        ids = tf.where(_is_last(symbols), tf.gather(self._last_ids, flat), tf.gather(self._inner_ids, flat))
        return symbols.with_flat_values(ids)

    def detokenize(self, ids: Any) -> Any:
        ids = tf.ragged.boolean_mask(ids, ids < self._size)
        pieces = ids.with_flat_values(tf.gather(self._pieces, ids.flat_values))
        return tf.strings.regex_replace(tf.strings.reduce_join(pieces, axis=1, separator=" "), JOINT, "")


def _is_last(words: Any) -> Any:
    """Returns bool [S]: True for the last element of each row of [N, (S)]. No row may be empty."""
    rows = words.value_rowids()
    return tf.pad(rows[1:] != rows[:-1], [[0, 1]], constant_values=True)
