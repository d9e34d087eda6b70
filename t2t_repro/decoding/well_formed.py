"""The decode hparam `well_formed`: rules with which a parser can only write trees over the words of its input.

At each position, the rules allow only the tokens after which the output can still become such a tree within its length
limit. All other tokens get the logit -inf. A tree is a sequence of brackets and symbols of words, such as
(S (NP DT NN )NP (VP VBZ )VP . )S, and the end token. A bracket with its label is one token. A symbol is one or more
tokens, its pieces. With --word_symbol=word, the symbol of a word is the word itself.

Shapes: R sentences, K hypotheses per sentence, t positions decoded so far, V vocabulary, W words of the longest
sentence (or pieces of its words), L labels, P different pieces of symbols, N nodes of the trie of all symbols.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabularies.sentencepiece import SPACE, SentencePieceVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import padded
from t2t_repro.decoding.rules import OutputRules
from t2t_repro.errors import UserError
from t2t_repro.parsing.linearization import (
    NO_WORD,
    WORD,
    WORD_KINDS,
    TreeSymbols,
    fits,
    graph_kinds_of,
    graph_words_of,
    kinds_of,
    words_of,
)
from t2t_repro.parsing.trees import PUNCTUATION

MAX_OPENINGS = 8
"""Maximum number of opening brackets in a row. Without this limit, a model that has lost count of the words may write
(NP (NP (NP (NP ... until only the length limit stops it."""
IMPOSSIBLE = 1 << 20
"""Number of missing pieces if no pieces can complete a symbol that fits the word."""


def tree_rules(vocabulary: Vocabulary, symbols: TreeSymbols | None) -> TreeRules:
    """Returns the rules of trees with these symbols; None is for models whose outputs are not trees.

    Raises UserError for None, if the vocabulary is of another kind than SentencePiece or splits a bracket, or if no
    symbol of a single piece fits a kind of word.
    """
    if not symbols:
        raise UserError("well_formed=true is only for parsers, but the outputs of this model are not trees; omit it")
    if not isinstance(vocabulary, SentencePieceVocabulary):
        raise UserError(f"well_formed=true needs a SentencePiece vocabulary, not one of {vocabulary.kind}; omit it")
    return SymbolRules(vocabulary, symbols) if symbols.words else WordRules(vocabulary, symbols)


class TreeRules(OutputRules, ABC):
    """The rules of trees. The facts about a source are its words. Subclasses have the rules for the symbols of words.

    Args:
        vocabulary: the parser's vocabulary.
        symbols: the labels and the symbols of words that trees may contain.
        pieces: ids of the pieces of symbols, on which `_next_word` decides.

    Raises:
        UserError: if the vocabulary splits a bracket.
    """

    min_extra = 3
    """The tokens of the shortest tree that are not symbols of words: the root's two brackets and the end token."""

    def __init__(self, vocabulary: Vocabulary, symbols: TreeSymbols, pieces: Sequence[int] = ()) -> None:
        opening, closing = (_encode(vocabulary, [bracket + label for label in symbols.labels]) for bracket in "()")
        if any(len(ids) > 1 for ids in (*opening, *closing)):
            raise small_vocabulary()
        self._vocabulary = vocabulary
        tokens = ([ids[0] for ids in opening], [ids[0] for ids in closing], pieces)
        # The number of each opening bracket, closing bracket or piece of a symbol, from 1; 0 for other tokens: [V]
        self._opening, self._closing, self._pieces = (_numbers(vocabulary.size, part) for part in tokens)
        # The column of each token in the result of `_allowed`: [V]
        self._columns = _numbers(vocabulary.size, [EOS_ID, *tokens[0], *tokens[1], *tokens[2]])
        self._labels = np.arange(1, len(opening) + 1, dtype=np.int32)  # [L]

    def mask(self, logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the logits [R, K, V], with -inf for the tokens that the rules forbid; see `OutputRules.mask`."""
        room = (memory["limits"] - t - 1)[:, None, None]
        # One row for each token, because TensorFlow gathers rows faster than columns: [R, K, 2 + 2L + P] --> [V, R, K]
        allowed = tf.where(self._allowed(ids, memory["facts"], room), 0.0, float("-inf"))
        mask = tf.gather(tf.transpose(allowed, [2, 0, 1]), self._columns)
        return logits + tf.transpose(mask, [1, 2, 0])

    def _allowed(self, ids: tf.Tensor, words: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
        """Returns which tokens may follow, bool [R, K, 2 + 2L + P].

        The columns are: tokens of no tree, the end token, opening brackets, closing brackets, pieces of symbols.

        Args:
            ids: as in `OutputRules.mask`.
            words: the facts about the sources and a 0, int32 [R, W + 1].
            room: int32 [R, 1, 1], the maximum number of tokens after the token that may follow.
        """
        depth, innermost, openings = self._brackets(ids)
        left, is_complete, can_write = self._next_word(ids, words, depth, room)
        # Each rule with `room` counts the tokens that the shortest tree would still need: those of the words without a
        # symbol, a closing bracket for each open constituent, and the end token.
        can_open = is_complete & (left > 0) & (openings < MAX_OPENINGS) & (left + (depth + 1) + 1 <= room)
        can_close = is_complete & (openings == 0) & ((depth > 1) | (left == 0)) & (innermost == self._labels)
        can_end = (depth == 0) & (left == 0)
        never = tf.zeros_like(can_end)
        return tf.concat([never, can_end, tf.repeat(can_open, len(self._labels), 2), can_close, can_write], axis=2)

    def _brackets(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the state of the brackets of hypotheses with the tokens `ids`, int32 [R, K, t].

        Returns:
            Three tensors, int32 [R, K, 1]: the number of open constituents; the number of the innermost one's label,
            from 1, or 0 if none is open; and the number of opening brackets after the last other token. If the last
            number is not 0, the innermost open constituent has no words.
        """
        ids = tf.pad(ids, [[0, 0], [0, 0], [1, 0]])  # Then the code below has a position to look at, even if t = 0.
        opening, closing = (tf.gather(table, ids) for table in (self._opening, self._closing))
        depths = tf.cumsum(tf.sign(opening) - tf.sign(closing), axis=2)
        depth = depths[:, :, -1:]
        # The innermost open constituent begins at the last opening bracket after which the depth is the present depth.
        positions = tf.range(tf.shape(ids)[2])
        innermost = tf.reduce_max(tf.where((opening > 0) & (depths == depth), positions, 0), axis=2, keepdims=True)
        last_other = tf.reduce_max(tf.where(opening == 0, positions, 0), axis=2, keepdims=True)
        return depth, tf.gather(opening, innermost, batch_dims=2), positions[-1] - last_other

    @abstractmethod
    def _next_word(
        self, ids: tf.Tensor, words: tf.Tensor, depth: tf.Tensor, room: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns how the words of the sentence continue a hypothesis.

        Args:
            depth: int32 [R, K, 1], number of open constituents.

        Returns:
            The number of tokens that the words which are left need at least, int32 [R, K, 1]; whether the symbol of the
            last word is complete, bool [R, K, 1]; which pieces of symbols may follow, bool [R, K, P].
        """


class WordRules(TreeRules):
    """The rules of trees in which the symbol of a word is the word itself.

    The next word is given. So its tokens compete as one token with the brackets: the logit of the next token of a word
    becomes the logarithm of the sum of exp(logit) over all tokens of words. Otherwise, the search would open
    constituents in front of a rare word, only to avoid its low probability.
    """

    def __init__(self, vocabulary: Vocabulary, symbols: TreeSymbols) -> None:
        super().__init__(vocabulary, symbols)
        texts = vocabulary.pieces(range(vocabulary.size))
        # True for tokens with which a word begins, and for 0, which follows the last word: [V]
        self._is_start = np.array([number == 0 or text.startswith(SPACE) for number, text in enumerate(texts)])

    def facts(self, lines: Sequence[str]) -> np.ndarray:
        """Returns the ids of the words of each line, without an end token: int32 [B, W], padded with 0."""
        return padded([ids[:-1] for ids in self._vocabulary.encode([" ".join(words_of(line)) for line in lines])])

    def graph_facts(self, lines: Any, tokenizer: Any) -> Any:
        """Applies `facts` to a tensor of strings [B]. `tokenizer` is the vocabulary as TensorFlow operations."""
        return tokenizer.tokenize(graph_words_of(lines)).to_tensor(PAD_ID)

    def mask(self, logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the logits [R, K, V] as described above, with -inf for the tokens that the rules forbid."""
        masked = super().mask(logits, ids, t, memory)
        left, token = self._left(ids, memory["facts"])
        can_write = (left > 0) & (t > 0)  # The first token opens the root. Then there is always room for all words.
        any_word = tf.reduce_logsumexp(tf.where(self._columns == 0, logits, float("-inf")), axis=2, keepdims=True)
        return tf.where((tf.range(tf.shape(logits)[2]) == token) & can_write, any_word, masked)

    def _left(self, ids: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the number of the words' tokens that are left, and the next of them (0 if none): int32 [R, K, 1]."""
        is_word = tf.gather(self._columns, ids) == 0
        written = tf.math.count_nonzero(is_word, axis=2, keepdims=True, dtype=tf.int32)
        left = tf.math.count_nonzero(words, axis=1, dtype=tf.int32)[:, None, None] - written
        return left, tf.gather(words, tf.minimum(written, tf.shape(words)[1] - 1), batch_dims=1)

    def _next_word(
        self, ids: tf.Tensor, words: tf.Tensor, depth: tf.Tensor, room: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        left, token = self._left(ids, words)
        return left, tf.gather(self._is_start, token), tf.zeros([*tf.unstack(tf.shape(left)[:2]), 0], tf.bool)


class SymbolRules(TreeRules):
    """The rules of trees in which a symbol, such as its part of speech, stands for a word."""

    def __init__(self, vocabulary: Vocabulary, symbols: TreeSymbols) -> None:
        self._trie = SymbolTrie(vocabulary, symbols.words)
        if (self._trie.shortest == IMPOSSIBLE).any():
            raise UserError(
                "well_formed=true needs a problem whose words have symbols that EVALB counts and symbols that it "
                f"ignores ({' '.join(PUNCTUATION)}); omit it, or train a parser with --word_symbol={WORD}"
            )
        if (self._trie.shortest > 1).any():
            raise small_vocabulary()
        super().__init__(vocabulary, symbols, self._trie.pieces)

    def facts(self, lines: Sequence[str]) -> np.ndarray:
        """Returns the kind of each word of each line: int32 [B, W], padded with `NO_WORD`."""
        return padded([kinds_of(line) for line in lines])

    def graph_facts(self, lines: Any, tokenizer: Any) -> Any:
        """Applies `facts` to a tensor of strings [B]."""
        return graph_kinds_of(lines)

    def _next_word(
        self, ids: tf.Tensor, words: tf.Tensor, depth: tf.Tensor, room: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        trie = self._trie
        # Padding in front of the tokens lets the code below look back from every position, even if t = 0.
        pieces = tf.gather(self._pieces, tf.pad(ids, [[0, 0], [0, 0], [trie.longest, 0]]))
        # The node of the trie for the pieces of the last symbol; 0 if the last token is not a piece of a symbol: [R, K]
        node = tf.zeros_like(pieces[:, :, 0])
        for offset in range(trie.longest, 0, -1):
            node = tf.gather_nd(trie.next, tf.stack([node, pieces[:, :, -offset]], axis=2))
        # The number of symbols, counting an incomplete symbol at the end, and of words without a symbol: [R, K, 1]
        count = tf.math.count_nonzero(tf.gather(trie.is_start, pieces), axis=2, keepdims=True, dtype=tf.int32)
        left = tf.math.count_nonzero(words, axis=1, dtype=tf.int32)[:, None, None] - count

        def missing(word: tf.Tensor, node: tf.Tensor) -> tf.Tensor:
            """Returns how many pieces a symbol lacks, given the index of its word and its node in the trie."""
            word = tf.clip_by_value(word, 0, tf.shape(words)[1] - 1)
            return tf.gather_nd(trie.missing, tf.stack([tf.gather(words, word, batch_dims=1), node], axis=3))

        is_complete = (node[:, :, None] == 0) | (missing(count - 1, node[:, :, None]) == 0)
        # A piece continues the symbol of the last word or, if it is a start, begins the symbol of the next word: [P]
        starts = trie.is_start[1:].astype(np.int32)
        lacks = missing(count - 1 + starts, tf.gather(trie.next[:, 1:], node))  # [R, K, P]
        # The shortest tree would need the pieces that the symbol lacks, one token for each word without a symbol, a
        # closing bracket for each open constituent, and the end token.
        has_room = lacks + (left - starts) + depth + 1 <= room
        return left, is_complete, (depth > 0) & (is_complete | (starts == 0)) & has_room


def small_vocabulary() -> UserError:
    """Returns the error for a vocabulary with which the rules cannot write every tree."""
    return UserError(
        "well_formed=true needs a vocabulary with a piece for each bracket and for a symbol of each kind of word; omit "
        "it, or train a parser with a larger --vocab_size"
    )


class SymbolTrie:
    """The pieces of all symbols of words. A node stands for the first pieces of a symbol, and node 0 for no pieces.

    Attributes:
        pieces: the ids of all pieces. Piece number i, from 1, is `pieces[i - 1]`; number 0 stands for other tokens.
        longest: number of pieces of the longest symbol.
        is_start: bool [P + 1], true for pieces with which a symbol begins, false for pieces that continue a symbol.
        next: int32 [N, P + 1], the node that follows a node and a piece; 0 if no symbol continues with this piece.
        missing: int32 [kinds of words, N], the smallest number of pieces that complete a symbol which fits the word;
            `IMPOSSIBLE` for node 0.
        shortest: int32 [kinds of words - 1], the length of the shortest symbol for each kind of word.
    """

    def __init__(self, vocabulary: Vocabulary, symbols: Sequence[str]) -> None:
        encoded = _encode(vocabulary, symbols)
        prefixes = sorted({ids[:length] for ids in encoded for length in range(len(ids) + 1)})
        nodes = {prefix: node for node, prefix in enumerate(prefixes)}
        self.pieces = sorted({piece for ids in encoded for piece in ids})
        self.longest = max(map(len, encoded))
        self.is_start = np.array([False, *(text.startswith(SPACE) for text in vocabulary.pieces(self.pieces))])
        self.next = np.zeros((len(nodes), len(self.pieces) + 1), np.int32)
        for prefix, node in nodes.items():
            if prefix:
                self.next[nodes[prefix[:-1]], 1 + self.pieces.index(prefix[-1])] = node
        self.next[:, self.is_start] = self.next[0, self.is_start]  # after any symbol, another symbol may begin
        self.missing = np.full((len(WORD_KINDS), len(nodes)), IMPOSSIBLE, np.int32)
        for symbol, ids in zip(symbols, encoded, strict=True):
            for kind in WORD_KINDS:
                for length in range(len(ids) + 1) if kind != NO_WORD and fits(symbol, kind) else ():
                    cell = kind, nodes[ids[:length]]
                    self.missing[cell] = min(self.missing[cell], len(ids) - length)
        self.shortest = self.missing[NO_WORD + 1 :, 0].copy()
        self.missing[:, 0] = IMPOSSIBLE


def _encode(vocabulary: Vocabulary, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Returns the ids of each text, without end tokens."""
    return [tuple(ids[:-1]) for ids in vocabulary.encode(texts)]


def _numbers(size: int, tokens: Sequence[int]) -> np.ndarray:
    """Returns a table, int32 [size]: for each of the `tokens` its place in the list, from 1; 0 for other tokens."""
    table = np.zeros(size, np.int32)
    table[list(tokens)] = np.arange(1, len(tokens) + 1)
    return table
