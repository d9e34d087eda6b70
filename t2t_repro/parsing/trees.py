"""Constituency trees: reading and writing the Penn Treebank's bracketed text, and preparing its
trees for parsing.

Only ASCII white space separates words. A no-break space stays inside its word, as in EVALB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from t2t_repro.errors import UserError
from t2t_repro.files.textfile import read_lines

T = TypeVar("T")

TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
TOP = "TOP"
"""Label of the bracket around a whole tree. EVALB does not score this bracket."""
OUTER_LABELS = ("", TOP, "ROOT", "S1")
"""Labels that treebanks and parsers give to the bracket around a whole tree."""
PUNCTUATION = (",", ":", "``", "''", ".")
"""Tags of the words that EVALB ignores with COLLINS.prm, the usual parameter file."""
TRACE = "-NONE-"
"""Tag of a trace: an element of the treebank's trees that stands for no word of the text."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent or a tagged word."""

    label: str
    """The constituent's label or the word's part of speech; "" for a treebank's outer bracket."""
    children: tuple[Tree, ...] = ()
    """The constituents and words inside; empty for a word."""
    word: str = ""
    """The word; "" for a constituent."""

    def leaves(self) -> list[Tree]:
        """Returns the tagged words from left to right."""
        leaves: list[Tree] = []
        self.fold(leaves.append, lambda constituent, parts: None)
        return leaves

    def fold(
        self, word_value: Callable[[Tree], T], constituent_value: Callable[[Tree, list[T]], T]
    ) -> T:
        """Returns a tree's value, computed from its children's values. Uses no recursion, so any
        depth is possible.

        `word_value` returns the value of a tagged word, and `constituent_value` that of a
        constituent, given its children's values.
        """
        if self.word:
            return word_value(self)
        # An entry for each constituent from the root to the current one: the constituent, its
        # unvisited children, and the values of its visited children.
        path: list[tuple[Tree, Iterator[Tree], list[T]]] = [(self, iter(self.children), [])]
        while True:
            tree, remaining, values = path[-1]
            for child in remaining:
                if not child.word:
                    path.append((child, iter(child.children), []))
                    break
                values.append(word_value(child))
            else:
                path.pop()
                value = constituent_value(tree, values)
                if not path:
                    return value
                path[-1][2].append(value)

    def __str__(self) -> str:
        """Returns the tree on one line, in the format of `parse_trees`."""
        return self.fold(
            lambda leaf: f"({leaf.label} {leaf.word})",
            lambda tree, parts: f"({' '.join([tree.label, *parts])})",
        )


def parse_trees(lines: Iterable[str], source: str, first_line: int = 1) -> Iterator[Tree]:
    """Yields the trees in lines of bracketed text. A tree may span lines, and a line may hold
    several trees.

    Raises UserError, which names `source` and the line, if the brackets are not those of trees.
    """
    # An entry for each open bracket: its line number, the label and word read so far, and its
    # finished children.
    opened: list[tuple[int, list[str], list[Tree]]] = []
    for number, line in enumerate(lines, first_line):
        for token in TOKEN.findall(line):
            if token == "(":
                opened.append((number, [], []))
            elif not opened:
                raise UserError(f"{source}:{number}: {token!r} is outside a tree; fix the brackets")
            elif token != ")":
                opened[-1][1].append(token)
            else:
                start, names, children = opened.pop()
                tree = _close(f"{source}:{start}", names, children)
                if opened:
                    opened[-1][2].append(tree)
                else:
                    yield tree
    if opened:
        raise UserError(
            f"{source}:{opened[0][0]}: a tree starts here but never ends; fix the brackets"
        )


def _close(place: str, names: list[str], children: list[Tree]) -> Tree:
    if children and len(names) <= 1:
        return Tree(names[0] if names else "", tuple(children))
    if not children and len(names) == 2:
        return Tree(names[0], word=names[1])
    text = " ".join(names)
    raise UserError(
        f"{place}: cannot read '({text} ...)'; write a tagged word, (TAG word), or (LABEL with "
        "constituents)"
    )


def read_trees(path: str) -> Iterator[Tree]:
    return parse_trees(read_lines(path), path)


def prepare(tree: Tree) -> Tree | None:
    """Returns a treebank's tree in the form in which parsers are trained and scored, or None if no
    words remain.

    - Traces are removed, and so are constituents that contain only traces.
    - Labels are cut before their first "-", "=" or "|". This removes function tags and indices:
      NP-SBJ-1 and NP=2 become NP. Of two alternative labels, the first stays: ADVP|PRT becomes
      ADVP. (EVALB counts ADVP and PRT as equal.) A label that starts with one of these signs, such
      as -LRB-, stays whole.
    - The outer bracket is removed. If it contains several constituents or a word, it stays, with
      the label TOP.
    - A constituent whose only child has the same label, (NP (NP ...)), stays, because EVALB counts
      both constituents.
    """
    prepared = tree.fold(
        lambda leaf: None if leaf.label == TRACE else Tree(_base_label(leaf.label), word=leaf.word),
        _prepare_constituent,
    )
    return Tree(TOP, (prepared,)) if prepared and prepared.word else prepared


def _prepare_constituent(tree: Tree, parts: list[Tree | None]) -> Tree | None:
    children = tuple(part for part in parts if part)
    if not children:
        return None
    if tree.label not in OUTER_LABELS:
        return Tree(_base_label(tree.label), children)
    return children[0] if len(children) == 1 else Tree(TOP, children)


@lru_cache(10_000)
def _base_label(label: str) -> str:
    return re.split("[-=|]", label)[0] or label


def under_top(tree: Tree) -> Tree:
    """Returns the tree with TOP around it, as in EVALB's files, unless the tree's label is TOP
    already.
    """
    return tree if tree.label == TOP else Tree(TOP, (tree,))
