"""The words and brackets that EVALB compares, and the counts of matching and crossing brackets."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from t2t_repro.errors import UserError
from t2t_repro.parsing.evalb_parameters import Parameters

TOKEN = re.compile(r"\(([^\s()]*)(?:\s+([^\s()]*)\))?|(\)|[^\s()]+)", re.ASCII)
"""A tagged word "(TAG word)", whose word may be empty, the start of a bracket "(LABEL", a ")", or a
stray word.
"""
QUOTES = frozenset({"'", '"', "/"})
"""Words that EVALB treats as quotation marks since its fix of 2006."""
Span = tuple[str, int, int]
"""A bracket that EVALB scores: its label, the position of its first word, and the position after
its last word.
"""


@dataclass(slots=True)
class Bracket:
    """A constituent of a sentence. It contains the words `BracketedSentence.words[start:end]`; -1
    if it never ends.
    """

    label: str
    start: int
    end: int = -1


@dataclass(slots=True)
class Quote:
    """A quotation mark, with the facts that `insert_quote` needs if `delete_label` has deleted the
    mark.
    """

    tag: str
    word: str
    position: int
    """Position of the mark among the counted words, or that at which it would be inserted."""
    brackets_before: int
    """Number of brackets that start before the mark."""
    enclosing: list[int]
    """Numbers of the brackets that contain the mark."""


@dataclass(slots=True)
class BracketedSentence:
    """The words and brackets of a sentence on one line of the gold file or the test file."""

    words: list[tuple[str, str]] = field(default_factory=list)
    """The words that EVALB counts, each as (tag, word): those whose tag is not in `delete_label`.
    """
    brackets: list[Bracket] = field(default_factory=list)
    """All constituents in the order of their first words, outer before inner."""
    quotes: list[Quote] = field(default_factory=list)
    """The quotation marks whose tag is in `quote_label`."""
    length: int = 0
    """Number of words whose tag is not in `delete_label_for_length`."""
    faults: list[str] = field(default_factory=list)
    """EVALB's messages about brackets that do not fit."""

    @classmethod
    def read(cls, line: str, parameters: Parameters, place: str) -> Self:
        """Returns the words and brackets of a line as EVALB's C program reads it, with the faults
        that it reports.

        Raises UserError, which names `place`, for a word that is in no brackets of its own: EVALB
        never passes it.
        """
        sentence = cls()
        # EVALB's stack of brackets, as numbers by depth. A surplus ")" reads below the stack, where
        # EVALB finds a 0, so that it moves the end of the first bracket.
        open_brackets = defaultdict[int, int](int)
        ends: dict[int, int] = {}
        depth = 0
        token = ""
        for match in TOKEN.finditer(line):
            token = match[0]
            label, word, other = match.groups()
            if word is not None:
                sentence.length += label not in parameters.delete_label_for_length
                if label in parameters.quote_label and word in QUOTES:
                    enclosing = [open_brackets[level] for level in range(depth)]
                    quote = Quote(
                        label, word, len(sentence.words), len(sentence.brackets), enclosing
                    )
                    sentence.quotes.append(quote)
                if label not in parameters.delete_label:
                    sentence.words.append((label, word))
            elif label is not None:
                open_brackets[depth] = len(sentence.brackets)
                sentence.brackets.append(Bracket(label, len(sentence.words)))
                depth += 1
            elif other == ")":
                depth -= 1
                ends[open_brackets[depth]] = len(sentence.words)
                if depth < -1:
                    sentence.faults.append("Bracketing unbalance (too many close bracket)")
            else:
                raise UserError(
                    f"{place}: {other!r} is outside a tagged word, and EVALB stops; write (TAG "
                    "word)"
                )
        if token.startswith("(") and not token.endswith(")"):
            sentence.faults.append("More than two elements in a bracket")
        if depth:
            sentence.faults.append("Bracketing is unbalanced (too many open bracket)")
        for number, bracket in enumerate(sentence.brackets):
            bracket.end = ends.get(number, -1)
        return sentence

    def insert_quote(self, number: int) -> None:
        """Inserts `quotes[number]` into `words`. Shifts the positions of brackets and later
        quotation marks.
        """
        quote = self.quotes[number]
        self.words.insert(quote.position, (quote.tag, quote.word))
        for bracket in self.brackets[quote.brackets_before :]:
            bracket.start += 1
            bracket.end += 1
        for enclosing in quote.enclosing:
            self.brackets[enclosing].end += 1
        for later_quote in self.quotes[number:]:
            later_quote.position += 1

    def spans(self, parameters: Parameters) -> list[Span]:
        """Returns the spans of the brackets that are not empty and whose label is not in
        `delete_label`.
        """
        spans = []
        for bracket in self.brackets:
            label = bracket.label.partition("-")[0].partition("=")[0]
            is_deleted = any(
                parameters.same_label(label, deleted) for deleted in parameters.delete_label
            )
            if bracket.start != bracket.end and not is_deleted:
                spans.append((label, bracket.start, bracket.end))
        return spans


def insert_missing_quotes(
    gold: BracketedSentence, test: BracketedSentence, parameters: Parameters
) -> None:
    """Puts back each quotation mark that `delete_label` has deleted from only one of the sentences
    `gold` and `test`.

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
    """Returns how many gold brackets match a test bracket. Each test bracket matches at most one
    gold bracket.
    """
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
    """Returns how many test brackets cross a gold bracket: the two overlap, and neither contains
    the other.
    """
    gold_spans = {(start, end) for _, start, end in gold}
    return sum(
        any(left < start < right < end or start < left < end < right for left, right in gold_spans)
        for _, start, end in test
    )
