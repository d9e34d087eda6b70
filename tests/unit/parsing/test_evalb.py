"""Tests that bracketing scores equal those counted by hand, and those of a brute-force search."""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import write_lines
from t2t_repro.errors import UserError
from t2t_repro.parsing.evalb import Sentence, Status, Summary, score_files, score_trees, summarise
from t2t_repro.parsing.evalb_parameters import COLLINS, Parameters
from t2t_repro.parsing.trees import Tree
from treebanks import random_tree

DELETE_NOTHING = Parameters(
    delete_label=frozenset(), delete_label_for_length=frozenset(), eq_label=frozenset()
)
QUOTING = dataclasses.replace(COLLINS, quote_label=frozenset({"``", "''", "POS", "NN"}))

GOLD = (
    "(TOP (S (NP-SBJ (PRP She)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NN "
    "cat)))) (. .)))"
)
TEST = (
    "(S (NP (PRP She)) (VP (VBD saw) (NP (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NNS "
    "cat))))) (. .))"
)


def scored(gold: str, test: str, parameters: Parameters = COLLINS) -> Sentence:
    (sentence,) = score_trees([gold], [test], parameters)
    return sentence


def counts(sentence: Sentence) -> tuple[int, int, int]:
    return sentence.matched, sentence.gold, sentence.test


def random_pairs(number: int) -> Iterator[list[Tree]]:
    """Yields `number` random pairs of trees. Both trees of a pair have the same words."""
    generator = random.Random(7)
    for _ in range(number):
        words = [Tree("X", word=f"w{i}") for i in range(generator.randint(2, 9))]
        yield [random_tree(generator, words, ["S", "NP", "VP"]) for _ in range(2)]


def constituents(tree: Tree) -> Iterator[tuple[str, frozenset[str]]]:
    """Yields each constituent's label and set of words. No word occurs twice in a tree, so a set
    stands for a span.
    """
    if not tree.word:
        yield tree.label, frozenset(leaf.word for leaf in tree.leaves())
        for child in tree.children:
            yield from constituents(child)


def test_a_sentence_has_the_counts_made_by_hand() -> None:
    """All six brackets of the gold tree match. The test tree has one more NP. TOP and the full stop
    do not count.
    """
    sentence = scored(GOLD, TEST)
    assert sentence == Sentence(
        1, 8, Status.OK, matched=6, gold=6, test=7, crossing=0, words=7, correct_tags=6
    )
    figures = sentence.recall, sentence.precision, sentence.tagging_accuracy
    assert figures == pytest.approx((100, 600 / 7, 600 / 7))


@pytest.mark.parametrize(
    ("gold", "test", "expected"),
    [
        ("(S (NP-SBJ (N a)) (VP=2 (V b)))", "(S (NP=1 (N a)) (VP-X-Y=2 (V b)))", (3, 3, 3)),
        # EVALB also cuts a label at a hyphen that is its first character: both labels become "".
        ("(-A- (N a))", "(-B- (N a))", (1, 1, 1)),
        # EVALB cuts TOP-1 to TOP before it compares the label with DELETE_LABEL, so this bracket
        # does not count.
        ("(TOP-1 (S (N a)))", "(S (N a))", (1, 1, 1)),
        # Traces do not count, and neither do constituents that contain only traces.
        (
            "(S (NP (-NONE- *)) (VP (V b) (SBAR (-NONE- 0) (S (-NONE- *T*)))))",
            "(S (VP (V b)))",
            (2, 2, 2),
        ),
        # An outer bracket without a label counts.
        ("((S (N a)))", "(S (N a))", (1, 2, 1)),
        # Equal brackets match one to one.
        ("(NP (NP (NP (N a))))", "(NP (NP (N a)))", (2, 3, 2)),
    ],
)
def test_labels_words_and_traces_decide_which_brackets_count(
    gold: str, test: str, expected: tuple[int, int, int]
) -> None:
    assert counts(scored(gold, test)) == expected


def test_equal_labels_match() -> None:
    for gold, test in (("ADVP", "PRT"), ("PRT", "ADVP")):
        sentence = scored(f"(S ({gold} ({gold} up)))", f"(S ({test} ({test} up)))")
        assert (sentence.matched, sentence.correct_tags) == (2, 1)
    equal = dataclasses.replace(
        COLLINS, eq_label=frozenset({("A", "B"), ("B", "C"), ("ROOT", "TOP")})
    )
    assert scored("(A (N a))", "(C (N a))", equal).matched == 0
    # ROOT is deleted like TOP, because `equal` makes the two labels equal; but not as a tag of a
    # word.
    assert counts(scored("(ROOT (A (N a)))", "(B (N a))", equal)) == (1, 1, 1)
    assert scored("(S (ROOT a) (TOP b))", "(S (ROOT a) (TOP b))", equal).words == 1
    assert scored("(S (N-1 a) (M b))", "(S (N a) (M b))").correct_tags == 1  # tags are not cut


def test_other_words_are_an_error_and_no_words_are_skipped() -> None:
    assert scored("(S (N a) (N b))", "(S (N a))") == Sentence(
        1, 2, Status.ERROR, ("Length unmatch (2|1)",)
    )
    assert scored("(S (N a) (N b))", "(S (N a) (N c))") == Sentence(
        1, 2, Status.ERROR, ("Words unmatch (b|c)",)
    )
    assert scored("(S (. .))", "(S (. .))") == Sentence(1, 1, Status.SKIP)
    # its length counts the gold words, without the trace
    gold = "(S (N a) (, ,) (-NONE- *) (N b) (. .))"
    assert [scored(gold, test).length for test in (gold, "(S (N a))", "(. .)")] == [4, 4, 4]
    equal = dataclasses.replace(COLLINS, eq_word=frozenset({("b", "c")}))
    for gold, test in (("b", "c"), ("c", "b")):
        assert scored(f"(S (P {gold}))", f"(S (P {test}))", equal).status == Status.OK


def test_quotation_marks_that_only_one_tree_deletes_count_in_both() -> None:
    """If only tree `one` loses its quotation marks, the scorer inserts the marks again. Then `one`
    has 5 words.
    """
    for mark in ("'", '"', "/"):
        one = f"(S (NP (DT the) (`` {mark}) (NN dog) ('' {mark})) (VP (VBZ barks)))"
        other = f"(S (NP (DT the) (POS {mark}) (NN dog)) (NN {mark}) (VP (VBZ barks)))"
        expected = Sentence(1, 5, matched=2, gold=3, test=3, crossing=0, words=5, correct_tags=3)
        assert scored(one, other, QUOTING) == scored(other, one, QUOTING) == expected
        assert scored(one, other).messages == ("Length unmatch (3|5)",)
        assert scored(one, one, QUOTING).words == 3  # marks that both trees delete stay deleted
    assert scored("(S (N a) (`` x))", "(S (N a) (NN x))", QUOTING).messages == (
        "Length unmatch (1|2)",
    )


def test_counts_equal_brute_force() -> None:
    unlabelled = dataclasses.replace(DELETE_NOTHING, labeled=False)
    repeated = several = 0
    for gold, test in random_pairs(200):
        brackets = [list(constituents(tree)) for tree in (gold, test)]
        common = Counter(brackets[0]) & Counter(brackets[1])
        sentence = scored(str(gold), str(test), DELETE_NOTHING)
        assert counts(sentence) == (common.total(), *map(len, brackets))
        spans = [Counter(words for _, words in side) for side in brackets]
        assert scored(str(gold), str(test), unlabelled).matched == (spans[0] & spans[1]).total()
        crossed = [
            [
                other
                for other in spans[0]
                if words & other and not (words <= other or other <= words)
            ]
            for _, words in brackets[1]
        ]
        assert sentence.crossing == sum(map(bool, crossed))
        repeated += max(Counter(brackets[0]).values()) > 1
        several += max(map(len, crossed)) > 1
    # Many trees have two equal brackets, or a bracket that crosses several.
    assert min(repeated, several) > 20
    assert counts(scored(*["(NP " * 3000 + "(NN a)" + ")" * 3000] * 2)) == (3000, 3000, 3000)


def test_a_summary_counts_only_valid_sentences() -> None:
    """By hand: 2 of the 4 valid sentences match completely, one has no crossing bracket, three have
    at most two.
    """
    sizes = {"gold": 3, "test": 3, "words": 4, "correct_tags": 2}
    sentences = [
        Sentence(1, 4, status, matched=matched, crossing=crossing, **sizes)
        for status, matched, crossing in (
            (Status.OK, 2, 0),
            (Status.OK, 3, 1),
            (Status.OK, 3, 2),
            (Status.OK, 1, 3),
            (Status.ERROR, 3, 9),
            (Status.SKIP, 3, 9),
        )
    ]
    assert summarise(sentences) == Summary(
        sentences=6,
        errors=1,
        skipped=1,
        valid=4,
        matched=9,
        gold=12,
        test=12,
        crossing=6,
        words=16,
        correct_tags=8,
        complete_match=50,
        average_crossing=1.5,
        no_crossing=25,
        two_or_less_crossing=75,
    )


def test_files_that_cannot_be_scored_are_refused(tmp_path: Path) -> None:
    for gold, test, message in (
        (["(S (N a))"] * 2, ["(S (N a))"], "x.gold and {0}x.test have 2 and 1 lines; "),
        (["", "(S a (N a))"], ["", ""], "x.gold:2: 'a' is outside"),
        (["(S (N a))"], ["(S (N a) a)"], "x.test:1: 'a' is outside"),
        # Each line has two messages.
        (["(S (N a))"] * 3, ["(S (N a))))"] * 3, "x.test:2: Bracketing unbalance"),
    ):
        gold_path = write_lines(tmp_path / "x.gold", gold)
        test_path = write_lines(tmp_path / "x.test", test)
        with pytest.raises(UserError) as error:
            list(score_files(gold_path, test_path, dataclasses.replace(COLLINS, max_error=1)))
        assert str(error.value).startswith(f"{tmp_path}/{message.format(f'{tmp_path}/')}")
