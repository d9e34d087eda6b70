"""The words and brackets that EVALB compares, and the counts of matching and crossing brackets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from t2t_repro.parsing.evalb_parameters import Parameters
from t2t_repro.parsing.trees import Tree

QUOTES = frozenset({"'", '"', "/"})
"""Words that EVALB treats as quotation marks since its fix of 2006."""
Span = tuple[str, int, int]
"""A bracket that EVALB scores: its label, the position of its first word, and the position after its last word."""


@dataclass(slots=True)
class Bracket:
    """A constituent of a sentence. It contains the words `BracketedSentence.words[start:end]`."""

    label: str
    start: int
    end: int = -1


@dataclass(slots=True)
class Quote:
    """A quotation mark, with the facts that `insert_quote` needs if `delete_label` has deleted the mark.

    Attributes:
        position: position of the mark among the counted words, or the position at which it would be inserted.
        brackets_before: number of brackets that start before the mark.
        enclosing: brackets that contain the mark.
    """

    tag: str
    word: str
    position: int
    brackets_before: int
    enclosing: list[Bracket]


@dataclass(slots=True)
class BracketedSentence:
    """The words and brackets of a sentence on one line of the gold file or the test file.

    Attributes:
        words: the words that EVALB counts, each as (tag, word): those whose tag is not in `delete_label`.
        brackets: all constituents in the order of their first words, outer before inner.
        quotes: the quotation marks whose tag is in `quote_label`.
        length: number of words whose tag is not in `delete_label_for_length`.
    """

    words: list[tuple[str, str]] = field(default_factory=list)
    brackets: list[Bracket] = field(default_factory=list)
    quotes: list[Quote] = field(default_factory=list)
    length: int = 0

    @classmethod
    def from_trees(cls, trees: Sequence[Tree], parameters: Parameters) -> BracketedSentence:
        """Returns the words and brackets of the trees on one line, from left to right."""
        sentence = cls()
        open_brackets: list[Bracket] = []
        # The stack holds unvisited trees. Below a constituent's children, a Bracket marks the end of the constituent.
        stack: list[Tree | Bracket] = list(reversed(trees))
        while stack:
            item = stack.pop()
            if isinstance(item, Bracket):
                item.end = len(sentence.words)
                open_brackets.pop()
            elif item.word:
                sentence._add_word(item, open_brackets, parameters)
            else:
                bracket = Bracket(item.label, len(sentence.words))
                sentence.brackets.append(bracket)
                open_brackets.append(bracket)
                stack.append(bracket)
                stack.extend(reversed(item.children))
        return sentence

    def _add_word(self, leaf: Tree, open_brackets: list[Bracket], parameters: Parameters) -> None:
        self.length += leaf.label not in parameters.delete_label_for_length
        if leaf.label in parameters.quote_label and leaf.word in QUOTES:
            quote = Quote(leaf.label, leaf.word, len(self.words), len(self.brackets), list(open_brackets))
            self.quotes.append(quote)
        if leaf.label not in parameters.delete_label:
            self.words.append((leaf.label, leaf.word))

    def insert_quote(self, number: int) -> None:
        """Inserts `quotes[number]` into `words`. Shifts the positions of brackets and later quotation marks."""
        quote = self.quotes[number]
        self.words.insert(quote.position, (quote.tag, quote.word))
        for bracket in self.brackets[quote.brackets_before :]:
            bracket.start += 1
            bracket.end += 1
        for bracket in quote.enclosing:
            bracket.end += 1
        for later_quote in self.quotes[number:]:
            later_quote.position += 1

    def spans(self, parameters: Parameters) -> list[Span]:
        """Returns the spans of the brackets that contain a counted word and whose label is not in `delete_label`."""
        spans = []
        for bracket in self.brackets:
            label = bracket.label.partition("-")[0].partition("=")[0]
            is_deleted = any(parameters.same_label(label, deleted) for deleted in parameters.delete_label)
            if bracket.start < bracket.end and not is_deleted:
                spans.append((label, bracket.start, bracket.end))
        return spans


def insert_missing_quotes(gold: BracketedSentence, test: BracketedSentence, parameters: Parameters) -> None:
    """Puts back each quotation mark that `delete_label` has deleted from only one of the sentences `gold` and `test`.

    This is EVALB's fix of 2006.
    """
    deleted = parameters.delete_label
    for i, test_quote in enumerate(test.quotes):
        position = test_quote.position  # `test.insert_quote` below changes it
        for j, gold_quote in enumerate(gold.quotes):
            if gold_quote.position != position:
                continue
            if gold_quote.tag in deleted and test_quote.tag not in deleted:
                gold.insert_quote(j)
            elif test_quote.tag in deleted and gold_quote.tag not in deleted:
                test.insert_quote(i)


def count_matches(gold: Sequence[Span], test: Sequence[Span], parameters: Parameters) -> int:
    """Returns how many gold brackets match a test bracket. Each test bracket matches at most one gold bracket."""
    unmatched = defaultdict(list)
    for label, start, end in test:
        unmatched[start, end].append(label)
    matches = 0
    for label, start, end in gold:
        test_labels = unmatched[start, end]
        for test_label in test_labels:
            if not parameters.labeled or parameters.same_label(label, test_label):
                test_labels.remove(test_label)
                matches += 1
                break
    return matches


def count_crossings(gold: Sequence[Span], test: Sequence[Span]) -> int:
    """Returns how many test brackets cross a gold bracket: the two overlap, and neither contains the other."""
    gold_spans = {(start, end) for _, start, end in gold}
    return sum(
        any(left < start < right < end or start < left < end < right for left, right in gold_spans)
        for _, start, end in test
    )
