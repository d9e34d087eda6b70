"""Labelled bracketing scores of parse trees, counted as by EVALB's C program, also for malformed
lines.

EVALB is Sekine and Collins's scorer (1997) with David Ellis's fix for mislabelled quotation marks
(2006). EVALB cuts a constituent's label at the first "-" or "=", even if that is the label's first
character. docs/parsing.md has the rules for malformed lines, and lists EVALB's limits, which this
code does not have.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from enum import IntEnum

from t2t_repro.errors import UserError, refuse_different_counts
from t2t_repro.files.textfile import read_lines
from t2t_repro.parsing.brackets import (
    BracketedSentence,
    count_crossings,
    count_matches,
    insert_missing_quotes,
)
from t2t_repro.parsing.evalb_parameters import COLLINS, Parameters


class Status(IntEnum):
    """EVALB's status of a sentence. Only sentences with status OK enter the scores."""

    OK = 0
    ERROR = 1
    SKIP = 2


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of one sentence, or sums over several. If a sentence is skipped or its words differ,
    all counts are 0.
    """

    matched: int = 0
    """Gold brackets that the test tree also has."""
    gold: int = 0
    """Brackets in the gold tree."""
    test: int = 0
    """Brackets in the test tree."""
    crossing: int = 0
    """Test brackets that cross a gold bracket: the two overlap, and neither contains the other."""
    words: int = 0
    """Words whose tag is not in `delete_label`."""
    correct_tags: int = 0
    """Words that are counted in `words` and have the same tag in both trees."""

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
    """The counts of one sentence, as in a row of EVALB's output."""

    number: int
    """Line number, starting at 1."""
    length: int
    """Number of words of the gold tree whose tag is not in `delete_label_for_length`."""
    status: Status = Status.OK
    """OK, ERROR (the words differ, or brackets do not fit) or SKIP (no word of the test line
    counts).
    """
    messages: tuple[str, ...] = ()
    """EVALB's messages about the sentence. Each of them counts as an error for MAX_ERROR."""


@dataclass(frozen=True, kw_only=True)
class Summary(Counts):
    """EVALB's summary of several sentences. A sentence is valid if its status is OK."""

    sentences: int
    errors: int
    """Number of sentences with status ERROR."""
    skipped: int
    """Number of sentences with status SKIP."""
    valid: int
    complete_match: float
    """Percentage of valid sentences whose test brackets equal the gold brackets."""
    average_crossing: float
    """Crossing brackets per valid sentence."""
    no_crossing: float
    """Percentage of valid sentences without crossing brackets."""
    two_or_less_crossing: float
    """Percentage of valid sentences with at most 2 crossing brackets."""

    @property
    def f_measure(self) -> float:
        """Harmonic mean of recall and precision; NaN if both are 0."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else math.nan


def summarise(sentences: Iterable[Sentence]) -> Summary:
    """Returns the summary of `sentences`. For EVALB's second summary, pass only those of up to
    `cutoff_len` words.
    """
    sentences = list(sentences)
    statuses = [sentence.status for sentence in sentences]
    valid = [sentence for sentence in sentences if sentence.status == Status.OK]
    crossings = [sentence.crossing for sentence in valid]
    complete = sum(sentence.matched == sentence.gold == sentence.test for sentence in valid)
    return Summary(
        sentences=len(sentences),
        errors=statuses.count(Status.ERROR),
        skipped=statuses.count(Status.SKIP),
        valid=len(valid),
        **{
            field.name: sum(getattr(sentence, field.name) for sentence in valid)
            for field in fields(Counts)
        },
        complete_match=_percent(complete, len(valid)),
        average_crossing=sum(crossings) / len(valid) if valid else 0.0,
        no_crossing=_percent(crossings.count(0), len(valid)),
        two_or_less_crossing=_percent(sum(count <= 2 for count in crossings), len(valid)),
    )


def score_files(gold: str, test: str, parameters: Parameters = COLLINS) -> Iterator[Sentence]:
    """Yields the counts of each sentence in two files that have one tree per line.

    Raises UserError if the files do not have the same number of lines, at a word at which EVALB
    stops, or if there are more errors than `parameters.max_error` allows.
    """
    gold_lines = list(read_lines(gold))
    test_lines = list(read_lines(test))
    cure = "line n of one must belong to line n of the other"
    refuse_different_counts((gold, test), (len(gold_lines), len(test_lines)), cure)
    errors = 0
    for sentence in score_trees(gold_lines, test_lines, parameters, (gold, test)):
        for message in sentence.messages:
            errors += 1
            if errors > parameters.max_error + 1:
                raise UserError(
                    f"{test}:{sentence.number}: {message}: error {errors}, more than MAX_ERROR "
                    f"{parameters.max_error} allows; fix the file, or give a higher --max_error"
                )
        yield sentence


def score_trees(
    gold: Iterable[str],
    test: Iterable[str],
    parameters: Parameters = COLLINS,
    names: tuple[str, str] = ("reference", "output"),
) -> Iterator[Sentence]:
    """Yields the counts of each sentence. Line n of `gold` and line n of `test` have the trees of
    sentence n.

    Raises UserError at a word at which EVALB stops. Its message calls the gold lines and the test
    lines by `names`.
    """
    gold_name, test_name = names
    for number, (gold_line, test_line) in enumerate(zip(gold, test, strict=True), 1):
        gold_tree = BracketedSentence.read(gold_line, parameters, f"{gold_name}:{number}")
        test_tree = BracketedSentence.read(test_line, parameters, f"{test_name}:{number}")
        yield _score(gold_tree, test_tree, parameters, number)


def _score(
    gold: BracketedSentence, test: BracketedSentence, parameters: Parameters, number: int
) -> Sentence:
    faults = (*gold.faults, *test.faults)
    if not test.words:
        return Sentence(number, gold.length, Status.SKIP, faults)
    if len(gold.words) != len(test.words):
        insert_missing_quotes(gold, test, parameters)
    if len(gold.words) != len(test.words):
        message = f"Length unmatch ({len(gold.words)}|{len(test.words)})"
        return Sentence(number, gold.length, Status.ERROR, (*faults, message))
    pairs = list(zip(gold.words, test.words, strict=True))
    for (_, gold_word), (_, test_word) in pairs:
        if not parameters.same_word(gold_word, test_word):
            message = f"Words unmatch ({gold_word}|{test_word})"
            return Sentence(number, gold.length, Status.ERROR, (*faults, message))
    gold_spans = gold.spans(parameters)
    test_spans = test.spans(parameters)
    return Sentence(
        number,
        gold.length,
        Status.ERROR if faults else Status.OK,
        faults,
        matched=count_matches(gold_spans, test_spans, parameters),
        gold=len(gold_spans),
        test=len(test_spans),
        crossing=count_crossings(gold_spans, test_spans),
        words=len(pairs),
        correct_tags=sum(
            parameters.same_label(gold_tag, test_tag) for (gold_tag, _), (test_tag, _) in pairs
        ),
    )


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
