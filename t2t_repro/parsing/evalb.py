"""Labelled bracketing scores of parse trees, figure for figure those of EVALB.

EVALB is Sekine and Collins's scorer (1997) with David Ellis's fix for mislabelled quotation marks (2006). What it does
and its README leaves open is written here too: it cuts a constituent's label at the first "-" or "=", even where the
label begins with one; and it counts as errors the sentences whose words differ between the two files.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from t2t_repro.errors import UserError, unknown
from t2t_repro.parsing.trees import Tree, parse_trees
from t2t_repro.textfile import read_lines

EMPTY = re.compile(r"\s*\([^\s()]*\)\s*(?=[()]|$)")
"""A bracket around nothing, "(NP)" or "()", but before a stray word."""

QUOTES = frozenset({"'", '"', "/"})
"""The words that the fix of 2006 puts back."""

NUMBERS = ("DEBUG", "MAX_ERROR", "CUTOFF_LEN", "LABELED")
LABELS = ("DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL")
PAIRS = ("EQ_LABEL", "EQ_WORD")


@dataclass(frozen=True)
class Parameters:
    """What to count; by default as EVALB's COLLINS.prm says, by which results on the Penn Treebank are published.

    Attributes:
        max_error: the scoring ends, as EVALB's does, at the second error more than this.
        cutoff_len: the longest sentence of the second summary, in words.
        labeled: a bracket matches if its label does too, not its span alone.
        delete_label: constituents and words that do not count; of a constituent, what is in it stays.
        delete_label_for_length: tags of words that do not count in a sentence's length.
        quote_label: tags under which a quotation mark may stand that the other tree does not count.
        eq_label: pairs of labels that count as the same.
        eq_word: pairs of words that count as the same.
    """

    max_error: int = 10
    cutoff_len: int = 40
    labeled: bool = True
    delete_label: frozenset[str] = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
    delete_label_for_length: frozenset[str] = frozenset({"-NONE-"})
    quote_label: frozenset[str] = frozenset()
    eq_label: frozenset[tuple[str, str]] = frozenset({("ADVP", "PRT")})
    eq_word: frozenset[tuple[str, str]] = frozenset()

    def same_label(self, one: str, other: str) -> bool:
        """Whether two labels are equal or count as the same."""
        return one == other or (one, other) in self.eq_label or (other, one) in self.eq_label

    def same_word(self, one: str, other: str) -> bool:
        """Whether two words are equal or count as the same."""
        return one == other or (one, other) in self.eq_word or (other, one) in self.eq_word


COLLINS = Parameters()


class Status(IntEnum):
    """How a sentence fared; the last two have no part in the scores."""

    OK = 0
    ERROR = 1
    SKIP = 2


@dataclass(frozen=True, slots=True)
class Sentence:
    """EVALB's row for one sentence; recall, precision and tagging accuracy are percentages.

    Attributes:
        number: of the line, from 1.
        length: the gold tree's words, those of `delete_label_for_length` aside.
        status: ok, error (words differ, or the test line is no tree) or skip (no words in the test line).
        matched: gold brackets that the test tree has too. As all below: 0 unless the status is ok.
        gold: brackets in the gold tree.
        test: brackets in the test tree.
        crossing: test brackets that cross a gold bracket.
        words: words counted, those of `delete_label` aside.
        correct_tags: words with the gold tree's tag.
        message: what the error is; "" for no error.
    """

    number: int
    length: int
    status: Status = Status.OK
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    words: int = 0
    correct_tags: int = 0
    message: str = ""

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
class Summary:
    """EVALB's summary of several sentences.

    Attributes:
        sentences: how many; `errors`, `skipped` and `valid` of them.
        matched: as of a `Sentence`, summed over the valid ones; so are `gold` to `correct_tags`.
        recall: 0 to 100; so are `precision` and `f_measure`, which is NaN if both are 0.
        complete_match: percentage of valid sentences whose brackets are all the gold tree's and all there.
        average_crossing: crossing brackets per valid sentence.
        no_crossing: percentage of valid sentences without.
        two_or_less_crossing: percentage of valid sentences with at most two.
        tagging_accuracy: percentage of words.
    """

    sentences: int
    errors: int
    skipped: int
    valid: int
    matched: int
    gold: int
    test: int
    crossing: int
    words: int
    correct_tags: int
    recall: float
    precision: float
    f_measure: float
    complete_match: float
    average_crossing: float
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float


def summarise(sentences: Iterable[Sentence]) -> Summary:
    """The summary of all `sentences`; for EVALB's second one, give those of at most `cutoff_len` words."""
    sentences = list(sentences)
    valid = [sentence for sentence in sentences if sentence.status == Status.OK]
    names = ("matched", "gold", "test", "crossing", "words", "correct_tags")
    sums = {name: sum(getattr(sentence, name) for sentence in valid) for name in names}
    recall, precision = _percent(sums["matched"], sums["gold"]), _percent(sums["matched"], sums["test"])
    return Summary(
        sentences=len(sentences),
        errors=sum(sentence.status == Status.ERROR for sentence in sentences),
        skipped=sum(sentence.status == Status.SKIP for sentence in sentences),
        valid=len(valid),
        **sums,
        recall=recall,
        precision=precision,
        f_measure=2 * precision * recall / (precision + recall) if precision + recall else math.nan,
        complete_match=_percent(sum(one.matched == one.gold == one.test for one in valid), len(valid)),
        average_crossing=sums["crossing"] / len(valid) if valid else 0.0,
        no_crossing=_percent(sum(one.crossing == 0 for one in valid), len(valid)),
        two_or_less_crossing=_percent(sum(one.crossing <= 2 for one in valid), len(valid)),
        tagging_accuracy=_percent(sums["correct_tags"], sums["words"]),
    )


def score_files(gold: str, test: str, parameters: Parameters = COLLINS) -> Iterator[Sentence]:
    """Scores line after line of two files with a tree a line.

    A test line that is no tree counts as an error, where EVALB may end; one without words, e.g. empty, as a skip.

    Raises:
        UserError: a file is missing or the gold file empty, the line counts differ, a gold line is no tree, or there
            are more errors than `parameters.max_error` lets pass.
    """
    gold_lines, test_lines = list(read_lines(gold)), list(read_lines(test))
    if not gold_lines:
        raise UserError(f"{gold}: empty; nothing to score")
    if len(gold_lines) != len(test_lines):
        raise UserError(
            f"{gold} has {len(gold_lines):,} lines, {test} has {len(test_lines):,}; "
            "line n of one must belong to line n of the other"
        )
    gold_trees = []
    for number, line in enumerate(gold_lines, 1):
        trees, fault = _trees(line)
        if not trees:
            raise UserError(f"{gold}:{number}: {fault or 'no tree; every gold line needs one'}")
        gold_trees.append(trees)
    errors = 0
    for number, (trees, line) in enumerate(zip(gold_trees, test_lines, strict=True), 1):
        found, fault = _trees(line)
        sentence = score(trees, found, parameters, number)
        if fault:
            sentence = Sentence(number, sentence.length, Status.ERROR, message=f"Not a tree ({fault})")
        if sentence.message:
            errors += 1
            if errors > parameters.max_error + 1:
                raise UserError(
                    f"{test}:{number}: {sentence.message}: error {errors}, and the scoring ends there by MAX_ERROR "
                    f"{parameters.max_error}; mend the file or raise MAX_ERROR"
                )
        yield sentence


def score(gold: Sequence[Tree], test: Sequence[Tree], parameters: Parameters = COLLINS, number: int = 1) -> Sentence:
    """Scores one sentence.

    Args:
        gold: its tree; as of `test`, there may be several side by side, or none.
        number: the sentence's, for its row.
    """
    gold_side, test_side = _Side.of(gold, parameters), _Side.of(test, parameters)
    length = gold_side.length
    if not test_side.words:
        return Sentence(number, length, Status.SKIP)
    if len(gold_side.words) != len(test_side.words):
        _reinsert_quotes(gold_side, test_side, parameters)
    if len(gold_side.words) != len(test_side.words):
        message = f"Length unmatch ({len(gold_side.words)}|{len(test_side.words)})"
        return Sentence(number, length, Status.ERROR, message=message)
    pairs = list(zip(gold_side.words, test_side.words, strict=True))
    for (_, word), (_, other) in pairs:
        if not parameters.same_word(word, other):
            return Sentence(number, length, Status.ERROR, message=f"Words unmatch ({word}|{other})")
    gold_brackets, test_brackets = gold_side.counted(parameters), test_side.counted(parameters)
    return Sentence(
        number,
        length,
        matched=_matched(gold_brackets, test_brackets, parameters),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=_crossing(gold_brackets, test_brackets),
        words=len(pairs),
        correct_tags=sum(parameters.same_label(tag, other) for (tag, _), (other, _) in pairs),
    )


def read_parameters(path: str) -> Parameters:
    """The parameters in a file of EVALB's form: a name and its value a line, "#" before a comment.

    What the file does not name is as in EVALB without a file: no labels are deleted, none are equal.

    Raises:
        UserError: the file is missing, or a line has an unknown name, a wrong value, or asks for DEBUG.
    """
    values: dict[str, Any] = {name.lower(): frozenset() for name in (*LABELS, *PAIRS)}
    for number, line in enumerate(read_lines(path), 1):
        name, *words = line.split() or ["#"]
        if name.startswith("#"):
            continue
        place, key = f"{path}:{number}", name.lower()
        if name not in (*NUMBERS, *LABELS, *PAIRS):
            raise UserError(f"{place}: {unknown('EVALB parameter', name, (*NUMBERS, *LABELS, *PAIRS))}")
        if len(words) != 1 + (name in PAIRS):
            raise UserError(f"{place}: {name} takes {'two values' if name in PAIRS else 'one value'}, not {len(words)}")
        if name in PAIRS:
            values[key] |= {tuple(words)}
        elif name in LABELS:
            values[key] |= {words[0]}
        elif not re.fullmatch("[0-9]{1,9}", words[0]):
            raise UserError(f"{place}: {name} takes a whole number of at most 9 digits, not {words[0]!r}")
        else:
            values[key] = int(words[0])
        if values.get("debug"):
            raise UserError(f"{place}: DEBUG {words[0]}: listings of brackets are not to be had here; write DEBUG 0")
    values.pop("debug", None)
    values["labeled"] = bool(values.get("labeled", True))
    return Parameters(**values)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _trees(line: str) -> tuple[list[Tree], str]:
    """The trees in a line, or why it is none; brackets around nothing are dropped, as EVALB drops them."""
    found = 1
    while found:
        line, found = EMPTY.subn("", line)
    try:
        return list(parse_trees([line], "")), ""
    except UserError as error:
        return [], str(error).partition(": ")[2]  # after the place, which is the caller's to name


@dataclass(slots=True)
class _Bracket:
    """A constituent over the words from `start` up to before `end`."""

    label: str
    start: int
    end: int = -1


@dataclass(slots=True)
class _Quote:
    """A quotation mark that may have to be put back among the words that count.

    Attributes:
        place: among the words that count, it is the one or comes before the one of this number.
        before: how many brackets began before it.
        around: the brackets it stands in.
    """

    tag: str
    word: str
    place: int
    before: int
    around: list[_Bracket]


@dataclass(slots=True)
class _Side:
    """One side's trees as EVALB sees them.

    Attributes:
        words: tag and word of those that count.
        brackets: all constituents, in the order in which they begin.
        quotes: the quotation marks with one of the tags of `quote_label`.
        length: in words, those of `delete_label_for_length` aside.
    """

    words: list[tuple[str, str]] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    quotes: list[_Quote] = field(default_factory=list)
    length: int = 0

    @classmethod
    def of(cls, trees: Sequence[Tree], parameters: Parameters) -> _Side:
        side = cls()
        opened: list[_Bracket] = []
        waiting: list[Tree | _Bracket] = list(reversed(trees))  # a bracket waits for the end of what is in it
        while waiting:
            item = waiting.pop()
            if isinstance(item, _Bracket):
                item.end = len(side.words)
                opened.pop()
            elif item.word:
                side.length += item.label not in parameters.delete_label_for_length
                if item.label in parameters.quote_label and item.word in QUOTES:
                    place, before = len(side.words), len(side.brackets)
                    side.quotes.append(_Quote(item.label, item.word, place, before, list(opened)))
                if item.label not in parameters.delete_label:
                    side.words.append((item.label, item.word))
            else:
                bracket = _Bracket(item.label, len(side.words))
                side.brackets.append(bracket)
                opened.append(bracket)
                waiting.append(bracket)
                waiting.extend(reversed(item.children))
        return side

    def reinsert(self, number: int) -> None:
        """Puts quotation mark `number` among the words that count."""
        quote = self.quotes[number]
        self.words.insert(quote.place, (quote.tag, quote.word))
        for bracket in self.brackets[quote.before :]:
            bracket.start += 1
            bracket.end += 1
        for bracket in quote.around:
            bracket.end += 1
        for later in self.quotes[number:]:
            later.place += 1

    def counted(self, parameters: Parameters) -> list[tuple[str, int, int]]:
        """Label, start and end of the brackets that count: those with words and without a label to delete."""
        brackets = []
        for bracket in self.brackets:
            label = bracket.label.partition("-")[0].partition("=")[0]
            deleted = any(parameters.same_label(label, other) for other in parameters.delete_label)
            if bracket.start < bracket.end and not deleted:
                brackets.append((label, bracket.start, bracket.end))
        return brackets


def _reinsert_quotes(gold: _Side, test: _Side, parameters: Parameters) -> None:
    """Where one tree counts a quotation mark that the other deletes, makes it count in both (the fix of 2006)."""
    deleted = parameters.delete_label
    for i, quote in enumerate(test.quotes):
        place = quote.place  # as it was: putting marks back moves the later ones
        for j, other in enumerate(gold.quotes):
            if other.place == place and other.tag in deleted and quote.tag not in deleted:
                gold.reinsert(j)
            elif other.place == place and quote.tag in deleted and other.tag not in deleted:
                test.reinsert(i)


def _matched(gold: list[tuple[str, int, int]], test: list[tuple[str, int, int]], parameters: Parameters) -> int:
    """How many gold brackets find a test bracket of their own; each takes the first that fits."""
    left = defaultdict(list)
    for label, start, end in test:
        left[start, end].append(label)
    matched = 0
    for label, start, end in gold:
        labels = left[start, end]
        for other in labels:
            if not parameters.labeled or parameters.same_label(label, other):
                labels.remove(other)
                matched += 1
                break
    return matched


def _crossing(gold: list[tuple[str, int, int]], test: list[tuple[str, int, int]]) -> int:
    """How many test brackets share words with a gold bracket while neither holds the other."""
    spans = {(start, end) for _, start, end in gold}
    return sum(
        any(start < first < end < last or first < start < last < end for start, end in spans) for _, first, last in test
    )
