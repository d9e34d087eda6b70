"""Constituency trees: bracketed text in and out, as the Penn Treebank writes it, and its trees made ready for parsing.

Only ASCII white space separates, so that a no-break space stays inside its word, as in EVALB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from t2t_repro.errors import UserError
from t2t_repro.textfile import read_lines

T = TypeVar("T")

TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
TOP = "TOP"
"""Label of a bracket around a whole tree; EVALB scores no such bracket."""
OUTER_LABELS = ("", TOP, "ROOT", "S1")
"""What treebanks and parsers write in TOP's place."""
PUNCTUATION = (",", ":", "``", "''", ".")
"""Tags whose words EVALB leaves aside, with the field's COLLINS.prm."""
TRACE = "-NONE-"
"""Tag of an empty element, a word that is not in the text."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent, or a tagged word.

    Attributes:
        label: of the constituent or the word's part of speech; "" for a treebank's outer bracket.
        children: the constituents and words in it; none for a word.
        word: the word; "" for a constituent.
    """

    label: str
    children: tuple[Tree, ...] = ()
    word: str = ""

    def leaves(self) -> Iterator[Tree]:
        """The tagged words, from left to right."""
        waiting = [self]
        while waiting:
            tree = waiting.pop()
            if tree.word:
                yield tree
            waiting.extend(reversed(tree.children))

    def fold(self, of_word: Callable[[Tree], T], of_constituent: Callable[[Tree, list[T]], T]) -> T:
        """A value of the tree, from the values of its parts; without recursion, so a tree may be of any depth.

        Args:
            of_word: the value of a tagged word.
            of_constituent: the value of a constituent, given those of its children.
        """
        if self.word:
            return of_word(self)
        # Of each constituent from the root down to where we are: its children to come, and the values of the others.
        path: list[tuple[Tree, Iterator[Tree], list[T]]] = [(self, iter(self.children), [])]
        while True:
            tree, coming, values = path[-1]
            for child in coming:
                if not child.word:
                    path.append((child, iter(child.children), []))
                    break
                values.append(of_word(child))
            else:
                path.pop()
                value = of_constituent(tree, values)
                if not path:
                    return value
                path[-1][2].append(value)

    def __str__(self) -> str:
        """The tree on one line, as `parse_trees` reads it."""
        return self.fold(
            lambda leaf: f"({leaf.label} {leaf.word})",
            lambda tree, parts: f"({' '.join([tree.label, *parts])})",
        )


def parse_trees(lines: Iterable[str], source: str, first: int = 1) -> Iterator[Tree]:
    """The trees in lines of bracketed text; a tree may take several lines, and a line hold several trees.

    Args:
        source: what the text is called in errors.
        first: the number of the first line in errors.

    Raises:
        UserError: unbalanced brackets, a word outside a tree, a word beside constituents, or an empty bracket.
    """
    # Of each open bracket: its line, its label, its children, its word.
    opened: list[tuple[int, list[str], list[Tree]]] = []
    for number, line in enumerate(lines, first):
        for token in TOKEN.findall(line):
            if token == "(":
                opened.append((number, [], []))
            elif not opened:
                raise UserError(f"{source}:{number}: {token!r} outside a tree; mend the brackets")
            elif token != ")":
                opened[-1][1].append(token)
            else:
                begun, names, children = opened.pop()
                tree = _close(f"{source}:{begun}", names, children)
                if opened:
                    opened[-1][2].append(tree)
                else:
                    yield tree
    if opened:
        raise UserError(f"{source}:{opened[0][0]}: a tree begins here and never ends; mend the brackets")


def _close(place: str, names: list[str], children: list[Tree]) -> Tree:
    if children and len(names) <= 1:
        return Tree(names[0] if names else "", tuple(children))
    if not children and len(names) == 2:
        return Tree(names[0], word=names[1])
    what = " ".join(names)
    raise UserError(f"{place}: '({what} ...)' is neither a tagged word, (TAG word), nor (LABEL with constituents)")


def read_trees(path: str) -> Iterator[Tree]:
    """The trees in a file, plain or .gz; see `parse_trees`.

    Raises:
        UserError: also if the file is missing or unreadable.
    """
    return parse_trees(read_lines(path), path)


def prepare(tree: Tree) -> Tree | None:
    """A treebank's tree as the field trains on and scores: of its annotation, only the brackets.

    - Traces, and constituents that hold nothing else, are removed.
    - Labels end before their first "-", "=" or "|": function tags and indices go (NP-SBJ-1, NP=2), and of two labels
      that an annotator wavered between the first stays (ADVP|PRT; all that there are are ADVP and PRT, which EVALB
      takes for the same). A label that begins with such a sign is kept: -LRB-.
    - The outer bracket is removed. Where it holds several constituents, or a mere word, it stays, as TOP.
    - A constituent with one child of the same label, (NP (NP ...)), is kept: EVALB counts both.

    Returns:
        None where the tree holds nothing but traces.
    """
    prepared = tree.fold(
        lambda leaf: None if leaf.label == TRACE else Tree(_bare(leaf.label), word=leaf.word), _prepare_constituent
    )
    return Tree(TOP, (prepared,)) if prepared and prepared.word else prepared


def _prepare_constituent(tree: Tree, parts: list[Tree | None]) -> Tree | None:
    children = tuple(part for part in parts if part)
    if not children:
        return None
    if tree.label not in OUTER_LABELS:
        return Tree(_bare(tree.label), children)
    return children[0] if len(children) == 1 else Tree(TOP, children)


@lru_cache(10_000)
def _bare(label: str) -> str:
    return re.split("[-=|]", label)[0] or label


def under_top(tree: Tree) -> Tree:
    """The tree inside an outer bracket, as files for EVALB have it."""
    return tree if tree.label == TOP else Tree(TOP, (tree,))


def right_branching(words: Sequence[Tree], root: str = "S", inner: str = "VP") -> Tree:
    """The parser that knows nothing: (S the (VP dog (VP barks loudly) .)), a baseline to hold a score against.

    Args:
        words: at least one, tagged. Punctuation opens no constituent: EVALB would see the next one twice.
        root: label of the whole.
        inner: label of each constituent inside.
    """
    others = [position for position, word in enumerate(words) if word.label not in PUNCTUATION] or [0]
    rest: tuple[Tree, ...] = ()
    for position in reversed(range(others[0] + 1, len(words))):
        rest = (words[position], *rest)
        if position in others[:-1]:
            rest = (Tree(inner, rest),)
    return Tree(root, (*words[: others[0] + 1], *rest))
