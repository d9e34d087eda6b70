"""Warns about text that was probably given by mistake, such as a dev split that is a part of the train split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from t2t_repro.corpora.parallel import Pair
from t2t_repro.parsing.linearization import TreeSymbols

SHOWN = 5
"""Number of symbols that a warning shows."""


class TextCheck:
    """Looks for likely mistakes in the text, while the caller reads first the dev split and then the train split.

    Args:
        tree_symbols: the symbols of the targets if they are trees, see `Problem.tree_symbols`; else None.
    """

    def __init__(self, tree_symbols: TreeSymbols | None = None) -> None:
        self._labels, self._words = (tree_symbols.labels, tree_symbols.words) if tree_symbols else ((), ())
        self._symbols = {*(bracket + label for label in self._labels for bracket in "()"), *self._words}
        self._unlisted_symbols: set[str] = set()
        """The labels, and symbols of words, of the trees in the train split that `tree_symbols` lacks."""
        self._unseen: set[int] = set()
        """Hashes of the dev pairs that have not yet occurred in the train split."""
        self._has_different_sides = False

    def dev(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields the pairs of the dev split unchanged, and stores their hashes."""
        for pair in pairs:
            self._unseen.add(hash((pair["inputs"], pair["targets"])))
            yield pair

    def train(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields the train split's pairs unchanged, and compares them with the dev pairs. Read all of `dev` first."""
        for pair in pairs:
            source, target = pair["inputs"], pair["targets"]
            self._unseen.discard(hash((source, target)))
            self._has_different_sides = self._has_different_sides or source != target
            if self._labels:
                unlisted = {token for token in target.split() if token not in self._symbols}
                self._unlisted_symbols.update(
                    token.lstrip("()") for token in unlisted if token[0] in "()" or self._words
                )
            yield pair

    def warnings(self) -> list[str]:
        """Returns the warnings. Call it after both splits have been read; neither may be empty."""
        warnings = []
        if not self._unseen:
            warnings.append("every dev pair is also a training pair, so the dev loss will not show overfitting")
        if not self._has_different_sides:
            warnings.append("in every training pair, the target text is the source text; are both sides one file?")
        if symbols := sorted(self._unlisted_symbols):
            more = f" and {len(symbols) - SHOWN:,} more" if len(symbols) > SHOWN else ""
            warnings.append(
                f"its trees have labels or tags that the problem does not list: {' '.join(symbols[:SHOWN])}{more}; "
                "a search with well_formed=true cannot write them"
            )
        return warnings
