"""Trees as the text that a model learns to write, and whatever it writes back as trees.

Vinyals et al. 2015, "Grammar as a Foreign Language", section 2: each constituent opens as "(NP" and closes as ")NP",
and one symbol stands for each word: (S (NP DT NN )NP (VP VBZ )VP . )S
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

from t2t_repro.parsing.trees import PUNCTUATION, TOP, TRACE, Tree

ANY = "XX"
"""Symbol and tag of a word that could have any tag."""
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
TAGS = {form: tag for tag, forms in FORMS.items() for form in forms}
"""Tags of words that have always the same one. An apostrophe is not among them: six of seven are a POS."""


@dataclass
class Repairs:
    """What was done to make trees of outputs; each field is a count."""

    trees: int = 0
    """Trees that needed any repair."""
    words_missing: int = 0
    """Words for which there was no symbol."""
    words_extra: int = 0
    """Symbols for which there was no word."""
    brackets_closed: int = 0
    """Constituents that were never closed, or closed late."""
    brackets_dropped: int = 0
    """Brackets that closed nothing, or had no label."""
    constituents_empty: int = 0
    """Constituents without a word."""
    roots_joined: int = 0
    """Trees with several roots, or with words outside any constituent."""
    tags_changed: int = 0
    """Words that EVALB would have left aside, or not, against the word's form."""

    def __add__(self, other: Repairs) -> Repairs:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Repairs(*(a + b for a, b in pairs))

    def __bool__(self) -> bool:
        return any(dataclasses.astuple(self))

    def __str__(self) -> str:
        """The counts above 0: "3 trees, 5 words missing"."""
        counts = dataclasses.asdict(self).items()
        return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts if count) or "none"


def words_of(line: str) -> list[str]:
    """The words in a line, as a tree can hold them: brackets are written -LRB- and -RRB-, as in the treebank."""
    return WORD.findall(line.replace("(", "-LRB-").replace(")", "-RRB-"))


def tag_of(word: str) -> str:
    """The tag of a word that has always the same one, i.e. punctuation, brackets and signs; else XX."""
    return TAGS.get(word, ANY)


def linearise(tree: Tree, word_symbol: str = "tag") -> str:
    """A prepared tree as a model's target.

    Args:
        word_symbol: what stands for a word. "tag": its part of speech, as in tensor2tensor. "XX": its `tag_of`, so XX
            but for punctuation, as in Vinyals et al. (section 3.2 and figure 1).
    """
    return tree.fold(
        lambda leaf: leaf.label if word_symbol == "tag" else tag_of(leaf.word),
        lambda constituent, parts: " ".join([f"({constituent.label}", *parts, f"){constituent.label}"]),
    )


def delinearise(text: str, words: Sequence[str], tags_by_form: bool = False) -> tuple[Tree, Repairs]:
    """A tree over exactly the given words, whatever the model wrote.

    Without repairs this is the inverse of `linearise`. No repair adds a constituent that EVALB scores:

    - As many symbols as words: they belong together in order. Otherwise they are aligned by the fewest edits, where
      each punctuation mark has to meet its like. A word without a symbol goes beside the word before it (the first
      ones, beside the word after), and a symbol without a word is dropped.
    - A closing bracket closes the innermost open constituent of its label, and all inside that; it is dropped if there
      is none. What is open at the end is closed there. A bracket without a label is dropped.
    - A constituent without a word is removed.
    - If anything but one constituent remains, TOP is put around it.
    - A word has the tag that is its symbol; its `tag_of` if the symbol is XX or missing.

    Args:
        text: what the model wrote.
        words: at least one; none with white space or brackets, see `words_of`.
        tags_by_form: give punctuation, and nothing else, a tag of punctuation, whatever the symbol. EVALB deletes words
            by their tags and refuses a sentence where it deleted more words on one side, so that a wrong tag there
            costs a sentence. (An apostrophe may be either: a quotation mark or a POS.)
    """
    if not words:
        raise ValueError("a tree needs a word")
    repairs = Repairs()
    tokens = TOKEN.findall(text)
    symbols = [token for token in tokens if token[0] not in "()"]
    roots: list[Tree] = []

    # Of each symbol, the words that stand in its place.
    places: list[list[Tree]] = [[] for _ in symbols]
    place = 0
    for word, own in zip(words, _align(symbols, words), strict=True):
        tag = tag_of(word) if own is None or symbols[own] == ANY else symbols[own]
        if tags_by_form and not _fits(tag, word):
            tag = tag_of(word)
            repairs.tags_changed += 1
        if own is None:
            repairs.words_missing += 1
        else:
            place = own
        (places[place] if places else roots).append(Tree(tag, word=word))
    repairs.words_extra = places.count([])

    opened: list[tuple[str, list[Tree]]] = [(TOP, roots)]

    def close() -> None:
        label, children = opened.pop()
        if children:
            opened[-1][1].append(Tree(label, tuple(children)))
        else:
            repairs.constituents_empty += 1

    coming = iter(places)
    for token in tokens:
        bracket, label = token[0], token[1:]
        if bracket not in "()":
            opened[-1][1].extend(next(coming))
        elif not label or (bracket == ")" and all(label != other for other, _ in opened[1:])):
            repairs.brackets_dropped += 1
        elif bracket == "(":
            opened.append((label, []))
        else:
            while opened[-1][0] != label:
                repairs.brackets_closed += 1
                close()
            close()
    while len(opened) > 1:
        repairs.brackets_closed += 1
        close()

    if len(roots) > 1 or roots[0].word:
        repairs.roots_joined = 1
        roots = [Tree(TOP, tuple(roots))]
    repairs.trees = int(bool(repairs))
    return roots[0], repairs


def _fits(tag: str, word: str) -> bool:
    """Whether EVALB, with the field's COLLINS.prm, deletes a word of this tag just when it is punctuation."""
    if tag_of(word) in PUNCTUATION:
        return tag in PUNCTUATION
    return tag not in (TRACE, TOP) and (tag not in PUNCTUATION or word == "'")


def _align(symbols: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """Of each word, the position of its symbol, or None where it has none."""
    if len(symbols) == len(words):
        return list(range(len(words)))
    kinds = [symbol if symbol in PUNCTUATION else ANY for symbol in symbols]
    forms = [form if form in PUNCTUATION else ANY for form in map(tag_of, words)]
    # edits[i][j]: the fewest (drop, add or change one) that make the first j words of the first i symbols.
    edits = [list(range(len(words) + 1))]
    for kind in kinds:
        above, row = edits[-1], [len(edits)]
        for j, form in enumerate(forms):
            row.append(min(above[j + 1] + 1, row[j] + 1, above[j] + (kind != form)))
        edits.append(row)
    own: list[int | None] = [None] * len(words)
    i, j = len(symbols), len(words)
    while i and j:
        # From the end, so that among equals the last ones of a stretch remain without a partner.
        if edits[i][j] == edits[i][j - 1] + 1:
            j -= 1
        elif edits[i][j] == edits[i - 1][j] + 1:
            i -= 1
        else:
            i, j = i - 1, j - 1
            own[j] = i
    return own
