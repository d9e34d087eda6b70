"""Converts trees to target text for a model, and any text that a model outputs back to a tree.

The format is that of Vinyals et al. 2015, "Grammar as a Foreign Language", section 2: a constituent starts with "(NP"
and ends with ")NP", and one symbol stands for each word: (S (NP DT NN )NP (VP VBZ )VP . )S
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

from t2t_repro.parsing.trees import PUNCTUATION, TOP, TRACE, Tree

ANY = "XX"
"""Symbol and tag of a word whose spelling does not determine its part of speech, such as "dog"."""
WORD_SYMBOLS = ("tag", ANY)

TOKEN = re.compile(r"[()][^\s()]*|[^\s()]+", re.ASCII)
WORD = re.compile(r"\S+", re.ASCII)

FORMS = {
    ",": [","],
    ":": [":", ";", "-", "--", "...", "–", "—", "…"],  # noqa: RUF001
    ".": [".", "?", "!"],
    "``": ["``", "`", "“", "‘"],  # noqa: RUF001
    "''": ["''", "”", '"'],
    "-LRB-": ["-LRB-", "-LCB-", "-LSB-", "[", "{"],
    "-RRB-": ["-RRB-", "-RCB-", "-RSB-", "]", "}"],
    "$": ["$", "US$", "C$"],
    "#": ["#"],
}
"""By tag: the punctuation marks, brackets and signs that always have this tag."""
TAGS = {form: tag for tag, forms in FORMS.items() for form in forms}
"""The tag of each word in `FORMS`. An apostrophe has no entry: it can be a possessive (POS) or a quotation mark."""


@dataclass
class Repairs:
    """Counts of the repairs that `delinearise` made to turn outputs into trees."""

    trees: int = 0
    """Trees that needed at least one repair."""
    words_missing: int = 0
    """Words for which the output has no symbol."""
    words_extra: int = 0
    """Symbols in the output for which there is no word; they were dropped."""
    brackets_closed: int = 0
    """Constituents whose closing bracket is too late in the output, or missing."""
    brackets_dropped: int = 0
    """Dropped brackets: closing brackets without an open constituent of that label, and brackets without a label."""
    constituents_empty: int = 0
    """Constituents that contain no word; they were removed."""
    roots_joined: int = 0
    """Trees that got the root TOP, because the output was not a single constituent."""
    tags_changed: int = 0
    """Words that got another tag, because with the model's tag EVALB would delete a word or count punctuation."""

    def __add__(self, other: Repairs) -> Repairs:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Repairs(*(a + b for a, b in pairs))

    def __bool__(self) -> bool:
        return any(dataclasses.astuple(self))

    def __str__(self) -> str:
        """Returns the counts above 0: "trees: 3, words missing: 5"."""
        counts = dataclasses.asdict(self).items()
        return ", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in counts if count) or "none"


def words_of(line: str) -> list[str]:
    """Returns the words of a line in the treebank's spelling: brackets become -LRB- and -RRB-."""
    return WORD.findall(line.replace("(", "-LRB-").replace(")", "-RRB-"))


def tag_of(word: str) -> str:
    """Returns the tag of a word that always has the same tag (punctuation, brackets, signs), or XX for other words."""
    return TAGS.get(word, ANY)


def linearise(tree: Tree, word_symbol: str = "tag") -> str:
    """Returns the target text for a tree.

    Args:
        tree: a tree as `trees.prepare` returns it.
        word_symbol: "tag" writes each word as its part of speech, as in tensor2tensor. "XX" writes punctuation as its
            tag and other words as XX (see `tag_of`), as in Vinyals et al. (section 3.2 and figure 1).
    """
    return tree.fold(
        lambda leaf: leaf.label if word_symbol == "tag" else tag_of(leaf.word),
        lambda constituent, parts: " ".join([f"({constituent.label}", *parts, f"){constituent.label}"]),
    )


def delinearise(text: str, words: Sequence[str], tags_by_form: bool = False) -> tuple[Tree, Repairs]:
    """Converts any output of a model to a tree over exactly the given words. Returns the tree and counts of repairs.

    An output that needs no repair is converted by the inverse of `linearise`. No repair adds a constituent that EVALB
    scores:

    - If there are as many symbols as words, symbol n belongs to word n. Otherwise the fewest edits align symbols and
      words, and a punctuation mark only aligns with its own symbol. A word without a symbol goes beside the word before
      it; if it is the first word, it goes beside the word after it. A symbol without a word is dropped.
    - A closing bracket closes the innermost open constituent with the same label, and all constituents inside that one.
      A closing bracket without such a constituent is dropped, and so is a bracket without a label. Constituents that
      are still open at the end of the text are closed there.
    - A constituent without a word is removed.
    - If the result is not a single constituent, TOP is put around it.
    - A word's tag is its symbol. If the symbol is XX or missing, the tag is `tag_of(word)`.

    Args:
        text: the model's output.
        words: at least one word, without white space or brackets; see `words_of`.
        tags_by_form: True to give punctuation marks, and no other words, a tag of punctuation. EVALB deletes words by
            their tags, and does not score a sentence if it deletes a word in only one of the two trees. One wrong tag
            would therefore lose the sentence. An apostrophe may have either kind of tag.
    """
    if not words:
        raise ValueError("a tree needs a word")
    repairs = Repairs()
    tokens = TOKEN.findall(text)
    symbols = [token for token in tokens if token[0] not in "()"]
    leaves_by_symbol = _tag_words(symbols, words, tags_by_form, repairs)
    roots = _build(tokens, leaves_by_symbol, [] if symbols else leaves_by_symbol[0], repairs)
    if len(roots) > 1 or roots[0].word:
        repairs.roots_joined = 1
        roots = [Tree(TOP, tuple(roots))]
    repairs.trees = int(bool(repairs))
    return roots[0], repairs


def _tag_words(symbols: Sequence[str], words: Sequence[str], tags_by_form: bool, repairs: Repairs) -> list[list[Tree]]:
    """Returns the tagged words that replace each symbol in the tree. Without symbols, returns one list of all words."""
    leaves_by_symbol: list[list[Tree]] = [[] for _ in symbols] or [[]]
    place = 0
    for word, position in zip(words, _align(symbols, words), strict=True):
        if position is None:
            repairs.words_missing += 1
        else:
            place = position
        tag = tag_of(word) if position is None or symbols[position] == ANY else symbols[position]
        if tags_by_form and not _fits(tag, word):
            tag = tag_of(word)
            repairs.tags_changed += 1
        leaves_by_symbol[place].append(Tree(tag, word=word))
    repairs.words_extra = leaves_by_symbol.count([])
    return leaves_by_symbol


def _build(
    tokens: Sequence[str], leaves_by_symbol: Sequence[list[Tree]], roots: list[Tree], repairs: Repairs
) -> list[Tree]:
    """Adds the constituents that the tokens describe to the list `roots`, and returns this list."""
    open_constituents: list[tuple[str, list[Tree]]] = [(TOP, roots)]

    def close() -> None:
        label, children = open_constituents.pop()
        if children:
            open_constituents[-1][1].append(Tree(label, tuple(children)))
        else:
            repairs.constituents_empty += 1

    next_leaves = iter(leaves_by_symbol)
    for token in tokens:
        bracket, label = token[0], token[1:]
        if bracket not in "()":
            open_constituents[-1][1].extend(next(next_leaves))
        elif not label or (bracket == ")" and all(label != other for other, _ in open_constituents[1:])):
            repairs.brackets_dropped += 1
        elif bracket == "(":
            open_constituents.append((label, []))
        else:
            while open_constituents[-1][0] != label:
                repairs.brackets_closed += 1
                close()
            close()
    while len(open_constituents) > 1:
        repairs.brackets_closed += 1
        close()
    return roots


def _fits(tag: str, word: str) -> bool:
    """Returns False if, with this tag, EVALB and COLLINS.prm would count a punctuation mark or delete another word."""
    if tag_of(word) in PUNCTUATION:
        return tag in PUNCTUATION
    return tag not in (TRACE, TOP) and (tag not in PUNCTUATION or word == "'")


def _align(symbols: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """Returns the position of each word's symbol, or None for a word without a symbol."""
    if len(symbols) == len(words):
        return list(range(len(words)))
    kinds = [symbol if symbol in PUNCTUATION else ANY for symbol in symbols]
    forms = [form if form in PUNCTUATION else ANY for form in map(tag_of, words)]
    # edits[i][j] is the smallest number of deletions, insertions and substitutions that turn the kinds of the first
    # i symbols into the forms of the first j words.
    edits = [list(range(len(words) + 1))]
    for kind in kinds:
        above, row = edits[-1], [len(edits)]
        for j, form in enumerate(forms):
            row.append(min(above[j + 1] + 1, row[j] + 1, above[j] + (kind != form)))
        edits.append(row)
    positions: list[int | None] = [None] * len(words)
    i, j = len(symbols), len(words)
    while i and j:
        # The loop goes from the end to the start and skips a word or symbol as early as possible. If several equal
        # words compete for a symbol, the last of them therefore stay unaligned.
        if edits[i][j] == edits[i][j - 1] + 1:
            j -= 1
        elif edits[i][j] == edits[i - 1][j] + 1:
            i -= 1
        else:
            i, j = i - 1, j - 1
            positions[j] = i
    return positions
