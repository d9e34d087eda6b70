"""Labelled bracketing scores of parse trees, equal to EVALB's in every figure.

EVALB is Sekine and Collins's scorer (1997) with David Ellis's fix for mislabelled quotation marks (2006). Its README
omits two rules, which this code also follows. EVALB cuts a constituent's label at the first "-" or "=", even if that is
the label's first character. EVALB counts a sentence as an error if its words differ between the two files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

from t2t_repro.errors import UserError
from t2t_repro.files.textfile import read_lines
from t2t_repro.parsing.brackets import BracketedSentence, count_crossings, count_matches, insert_missing_quotes
from t2t_repro.parsing.evalb_parameters import COLLINS, Parameters
from t2t_repro.parsing.trees import Tree, parse_trees

# The first condition lets a match begin only where the spaces begin, so that many spaces do not take quadratic time.
EMPTY_BRACKET = re.compile(r"(?<!\s)\s*\([^\s()]*\)\s*(?=[()]|$)")
"""Matches an empty bracket, "(NP)" or "()", unless a word follows it."""


class Status(IntEnum):
    """EVALB's status of a sentence. Only sentences with status OK enter the scores."""

    OK = 0
    ERROR = 1
    SKIP = 2


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of one sentence, or sums over several sentences. A sentence whose status is not OK has 0 for all counts.

    Attributes:
        matched: gold brackets that the test tree also has.
        gold: brackets in the gold tree.
        test: brackets in the test tree.
        crossing: test brackets that cross a gold bracket: the two overlap, and neither contains the other.
        words: words whose tag is not in `delete_label`.
        correct_tags: words that are counted in `words` and have the same tag in both trees.
    """

    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    words: int = 0
    correct_tags: int = 0

    @property
    def recall(self) -> float:
        return _percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        return _percent(self.matched, self.test)

    @property
    def tagging_accuracy(self) -> float:
        return _percent(self.correct_tags, self.words)


@dataclass(frozen=True)
class Sentence(Counts):
    """The counts of one sentence, as in a row of EVALB's output.

    Attributes:
        number: line number, starting at 1.
        length: number of words of the gold tree whose tag is not in `delete_label_for_length`.
        status: OK, ERROR (the words differ, or the test line is not a tree) or SKIP (no word of the test line counts).
    """

    number: int
    length: int
    status: Status = Status.OK
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Summary(Counts):
    """EVALB's summary of several sentences. A sentence is valid if its status is OK.

    Attributes:
        sentences, errors, skipped, valid: number of all sentences, and of those with status ERROR, SKIP and OK.
        complete_match: percentage of valid sentences whose test brackets equal the gold brackets.
        average_crossing: crossing brackets per valid sentence.
        no_crossing, two_or_less_crossing: percentage of valid sentences with 0, and with at most 2, crossing brackets.
    """

    sentences: int
    errors: int
    skipped: int
    valid: int
    complete_match: float
    average_crossing: float
    no_crossing: float
    two_or_less_crossing: float

    @property
    def f_measure(self) -> float:
        """Harmonic mean of recall and precision; NaN if both are 0."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else math.nan


def summarise(sentences: Iterable[Sentence]) -> Summary:
    """Returns the summary of `sentences`. For EVALB's second summary, pass only those of up to `cutoff_len` words."""
    sentences = list(sentences)
    valid = [sentence for sentence in sentences if sentence.status == Status.OK]
    sums = {field.name: sum(getattr(sentence, field.name) for sentence in valid) for field in fields(Counts)}
    complete = sum(sentence.matched == sentence.gold == sentence.test for sentence in valid)
    return Summary(
        sentences=len(sentences),
        errors=sum(sentence.status == Status.ERROR for sentence in sentences),
        skipped=sum(sentence.status == Status.SKIP for sentence in sentences),
        valid=len(valid),
        **sums,
        complete_match=_percent(complete, len(valid)),
        average_crossing=sums["crossing"] / len(valid) if valid else 0.0,
        no_crossing=_percent(sum(sentence.crossing == 0 for sentence in valid), len(valid)),
        two_or_less_crossing=_percent(sum(sentence.crossing <= 2 for sentence in valid), len(valid)),
    )


def score_files(gold: str, test: str, parameters: Parameters = COLLINS) -> Iterator[Sentence]:
    """Yields the counts of each sentence in two files that have one tree per line.

    Raises UserError if the files do not fit together, a gold line is not a tree, or there are more errors than
    `parameters.max_error` allows.
    """
    gold_lines, test_lines = list(read_lines(gold)), list(read_lines(test))
    if not gold_lines:
        raise UserError(f"{gold}: empty; nothing to score")
    if len(gold_lines) != len(test_lines):
        raise UserError(
            f"{gold} has {len(gold_lines):,} lines, {test} has {len(test_lines):,}; "
            "line n of one must belong to line n of the other"
        )
    errors = 0
    for sentence in score_trees(gold_lines, test_lines, parameters, gold):
        errors += sentence.status == Status.ERROR
        if errors > parameters.max_error + 1:
            raise UserError(
                f"{test}:{sentence.number}: {sentence.message}: error {errors}, more than MAX_ERROR "
                f"{parameters.max_error} allows; fix the file, or give a higher --max_error"
            )
        yield sentence


def score_trees(
    gold: Sequence[str], test: Sequence[str], parameters: Parameters = COLLINS, gold_name: str = "reference"
) -> Iterator[Sentence]:
    """Yields the counts of each sentence. Line n of `gold` and line n of `test` have the trees of sentence n.

    A test line that is not a tree gets status ERROR, but EVALB itself may stop there. A line without words gets SKIP. A
    gold line that is not a tree raises UserError; `gold_name` is the name of the gold lines in its message.
    """
    gold_trees = []
    for number, line in enumerate(gold, 1):
        trees, fault = _parse_line(line)
        if not trees:
            raise UserError(f"{gold_name}:{number}: {fault or 'no tree; every gold line needs one'}")
        gold_trees.append(trees)
    for number, (trees, line) in enumerate(zip(gold_trees, test, strict=True), 1):
        test_trees, fault = _parse_line(line)
        sentence = score(trees, test_trees, parameters, number)
        if fault:
            sentence = Sentence(number, sentence.length, Status.ERROR, message=f"Not a tree ({fault})")
        yield sentence


def score(gold: Sequence[Tree], test: Sequence[Tree], parameters: Parameters = COLLINS, number: int = 1) -> Sentence:
    """Returns the counts of one sentence, whose line of each file has these trees, usually one or none."""
    gold_sentence, test_sentence = (BracketedSentence.from_trees(trees, parameters) for trees in (gold, test))
    length = gold_sentence.length
    if not test_sentence.words:
        return Sentence(number, length, Status.SKIP)
    if len(gold_sentence.words) != len(test_sentence.words):
        insert_missing_quotes(gold_sentence, test_sentence, parameters)
    if len(gold_sentence.words) != len(test_sentence.words):
        message = f"Length unmatch ({len(gold_sentence.words)}|{len(test_sentence.words)})"
        return Sentence(number, length, Status.ERROR, message=message)
    pairs = list(zip(gold_sentence.words, test_sentence.words, strict=True))
    for (_, gold_word), (_, test_word) in pairs:
        if not parameters.same_word(gold_word, test_word):
            return Sentence(number, length, Status.ERROR, message=f"Words unmatch ({gold_word}|{test_word})")
    gold_spans, test_spans = gold_sentence.spans(parameters), test_sentence.spans(parameters)
    return Sentence(
        number,
        length,
        matched=count_matches(gold_spans, test_spans, parameters),
        gold=len(gold_spans),
        test=len(test_spans),
        crossing=count_crossings(gold_spans, test_spans),
        words=len(pairs),
        correct_tags=sum(parameters.same_label(gold_tag, test_tag) for (gold_tag, _), (test_tag, _) in pairs),
    )


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _parse_line(line: str) -> tuple[list[Tree], str]:
    """Returns the trees in a line and "", or no trees and an error message. Empty brackets are ignored, as in EVALB."""
    count = 1
    while count:
        line, count = EMPTY_BRACKET.subn("", line)
    try:
        return list(parse_trees([line], "")), ""
    except UserError as error:
        return [], str(error).partition(": ")[2]  # without file and line, which the caller adds
