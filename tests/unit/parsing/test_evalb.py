"""Tests that bracketing scores equal those counted by hand, and those of a brute-force comparison."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import write_lines
from t2t_repro.errors import UserError
from t2t_repro.parsing.evalb import EMPTY_BRACKET, Sentence, Status, score, score_files, summarise
from t2t_repro.parsing.evalb_parameters import COLLINS, Parameters
from t2t_repro.parsing.trees import Tree, parse_trees

DELETE_NOTHING = Parameters(delete_label=frozenset(), delete_label_for_length=frozenset(), eq_label=frozenset())
QUOTING = dataclasses.replace(COLLINS, quote_label=frozenset({"``", "''", "POS", "NN"}))

GOLD = "(TOP (S (NP-SBJ (PRP She)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NN cat)))) (. .)))"
TEST = "(S (NP (PRP She)) (VP (VBD saw) (NP (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NNS cat))))) (. .))"


def scored(gold: str, test: str, parameters: Parameters = COLLINS) -> Sentence:
    return score(list(parse_trees([gold], "gold")), list(parse_trees([test], "test")), parameters)


def counts(sentence: Sentence) -> tuple[int, int, int]:
    return sentence.matched, sentence.gold, sentence.test


def random_tree(generator: random.Random, words: list[Tree]) -> Tree:
    """Returns a random tree over `words`. Constituents have one to four children."""
    if len(words) == 1 and generator.random() < 0.7:
        return words[0]
    cuts = sorted(generator.sample(range(1, len(words)), min(len(words) - 1, generator.randrange(4))))
    parts = [words[start:end] for start, end in zip([0, *cuts], [*cuts, len(words)], strict=True)]
    return Tree(generator.choice(["S", "NP", "VP"]), tuple(random_tree(generator, part) for part in parts))


def random_pairs(number: int) -> Iterator[tuple[Tree, Tree]]:
    """Yields `number` random pairs of trees. Both trees of a pair have the same words."""
    generator = random.Random(7)
    for _ in range(number):
        words = [Tree("X", word=f"w{i}") for i in range(generator.randint(2, 9))]
        yield Tree("S", (random_tree(generator, words),)), Tree("S", (random_tree(generator, words),))


def constituents(tree: Tree) -> Iterator[tuple[str, frozenset[str]]]:
    """Yields each constituent's label and set of words. No word occurs twice in a tree, so a set stands for a span."""
    if not tree.word:
        yield tree.label, frozenset(leaf.word for leaf in tree.leaves())
        for child in tree.children:
            yield from constituents(child)


def test_a_sentence_has_the_counts_made_by_hand() -> None:
    """All six brackets of the gold tree match. The test tree has one more NP. TOP and the full stop do not count."""
    sentence = scored(GOLD, TEST)
    assert sentence == Sentence(1, 8, Status.OK, matched=6, gold=6, test=7, crossing=0, words=7, correct_tags=6)
    assert sentence.recall == 100
    assert sentence.precision == pytest.approx(600 / 7)
    assert sentence.tagging_accuracy == pytest.approx(600 / 7)


def test_a_tree_matches_itself() -> None:
    for tree, _ in random_pairs(100):
        sentence = score([tree], [tree], DELETE_NOTHING)
        percentages = (sentence.recall, sentence.precision, sentence.tagging_accuracy)
        assert (sentence.status, *percentages) == (Status.OK, 100, 100, 100)
        assert (sentence.matched, sentence.crossing) == (sum(1 for _ in constituents(tree)), 0)


def test_matches_equal_brute_force() -> None:
    repeated = 0
    for gold, test in random_pairs(300):
        common = Counter(constituents(gold)) & Counter(constituents(test))
        sizes = [sum(1 for _ in constituents(tree)) for tree in (gold, test)]
        assert counts(score([gold], [test], DELETE_NOTHING)) == (common.total(), *sizes)
        repeated += max(Counter(constituents(gold)).values()) > 1
    assert repeated > 30  # many of the trees have two equal brackets


def test_unlabelled_matches_equal_brute_force() -> None:
    unlabelled = dataclasses.replace(DELETE_NOTHING, labeled=False)
    for gold, test in random_pairs(300):
        spans = [Counter(words for _, words in constituents(tree)) for tree in (gold, test)]
        assert score([gold], [test], unlabelled).matched == (spans[0] & spans[1]).total()


def test_crossings_equal_brute_force() -> None:
    several = 0
    for gold, test in random_pairs(300):
        expected = 0
        for _, words in constituents(test):
            crossed = [
                other for _, other in constituents(gold) if words & other and not (words <= other or other <= words)
            ]
            expected += bool(crossed)
            several += len(crossed) > 1
        assert score([gold], [test], DELETE_NOTHING).crossing == expected
    assert several > 30


def test_crossings_are_counted_by_test_brackets() -> None:
    one, two = "(S (X a) (B (X b) (X c)))", "(S (A (A (X a) (X b))) (X c))"
    assert scored(two, one).crossing == 1
    assert scored(one, two).crossing == 2


@pytest.mark.parametrize(("gold", "test"), [(1, 1), (3, 1), (1, 3), (2, 3)])
def test_equal_brackets_match_one_to_one(gold: int, test: int) -> None:
    def chain(length: int) -> str:
        return "(NP " * length + "(NN dog)" + ")" * length

    assert counts(scored(chain(gold), chain(test))) == (min(gold, test), gold, test)


@pytest.mark.parametrize(
    ("gold", "test", "expected"),
    [
        ("(S (NP-SBJ (N a)) (VP=2 (V b)))", "(S (NP=1 (N a)) (VP-X-Y=2 (V b)))", (3, 3, 3)),
        ("(S (NP|X (N a)))", "(S (NP (N a)))", (1, 2, 2)),
        # EVALB also cuts a label at a hyphen that is its first character: both labels become "".
        ("(-A- (N a))", "(-B- (N a))", (1, 1, 1)),
        # EVALB cuts TOP-1 to TOP before it compares the label with DELETE_LABEL, so this bracket does not count.
        ("(TOP-1 (S (N a)))", "(S (N a))", (1, 1, 1)),
        # Traces do not count, and neither do constituents that contain only traces.
        ("(S (NP (-NONE- *)) (VP (V b) (SBAR (-NONE- 0) (S (-NONE- *T*)))))", "(S (VP (V b)))", (2, 2, 2)),
        ("(S (, ,) (NP (N a)) (. .))", "(S (NP (, ,) (N a) (. .)))", (2, 2, 2)),
        # An outer bracket without a label counts.
        ("((S (N a)))", "(S (N a))", (1, 2, 1)),
        # A line may hold several trees.
        ("(S (N a) (N b))", "(N a) (N b)", (0, 1, 0)),
    ],
)
def test_labels_words_and_traces_decide_which_brackets_count(
    gold: str, test: str, expected: tuple[int, int, int]
) -> None:
    assert counts(scored(gold, test)) == expected


def test_tags_are_not_cut() -> None:
    assert scored("(S (N-1 a) (M b))", "(S (N a) (M b))").correct_tags == 1


def test_equal_labels_match() -> None:
    for gold, test in (("ADVP", "PRT"), ("PRT", "ADVP")):
        sentence = scored(f"(S ({gold} ({gold} up)))", f"(S ({test} ({test} up)))")
        assert (sentence.matched, sentence.correct_tags) == (2, 1)
    equal = dataclasses.replace(COLLINS, eq_label=frozenset({("A", "B"), ("B", "C"), ("ROOT", "TOP")}))
    assert scored("(A (N a))", "(C (N a))", equal).matched == 0
    # ROOT is deleted like TOP, because `equal` makes the two labels equal.
    assert counts(scored("(ROOT (A (N a)))", "(B (N a))", equal)) == (1, 1, 1)
    assert scored("(S (TOP a) (N b))", "(S (TOP a) (N b))", equal).words == 1
    # As a tag of a word, ROOT is not deleted, although TOP is.
    assert scored("(S (ROOT a) (N b))", "(S (ROOT a) (N b))", equal).words == 2


def test_equal_words_match() -> None:
    equal = dataclasses.replace(COLLINS, eq_word=frozenset({("This", "this")}))
    for gold, test in (("This", "this"), ("this", "This")):
        assert scored(f"(S (P {gold}))", f"(S (P {test}))", equal).status == Status.OK
        assert scored(f"(S (P {gold}))", f"(S (P {test}))").message == f"Words unmatch ({gold}|{test})"


def test_the_length_counts_the_gold_words_without_traces() -> None:
    """A sentence's length includes punctuation. Sentences with status ERROR or SKIP also have a length."""
    gold = "(S (N a) (, ,) (-NONE- *) (N b) (. .))"
    assert [scored(gold, test).length for test in (gold, "(S (N a))", "(. .)")] == [4, 4, 4]
    assert scored(gold, gold).words == 2


def test_other_words_are_an_error_and_no_words_are_skipped() -> None:
    assert scored("(S (N a) (N b))", "(S (N a))") == Sentence(1, 2, Status.ERROR, message="Length unmatch (2|1)")
    assert scored("(S (N a) (N b))", "(S (N a) (N c))") == Sentence(1, 2, Status.ERROR, message="Words unmatch (b|c)")
    assert scored("(S (N a))", "(S (. .))") == Sentence(1, 1, Status.SKIP)
    assert scored("(S (. .))", "(S (. .))") == Sentence(1, 1, Status.SKIP)


@pytest.mark.parametrize("mark", ["'", '"', "/"])
def test_quotation_marks_that_only_one_tree_deletes_count_in_both(mark: str) -> None:
    """If only tree `one` loses its quotation marks, the scorer inserts the marks again. Then `one` has 5 words."""
    one = f"(S (NP (DT the) (`` {mark}) (NN dog) ('' {mark})) (VP (VBZ barks)))"
    other = f"(S (NP (DT the) (POS {mark}) (NN dog)) (VP (NN {mark}) (VBZ barks)))"
    expected = Sentence(1, 5, matched=1, gold=3, test=3, crossing=1, words=5, correct_tags=3)
    assert scored(one, other, QUOTING) == expected
    assert scored(other, one, QUOTING) == expected
    assert scored(one, other).message == "Length unmatch (3|5)"
    # Marks that both trees delete stay deleted.
    assert scored(one, one, QUOTING).words == 3


def test_only_quotation_marks_are_inserted() -> None:
    assert scored("(S (N a) (`` x))", "(S (N a) (NN x))", QUOTING).message == "Length unmatch (1|2)"
    # The scorer inserts the quotation mark, but not b, into the first tree, which then has 2 words.
    assert scored("(S (N a) (`` '))", "(S (N a) (NN ') (N b))", QUOTING).message == "Length unmatch (2|3)"


def test_deep_trees_are_scored() -> None:
    deep = "(NP " * 5000 + "(N a)" + ")" * 5000
    assert counts(scored(deep, deep)) == (5000, 5000, 5000)


def test_a_summary_has_the_figures_made_by_hand() -> None:
    sentences = [
        Sentence(1, 10, matched=4, gold=4, test=4, crossing=0, words=8, correct_tags=8),
        Sentence(2, 41, matched=3, gold=6, test=5, crossing=3, words=8, correct_tags=6),
        Sentence(3, 10, Status.ERROR, message="Words unmatch (a|b)"),
        Sentence(4, 10, Status.SKIP),
        Sentence(5, 10, matched=3, gold=3, test=4, crossing=2, words=4, correct_tags=3),
    ]
    expected = {"sentences": 5, "errors": 1, "skipped": 1, "valid": 3}
    expected |= {"matched": 10, "gold": 13, "test": 13, "crossing": 5, "words": 20, "correct_tags": 17}
    figures = {"recall": 1000 / 13, "precision": 1000 / 13, "f_measure": 1000 / 13, "tagging_accuracy": 85}
    figures |= {"complete_match": 100 / 3, "average_crossing": 5 / 3, "no_crossing": 100 / 3}
    expected |= figures | {"two_or_less_crossing": 200 / 3}
    summary = summarise(sentences)
    assert {name: getattr(summary, name) for name in expected} == pytest.approx(expected)


def test_the_f_measure_is_nan_if_nothing_was_scored() -> None:
    assert summarise([Sentence(1, 4, matched=1, gold=1, test=3)]).f_measure == pytest.approx(50)
    summary = summarise([Sentence(1, 4, Status.SKIP)])
    assert math.isnan(summary.f_measure)
    assert (summary.recall, summary.average_crossing, summary.tagging_accuracy) == (0, 0, 0)


def statuses(folder: Path, gold: list[str], test: list[str], max_error: int = 10) -> list[tuple[int, str]]:
    gold_path, test_path = write_lines(folder / "x.gold", gold), write_lines(folder / "x.test", test)
    sentences = score_files(gold_path, test_path, dataclasses.replace(COLLINS, max_error=max_error))
    return [(sentence.status, sentence.message) for sentence in sentences]


@pytest.mark.parametrize(
    ("test", "status", "message"),
    [
        ("(S (N a))", Status.OK, ""),
        ("", Status.SKIP, ""),
        ("()", Status.SKIP, ""),
        (" (TOP (S) (VP (NP) ) )", Status.SKIP, ""),
        ("(S (N a) (NP) (VP (X)))", Status.OK, ""),
        ("(S (N a)", Status.ERROR, "Not a tree (a tree starts here but never ends; fix the brackets)"),
        ("(S (N a)))", Status.ERROR, "Not a tree (')' is outside a tree; fix the brackets)"),
        ("no parse", Status.ERROR, "Not a tree ('no' is outside a tree; fix the brackets)"),
        ("(S (N a b))", Status.ERROR, "Not a tree (cannot read '(N a b ...)'; write a tagged word, (TAG word), or "),
        ("(S (N a) (X) b)", Status.ERROR, "Not a tree (cannot read '(X ...)'; "),
        ("(S (N ) (N a))", Status.ERROR, "Not a tree (cannot read '(N ...)'; "),
    ],
)
def test_a_test_line_that_is_no_tree_is_an_error_of_its_sentence_only(
    test: str, status: Status, message: str, tmp_path: Path
) -> None:
    (actual_status, actual_message), second = statuses(tmp_path, ["(S (N a))"] * 2, [test, "(S (N a))"])
    assert actual_status == status
    assert actual_message.startswith(message) and bool(actual_message) == bool(message)
    assert second == (Status.OK, "")


def test_files_are_scored_line_by_line(tmp_path: Path) -> None:
    gold = write_lines(tmp_path / "gold", [GOLD, "(S (N a))"])
    test = write_lines(tmp_path / "test", [TEST, "(S (NP (N a)))"])
    sentences = list(score_files(gold, test))
    assert [sentence.number for sentence in sentences] == [1, 2]
    assert [counts(sentence) for sentence in sentences] == [(6, 6, 7), (1, 1, 2)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no tree;"),
        ("(S)", "no tree;"),
        ("(S (N a)", "a tree starts here"),
        ("(S (N a b))", "cannot read '(N a b ...)';"),
    ],
)
def test_gold_lines_must_be_trees(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        statuses(tmp_path, ["(S (N a))", line], ["(S (N a))", line])
    assert str(error.value).startswith(f"{tmp_path}/x.gold:2: {message}")


@pytest.mark.parametrize("max_error", [0, 2])
def test_too_many_errors_stop_the_scoring(max_error: int, tmp_path: Path) -> None:
    """Error MAX_ERROR + 2 stops the scoring: EVALB checks the number of errors before it counts the current error."""
    test = ["(S (N a))", "(S (N a)"] * (max_error + 2)
    allowed = len(test) - 2
    assert len(statuses(tmp_path, ["(S (N a))"] * allowed, test[:allowed], max_error=max_error)) == allowed
    with pytest.raises(UserError) as error:
        statuses(tmp_path, ["(S (N a))"] * len(test), test, max_error=max_error)
    assert str(error.value).startswith(f"{tmp_path}/x.test:{len(test)}: Not a tree")
    assert f"error {max_error + 2}, more than MAX_ERROR {max_error} allows;" in str(error.value)


def test_different_line_counts_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.gold has 2 lines, .*x\.test has 1; "):
        statuses(tmp_path, ["(S (N a))"] * 2, ["(S (N a))"])
    with pytest.raises(UserError, match=r"x\.gold: empty; nothing to score"):
        statuses(tmp_path, [], [])


def test_an_empty_bracket_is_searched_from_the_first_of_many_spaces_only() -> None:
    text = "(N x)   (NP) )"
    assert [bool(EMPTY_BRACKET.match(text, start)) for start in (5, 6, 7, 8)] == [True, False, False, False]
    assert EMPTY_BRACKET.sub("", text) == "(N x))"
