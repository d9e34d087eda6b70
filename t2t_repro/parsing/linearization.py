"""Converts trees to the text that a model learns to write, and any text that a model writes to a tree.

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
"""Symbol and tag of a word whose form does not determine its tag."""
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
"""Punctuation, brackets and signs, by the tag that they always have."""
TAGS = {form: tag for tag, forms in FORMS.items() for form in forms}
"""The tag of each of these words. The apostrophe is missing, because the treebank tags six of seven as POS."""


@dataclass
class Repairs:
    """Counts of the repairs that turned outputs into trees."""

    trees: int = 0
    """Trees that needed a repair."""
    words_missing: int = 0
    """Words without a symbol."""
    words_extra: int = 0
    """Symbols without a word."""
    brackets_closed: int = 0
    """Constituents that were closed late or never."""
    brackets_dropped: int = 0
    """Brackets that closed nothing or had no label."""
    constituents_empty: int = 0
    """Constituents without a word."""
    roots_joined: int = 0
    """Trees with several roots, or with words outside all constituents."""
    tags_changed: int = 0
    """Words whose tag would have made EVALB delete a real word or count a punctuation mark."""

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
    """Returns the tag of a word that always has the same one (punctuation, brackets, signs), or XX for other words."""
    return TAGS.get(word, ANY)


def linearise(tree: Tree, word_symbol: str = "tag") -> str:
    """Returns a prepared tree as a model's target.

    Args:
        tree: the tree.
        word_symbol: "tag" writes a word as its part of speech, as in tensor2tensor. "XX" writes its `tag_of`: XX except
            for punctuation, as in Vinyals et al. (section 3.2 and figure 1).
    """
    return tree.fold(
        lambda leaf: leaf.label if word_symbol == "tag" else tag_of(leaf.word),
        lambda constituent, parts: " ".join([f"({constituent.label}", *parts, f"){constituent.label}"]),
    )


def delinearise(text: str, words: Sequence[str], tags_by_form: bool = False) -> tuple[Tree, Repairs]:
    """Returns a tree over exactly the given words, whatever the model wrote, and the repairs it needed.

    Without repairs this is the inverse of `linearise`. No repair adds a constituent that EVALB scores:

    - If there are as many symbols as words, they correspond in order. Otherwise the fewest edits align them, and a
      punctuation mark only aligns with its own symbol. A word without a symbol goes beside the word before it, or
      beside the word after it if it comes first. A symbol without a word is dropped.
    - A closing bracket closes the innermost open constituent with its label, and everything inside that. It is dropped
      if there is none, or if it has no label. Constituents that are open at the end are closed there.
    - A constituent without a word is removed.
    - If the result is not a single constituent, TOP is put around it.
    - A word's tag is its symbol, or its `tag_of` if the symbol is XX or missing.

    Args:
        text: what the model wrote.
        words: at least one word, without white space or brackets; see `words_of`.
        tags_by_form: if True, punctuation always gets a tag of punctuation, and other words never do. EVALB deletes
            words by their tags, and a sentence is an error if it deletes more words on one side. So one wrong tag would
            lose the sentence. (An apostrophe can be a quotation mark or a POS.)
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
    """Returns a list of tagged words for each symbol. Without symbols, returns one list with all words."""
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
    """Adds the constituents that the tokens describe to `roots`, and returns it."""
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
    """Returns True if EVALB with COLLINS.prm deletes a word with this tag exactly when the word is punctuation."""
    if tag_of(word) in PUNCTUATION:
        return tag in PUNCTUATION
    return tag not in (TRACE, TOP) and (tag not in PUNCTUATION or word == "'")


def _align(symbols: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """Returns the position of each word's symbol, or None for a word without a symbol."""
    if len(symbols) == len(words):
        return list(range(len(words)))
    kinds = [symbol if symbol in PUNCTUATION else ANY for symbol in symbols]
    forms = [form if form in PUNCTUATION else ANY for form in map(tag_of, words)]
    # edits[i][j]: fewest deletions, insertions and substitutions that turn the first i symbols into the first j words.
    edits = [list(range(len(words) + 1))]
    for kind in kinds:
        above, row = edits[-1], [len(edits)]
        for j, form in enumerate(forms):
            row.append(min(above[j + 1] + 1, row[j] + 1, above[j] + (kind != form)))
        edits.append(row)
    positions: list[int | None] = [None] * len(words)
    i, j = len(symbols), len(words)
    while i and j:
        # Walks back from the end and skips as early as possible: of equal words or symbols, the last stay unaligned.
        if edits[i][j] == edits[i][j - 1] + 1:
            j -= 1
        elif edits[i][j] == edits[i - 1][j] + 1:
            i -= 1
        else:
            i, j = i - 1, j - 1
            positions[j] = i
    return positions
