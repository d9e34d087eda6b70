"""The decode hparam `well_formed`: rules with which a parser can only write trees over the words of
its input.

At each position, the rules allow only the tokens after which the output can still become such a
tree within its length limit. All other tokens get the logit -inf. A tree is a sequence of brackets
and symbols of words, such as (S (NP DT NN )NP (VP VBZ )VP . )S, and the end token. A bracket with
its label is one token, and so is the symbol of a word. With --word_symbol=word, the symbol is the
word itself, which may have several tokens.

Shapes: B or R sentences, K hypotheses per sentence, t positions decoded so far, V vocabulary, W
words of the longest sentence (or tokens of its words), F different facts, L labels, P symbols.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID, SPACE
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import padded
from t2t_repro.decoding.rules import Rules
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
"""Maximum number of opening brackets in a row. Without this limit, a model that has lost count of
the words may write (NP (NP (NP (NP ... until only the length limit stops it.
"""


def tree_rules(vocabulary: Vocabulary, symbols: TreeSymbols) -> TreeRules:
    """Returns the rules of trees with these symbols.

    Raises UserError if the vocabulary cannot write every tree.
    """
    if not isinstance(vocabulary, SentencePieceVocabulary):
        raise UserError(
            f"well_formed=true needs a SentencePiece vocabulary, not one of {vocabulary.kind}; "
            "omit it"
        )
    return SymbolRules(vocabulary, symbols) if symbols.words else WordRules(vocabulary, symbols)


class TreeRules(Rules):
    """The rules of trees. The facts about a source are one
    number for each symbol of a word that a tree needs.

    Args:
        vocabulary: the parser's vocabulary.
        labels: the labels of constituents.
        symbols: tokens of the P symbols of words, in the order of the columns of `fits`.
        begins: bool [F], true for facts about the beginning of a word, and for 0, which follows the
            last word.
        fits: bool [F, P], true if a symbol fits a fact.

    Raises UserError if the vocabulary splits a bracket.
    """

    min_extra = 3
    """The tokens of the shortest tree that are not symbols of words: the root's two brackets and
    the end token.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        symbols: Sequence[int],
        begins: np.ndarray,
        fits: np.ndarray,
    ) -> None:
        opening = single_tokens(vocabulary, [f"({label}" for label in labels])
        closing = single_tokens(vocabulary, [f"){label}" for label in labels])
        if PAD_ID in opening + closing:
            raise unsuited_vocabulary()
        # The number of each opening bracket and each closing bracket, from 1; 0 for other tokens:
        # [V]
        self._opening = _numbers(vocabulary.size, opening)
        self._closing = _numbers(vocabulary.size, closing)
        # The column of each token in the result of `_allowed`: [V]
        self._columns = _numbers(vocabulary.size, [EOS_ID, *opening, *closing, *symbols])
        # Without a list of symbols, all other tokens are tokens of words: [V]
        self._is_symbol = self._columns > 1 + 2 * len(labels) if symbols else self._columns == 0
        self._labels = np.arange(1, len(labels) + 1, dtype=np.int32)  # [L]
        self._vocabulary = vocabulary
        self._begins = begins
        self._fits = fits

    def mask(
        self, logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the logits [R, K, V], with -inf for the tokens that the rules forbid.

        Args:
            ids: int32 [R, K, t], the tokens of the hypotheses.
            memory: "facts", int32 [R, W + 1], the result of `facts` and a 0. "limits", int32 [R],
                the maximum length of each sentence's output, counting the end token.
        """
        room = (memory["limits"] - t - 1)[:, None, None]
        allowed = tf.where(self._allowed(ids, memory["facts"], room), 0.0, float("-inf"))
        # One row for each token, because TensorFlow gathers rows faster than columns: [R, K, 2 + 2L
        # + P] --> [V, R, K]
        mask = tf.gather(tf.transpose(allowed, [2, 0, 1]), self._columns)
        return logits + tf.transpose(mask, [1, 2, 0])

    def _allowed(self, ids: tf.Tensor, facts: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
        """Returns which tokens may follow, bool [R, K, 2 + 2L + P].

        The columns are: tokens of no tree, the end token, opening brackets, closing brackets,
        symbols of words.

        Args:
            ids: int32 [R, K, t], the tokens of the hypotheses.
            facts: int32 [R, W + 1], the facts about each source, and a 0.
            room: int32 [R, 1, 1], the maximum number of tokens after the token that may follow.
        """
        depth, innermost, openings = self._brackets(ids)
        left, fact = self._next_symbol(ids, facts)
        begins = tf.gather(self._begins, fact)
        # The shortest tree still needs the symbols that are left, a closing bracket for each open
        # constituent, and the end token. After the root is open, there is always room for them.
        has_room = left + (depth + 1) + 1 <= room
        can_open = begins & (left > 0) & (openings < MAX_OPENINGS) & has_room
        may_close = begins & (openings == 0) & ((depth > 1) | (left == 0))
        can_close = may_close & (innermost == self._labels)
        can_end = (depth == 0) & (left == 0)
        can_write = (depth > 0) & (left > 0) & tf.gather(self._fits, fact[:, :, 0])
        never = tf.zeros_like(can_end)
        can_open = tf.repeat(can_open, len(self._labels), axis=2)
        return tf.concat([never, can_end, can_open, can_close, can_write], axis=2)

    def _next_symbol(self, ids: tf.Tensor, facts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns how many symbols are left, and the fact about the next of them (0 if none): int32
        [R, K, 1].
        """
        is_symbol = tf.gather(self._is_symbol, ids)
        written = tf.math.count_nonzero(is_symbol, axis=2, keepdims=True, dtype=tf.int32)
        left = tf.math.count_nonzero(facts, axis=1, dtype=tf.int32)[:, None, None] - written
        return left, tf.gather(facts, tf.minimum(written, tf.shape(facts)[1] - 1), batch_dims=1)

    def _brackets(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the state of the brackets of hypotheses with the tokens `ids`, int32 [R, K, t].

        Returns:
            Three tensors, int32 [R, K, 1]: the number of open constituents; the number of the
            innermost one's label, from 1, or 0 if none is open; and the number of opening brackets
            after the last other token. If the last number is not 0, the innermost open constituent
            has no words.
        """
        # With padding, the code below has a position to look at, even if t = 0.
        ids = tf.pad(ids, [[0, 0], [0, 0], [1, 0]])
        opening = tf.gather(self._opening, ids)
        closing = tf.gather(self._closing, ids)
        depths = tf.cumsum(tf.sign(opening) - tf.sign(closing), axis=2)
        depth = depths[:, :, -1:]
        # The innermost open constituent begins at the last opening bracket after which the depth is
        # the present depth.
        innermost = _last_position((opening > 0) & (depths == depth))
        last_other = _last_position(opening == 0)
        return (
            depth,
            tf.gather(opening, innermost, batch_dims=2),
            tf.shape(ids)[2] - 1 - last_other,
        )


class WordRules(TreeRules):
    """The rules of trees in which the symbol of a word is the word itself. The facts are the tokens
    of the words.

    The next word is given. So its tokens compete as one token with the brackets: the logit of the
    next token of a word becomes the logarithm of the sum of exp(logit) over all tokens of words.
    Otherwise, the search would open constituents in front of a rare word, only to avoid its low
    probability.
    """

    def __init__(self, vocabulary: Vocabulary, symbols: TreeSymbols) -> None:
        pieces = vocabulary.pieces(range(vocabulary.size))
        begins = np.array([piece.startswith(SPACE) for piece in pieces])
        begins[PAD_ID] = True
        no_symbols = np.zeros([vocabulary.size, 0], bool)
        super().__init__(vocabulary, symbols.labels, [], begins, no_symbols)

    def facts(self, lines: Sequence[str]) -> np.ndarray:
        """Returns the ids of the words of each line, without an end token: int32 [B, W], padded
        with 0.
        """
        rows = self._vocabulary.encode([" ".join(words_of(line)) for line in lines])
        return padded([row[:-1] for row in rows])

    def graph_facts(self, lines: Any, tokenizer: Any) -> Any:
        return tokenizer.tokenize(graph_words_of(lines)).to_tensor(PAD_ID)

    def mask(
        self, logits: tf.Tensor, ids: tf.Tensor, t: tf.Tensor, memory: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the logits [R, K, V] as described above, with -inf for the tokens that the rules
        forbid.
        """
        left, token = self._next_symbol(ids, memory["facts"])
        can_write = (left > 0) & (t > 0)  # the first token opens the root
        words = tf.where(self._is_symbol, logits, float("-inf"))
        any_word = tf.reduce_logsumexp(words, axis=2, keepdims=True)
        is_next = tf.range(tf.shape(logits)[2]) == token
        return tf.where(is_next & can_write, any_word, super().mask(logits, ids, t, memory))


class SymbolRules(TreeRules):
    """The rules of trees in which a symbol, such as its part of speech, stands for a word.

    The facts are the kinds of the words. A symbol that the vocabulary splits is in no tree.
    """

    def __init__(self, vocabulary: Vocabulary, symbols: TreeSymbols) -> None:
        tokens = dict(zip(symbols.words, single_tokens(vocabulary, symbols.words), strict=True))
        tokens = {symbol: token for symbol, token in tokens.items() if token != PAD_ID}
        shape = (len(WORD_KINDS), len(tokens))
        places = itertools.product(WORD_KINDS, tokens)
        fitting = np.array([fits(symbol, kind) for kind, symbol in places], bool).reshape(shape)
        fitting[NO_WORD] = False
        if not fitting[NO_WORD + 1 :].any(axis=1).all():
            raise unsuited_vocabulary()
        begins = np.ones(len(WORD_KINDS), bool)
        super().__init__(vocabulary, symbols.labels, list(tokens.values()), begins, fitting)

    def facts(self, lines: Sequence[str]) -> np.ndarray:
        """Returns the kind of each word of each line: int32 [B, W], padded with `NO_WORD`."""
        return padded([kinds_of(line) for line in lines])

    def graph_facts(self, lines: Any, tokenizer: Any) -> Any:
        return graph_kinds_of(lines)


def unsuited_vocabulary() -> UserError:
    """Returns the error for a vocabulary with which the rules cannot write every tree."""
    return UserError(
        "well_formed=true needs a vocabulary with a piece for each bracket, for a symbol of words "
        f"that EVALB counts, and for one that it ignores ({' '.join(PUNCTUATION)}); omit it, or "
        f"train a parser with a larger --vocab_size or --word_symbol={WORD}"
    )


def single_tokens(vocabulary: Vocabulary, texts: Sequence[str]) -> list[int]:
    """Returns the token of each text; `PAD_ID` for a text of several tokens."""
    rows = vocabulary.encode(texts)  # each row has an end token
    return [row[0] if len(row) == 2 else PAD_ID for row in rows]


def _last_position(is_there: tf.Tensor) -> tf.Tensor:
    """Returns the last position at which bool [R, K, t] is true: int32 [R, K, 1]; 0 if none."""
    positions = tf.range(tf.shape(is_there)[2])
    return tf.reduce_max(tf.where(is_there, positions, 0), axis=2, keepdims=True)


def _numbers(size: int, tokens: Sequence[int]) -> np.ndarray:
    """Returns a table, int32 [size]: for each of the `tokens` its place in the list, from 1; 0 for
    other tokens.
    """
    table = np.zeros(size, np.int32)
    table[list(tokens)] = np.arange(1, len(tokens) + 1)
    return table
