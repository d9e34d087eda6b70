"""Converts trees to target text for a model, and any text that a model outputs back to a tree.

The format is that of Vinyals et al. 2015, "Grammar as a Foreign Language", section 2: a constituent
starts with "(NP" and ends with ")NP", and one symbol stands for each word: (S (NP DT NN )NP (VP VBZ
)VP . )S
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from t2t_repro.parsing.trees import PUNCTUATION, TOP, TRACE, Tree

ANY = "XX"
"""Symbol and tag of a word whose spelling does not determine its part of speech, such as "dog"."""
WORD = "word"
"""Value of --word_symbol with which each word is its own symbol."""
WORD_SYMBOLS = ("tag", ANY, WORD)

TOKEN = re.compile(r"[()][^\s()]*|[^\s()]+", re.ASCII)

FORMS = {
    ",": ",",
    ":": ": ; - -- ... – — …",  # noqa: RUF001
    ".": ". ? !",
    "``": "`` ` “ ‘",  # noqa: RUF001
    "''": "'' ” \"",
    "-LRB-": "-LRB- -LCB- -LSB- [ {",
    "-RRB-": "-RRB- -RCB- -RSB- ] }",
    "$": "$ US$ C$",
    "#": "#",
}
"""Punctuation marks, brackets and signs, listed under the tag that they always have."""
TAGS = {form: tag for tag, forms in FORMS.items() for form in forms.split()}
"""Tags by word, from `FORMS`. An apostrophe has no entry, because it can be a possessive (POS) or a
quotation mark.
"""
APOSTROPHE = "'"

NO_WORD = 0
"""Kind of the padding after the last word of a sentence. Kinds decide the tags that fit a word."""
ORDINARY = 1
"""Kind of a word that EVALB must count."""
MARK = 2
"""Kind of a punctuation mark, which EVALB must ignore."""
EITHER = 3
"""Kind of an apostrophe, which EVALB may count or ignore."""
WORD_KINDS = (NO_WORD, ORDINARY, MARK, EITHER)


@dataclass(frozen=True)
class TreeSymbols:
    """The symbols that a parser's output contains if the decode hparam `well_formed` is true."""

    labels: tuple[str, ...]
    """Labels of constituents."""
    words: tuple[str, ...]
    """Symbols of words: parts of speech, or XX and the tags of punctuation marks; () if words are
    their own symbols.
    """


@dataclass
class Repairs:
    """Counts of the repairs that `delinearise` made to turn outputs into trees; see its rules."""

    trees: int = 0
    """Trees that needed at least one repair."""
    words_missing: int = 0
    """Words without a symbol."""
    words_extra: int = 0
    """Dropped symbols without a word."""
    brackets_closed: int = 0
    """Constituents whose closing bracket was missing or came too late."""
    brackets_dropped: int = 0
    """Closing brackets without an open constituent of that label; brackets without a label."""
    constituents_empty: int = 0
    """Removed constituents without a word."""
    roots_joined: int = 0
    """Trees that got the root TOP."""
    tags_changed: int = 0
    """Tags that would have made EVALB delete a word or count punctuation."""

    def __add__(self, other: Self) -> Self:
        return type(self)(
            **{name: count + getattr(other, name) for name, count in vars(self).items()}
        )

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __str__(self) -> str:
        """Returns the counts above 0, for example "trees: 3, words missing: 5", or "none"."""
        counts = [
            f"{name.replace('_', ' ')}: {count:,}" for name, count in vars(self).items() if count
        ]
        return ", ".join(counts) or "none"


def words_of(line: str) -> list[str]:
    """Returns the words of a line, in which "(" and ")" become -LRB- and -RRB-, the treebank's
    spelling.
    """
    return re.findall(r"\S+", line.replace("(", "-LRB-").replace(")", "-RRB-"), re.ASCII)


def graph_words_of(lines: Any) -> Any:
    """Returns a tensor of strings [B] with the result of `words_of` for each line, joined by
    spaces.
    """
    import tensorflow as tf

    for pattern, text in ((r"\(", "-LRB-"), (r"\)", "-RRB-"), (r"[ \t-\r]+", " "), ("^ | $", "")):
        lines = tf.strings.regex_replace(lines, pattern, text)
    return lines


def tag_of(word: str) -> str:
    """Returns the tag of a word that always has the same tag (punctuation, brackets, signs), or XX
    for other words.
    """
    return TAGS.get(word, ANY)


def kind_of(word: str) -> int:
    """Returns the kind of a word: `ORDINARY`, `MARK` or `EITHER`."""
    if word == APOSTROPHE:
        return EITHER
    return MARK if tag_of(word) in PUNCTUATION else ORDINARY


def kinds_of(line: str) -> list[int]:
    return [kind_of(word) for word in words_of(line)]


def graph_kinds_of(lines: Any) -> Any:
    """Applies `kinds_of` to a tensor of strings [B] with at most W words each. Returns int32 [B,
    W].
    """
    import tensorflow as tf

    # No kind depends on a bracket, so the brackets in the words may stay.
    words = tf.strings.split(lines)
    marks = tf.constant([form for form, tag in TAGS.items() if tag in PUNCTUATION])
    is_mark = tf.reduce_any(words.values[:, None] == marks, axis=1)
    kinds = tf.where(words.values == APOSTROPHE, EITHER, tf.where(is_mark, MARK, ORDINARY))
    return words.with_values(kinds).to_tensor(NO_WORD)


def linearise(tree: Tree, word_symbol: str = "tag") -> str:
    """Returns the target text for a tree that `trees.prepare` returned.

    The `word_symbol` "tag" writes each word as its part of speech, as in tensor2tensor. "XX" writes
    punctuation as its tag (see `tag_of`) and other words as XX, the symbol of Vinyals et al. 2015.
    "word" writes the words.
    """

    symbol = {
        "tag": lambda leaf: leaf.label,
        ANY: lambda leaf: tag_of(leaf.word),
        WORD: lambda leaf: leaf.word,
    }[word_symbol]

    def constituent_text(constituent: Tree, parts: list[str]) -> str:
        return " ".join([f"({constituent.label}", *parts, f"){constituent.label}"])

    return tree.fold(symbol, constituent_text)


def delinearise(
    text: str, words: Sequence[str], tags_by_form: bool = False, word_symbol: str = "tag"
) -> tuple[Tree, Repairs]:
    """Returns a tree over exactly `words`, converted from any output of a model, and the counts of
    repairs.

    For an output without faults, this is the inverse of `linearise`. Faults are repaired by the
    rules below. No repair adds a constituent that EVALB scores.

    - If there are as many symbols as words, symbol n belongs to word n. Otherwise, symbols and
      words are aligned with the fewest faults. A fault is a word without a symbol, a symbol without
      a word, or a punctuation mark aligned with another mark or an ordinary word. A symbol without
      a word is dropped. A word without a symbol joins the constituent of the previous word; if no
      previous word has a symbol, it joins that of the first symbol.
    - A closing bracket closes the innermost open constituent with the same label, and every open
      constituent inside. If no open constituent has this label, the closing bracket is dropped. A
      bracket without a label is dropped. Constituents that are still open at the end of the text
      are closed there.
    - A constituent without a word is removed.
    - If the result is not a single constituent, a constituent TOP is put around it.
    - A word's tag is its symbol. If the symbol is XX or missing, the tag is `tag_of(word)`.

    Args:
        text: the model's output.
        words: at least one word, without white space or brackets; see `words_of`.
        tags_by_form: True to replace a tag with which EVALB would delete a word or count a
            punctuation mark. EVALB does not score a sentence if such a tag deletes a word in only
            one of the two trees.
        word_symbol: what stands for a word in the output: "tag", "XX" or "word". For "word", the
            tag of each symbol is `tag_of(symbol)`.
    """
    if not words:
        raise ValueError("a tree needs a word")
    repairs = Repairs()
    tokens = TOKEN.findall(text)
    symbols = [token for token in tokens if token[0] not in "()"]
    if word_symbol == WORD:
        symbols = list(map(tag_of, symbols))
    leaves_by_symbol = _tag_words(symbols, words, tags_by_form, repairs)
    roots = _build(tokens, leaves_by_symbol, [] if symbols else leaves_by_symbol[0], repairs)
    if len(roots) > 1 or roots[0].word:
        repairs.roots_joined = 1
        roots = [Tree(TOP, tuple(roots))]
    repairs.trees = int(bool(repairs))
    return roots[0], repairs


def _tag_words(
    symbols: Sequence[str], words: Sequence[str], tags_by_form: bool, repairs: Repairs
) -> list[list[Tree]]:
    """Returns, for each symbol, the tagged words that replace it; one list of all words if there
    are no symbols.
    """
    leaves_by_symbol: list[list[Tree]] = [[] for _ in symbols] or [[]]
    last_position = 0
    for word, position in zip(words, _align(symbols, words), strict=True):
        tag = ANY
        if position is None:
            repairs.words_missing += 1
        else:
            last_position = position
            tag = symbols[position]
        if tag == ANY:
            tag = tag_of(word)
        elif tags_by_form and not fits(tag, kind_of(word)):
            tag = tag_of(word)
            repairs.tags_changed += 1
        leaves_by_symbol[last_position].append(Tree(tag, word=word))
    repairs.words_extra = leaves_by_symbol.count([])
    return leaves_by_symbol


def _build(
    tokens: Sequence[str],
    leaves_by_symbol: Sequence[list[Tree]],
    roots: list[Tree],
    repairs: Repairs,
) -> list[Tree]:
    """Appends the constituents and words that the output `tokens` describes to `roots`, and returns
    `roots`.
    """
    open_constituents: list[tuple[str, list[Tree]]] = [(TOP, roots)]

    def close() -> None:
        label, children = open_constituents.pop()
        if children:
            open_constituents[-1][1].append(Tree(label, tuple(children)))
        else:
            repairs.constituents_empty += 1

    next_leaves = iter(leaves_by_symbol)
    for token in tokens:
        bracket = token[0]
        label = token[1:]
        if bracket not in "()":
            open_constituents[-1][1].extend(next(next_leaves))
        elif not label:
            repairs.brackets_dropped += 1
        elif bracket == "(":
            open_constituents.append((label, []))
        elif all(label != name for name, _ in open_constituents[1:]):
            repairs.brackets_dropped += 1
        else:
            while open_constituents[-1][0] != label:
                repairs.brackets_closed += 1
                close()
            close()
    while len(open_constituents) > 1:
        repairs.brackets_closed += 1
        close()
    return roots


def fits(tag: str, kind: int) -> bool:
    """Returns True unless EVALB (with COLLINS.prm) would treat words of this kind wrongly because
    of the tag.

    EVALB must delete punctuation marks and count all other words. An apostrophe may be either. The
    symbol XX fits every word, because `delinearise` replaces it by `tag_of(word)`.
    """
    if kind == MARK:
        return tag in (*PUNCTUATION, ANY)
    return tag not in (TRACE, TOP) and (tag not in PUNCTUATION or kind == EITHER)


def _align(symbols: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """Returns, for each word, the position of its symbol in `symbols`, or None if the word has no
    symbol.
    """
    if len(symbols) == len(words):
        return list(range(len(words)))
    # Only punctuation marks are distinguished: all other symbols and words count as equal.
    symbol_tags = [symbol if symbol in PUNCTUATION else ANY for symbol in symbols]
    word_tags = [tag if tag in PUNCTUATION else ANY for tag in map(tag_of, words)]
    # edits[i][j] is the smallest number of skipped symbols, skipped words and mismatches if the
    # first i symbols are aligned with the first j words.
    edits = [list(range(len(words) + 1))]
    for symbol_tag in symbol_tags:
        above = edits[-1]
        row = [len(edits)]
        for j, word_tag in enumerate(word_tags):
            row.append(min(above[j + 1] + 1, row[j] + 1, above[j] + (symbol_tag != word_tag)))
        edits.append(row)
    positions: list[int | None] = [None] * len(words)
    i = len(symbols)
    j = len(words)
    while i and j:
        # The loop goes from the last word to the first and prefers skipping a word or symbol to
        # aligning the two. If several words compete for a symbol, the first of them therefore gets
        # it.
        if edits[i][j] == edits[i][j - 1] + 1:
            j -= 1
        elif edits[i][j] == edits[i - 1][j] + 1:
            i -= 1
        else:
            i -= 1
            j -= 1
            positions[j] = i
    return positions
