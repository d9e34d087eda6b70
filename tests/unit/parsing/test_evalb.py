"""Bracketing scores against counts made by hand and brute force over sets of words."""

from __future__ import annotations

import dataclasses
import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from t2t_repro.errors import UserError
from t2t_repro.parsing.evalb import Sentence, Status, score, score_files, summarise
from t2t_repro.parsing.evalb_parameters import COLLINS, Parameters, read_parameters
from t2t_repro.parsing.trees import Tree, parse_trees

NOTHING = Parameters(delete_label=frozenset(), delete_label_for_length=frozenset(), eq_label=frozenset())
QUOTING = dataclasses.replace(COLLINS, quote_label=frozenset({"``", "''", "POS", "NN"}))

GOLD = "(TOP (S (NP-SBJ (PRP She)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NN cat)))) (. .)))"
TEST = "(S (NP (PRP She)) (VP (VBD saw) (NP (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NNS cat))))) (. .))"


def scored(gold: str, test: str, parameters: Parameters = COLLINS) -> Sentence:
    return score(list(parse_trees([gold], "gold")), list(parse_trees([test], "test")), parameters)


def counts(sentence: Sentence) -> tuple[int, int, int]:
    return sentence.matched, sentence.gold, sentence.test


def random_tree(choice: random.Random, words: list[Tree]) -> Tree:
    """Up to four children a constituent, and now and then a chain of constituents over the same words."""
    if len(words) == 1 and choice.random() < 0.7:
        return words[0]
    cuts = sorted(choice.sample(range(1, len(words)), min(len(words) - 1, choice.randrange(4))))
    parts = [words[start:end] for start, end in zip([0, *cuts], [*cuts, len(words)], strict=True)]
    return Tree(choice.choice(["S", "NP", "VP"]), tuple(random_tree(choice, part) for part in parts))


def random_pairs(number: int) -> Iterator[tuple[Tree, Tree]]:
    """Two trees over the same words."""
    choice = random.Random(7)
    for _ in range(number):
        words = [Tree("X", word=f"w{i}") for i in range(choice.randint(2, 9))]
        yield Tree("S", (random_tree(choice, words),)), Tree("S", (random_tree(choice, words),))


def constituents(tree: Tree) -> Iterator[tuple[str, frozenset[str]]]:
    """Label and set of words (each word is there but once) of each constituent."""
    if not tree.word:
        yield tree.label, frozenset(leaf.word for leaf in tree.leaves())
        for child in tree.children:
            yield from constituents(child)


def test_by_hand() -> None:
    """S, NP, VP, NP, PP and NP are all found, beside an NP too many; TOP and the full stop do not count."""
    found = scored(GOLD, TEST)
    expected = Sentence(1, 8, Status.OK, matched=6, gold=6, test=7, crossing=0, words=7, correct_tags=6)
    assert found == expected
    assert found.recall == 100
    assert found.precision == pytest.approx(600 / 7)
    assert found.tagging_accuracy == pytest.approx(600 / 7)


def test_a_tree_against_itself() -> None:
    for tree, _ in random_pairs(100):
        found = score([tree], [tree], NOTHING)
        assert (found.status, found.recall, found.precision, found.tagging_accuracy) == (Status.OK, 100, 100, 100)
        assert (found.matched, found.crossing) == (sum(1 for _ in constituents(tree)), 0)


def test_matches_by_brute_force() -> None:
    partial = 0
    for gold, test in random_pairs(300):
        common = Counter(constituents(gold)) & Counter(constituents(test))
        found = score([gold], [test], NOTHING)
        assert counts(found) == (common.total(), sum(1 for _ in constituents(gold)), sum(1 for _ in constituents(test)))
        partial += max(Counter(constituents(gold)).values()) > 1
    assert partial > 30  # chains of equal brackets do occur


def test_spans_alone_by_brute_force() -> None:
    unlabelled = dataclasses.replace(NOTHING, labeled=False)
    for gold, test in random_pairs(300):
        spans = [Counter(words for _, words in constituents(tree)) for tree in (gold, test)]
        assert score([gold], [test], unlabelled).matched == (spans[0] & spans[1]).total()


def test_crossings_by_brute_force() -> None:
    several = 0
    for gold, test in random_pairs(300):
        expected = 0
        for _, words in constituents(test):
            crossed = [
                other for _, other in constituents(gold) if words & other and not (words <= other or other <= words)
            ]
            expected += bool(crossed)
            several += len(crossed) > 1
        assert score([gold], [test], NOTHING).crossing == expected
    assert several > 30


def test_crossing_counts_test_brackets() -> None:
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
        # EVALB cuts at a hyphen that comes first too: "" is left of both.
        ("(-A- (N a))", "(-B- (N a))", (1, 1, 1)),
        # Cut before it is compared: this one is TOP.
        ("(TOP-1 (S (N a)))", "(S (N a))", (1, 1, 1)),
        # Traces go, with what holds nothing else.
        ("(S (NP (-NONE- *)) (VP (V b) (SBAR (-NONE- 0) (S (-NONE- *T*)))))", "(S (VP (V b)))", (2, 2, 2)),
        ("(S (, ,) (NP (N a)) (. .))", "(S (NP (, ,) (N a) (. .)))", (2, 2, 2)),
        # An outer bracket without a name counts.
        ("((S (N a)))", "(S (N a))", (1, 2, 1)),
        # Trees side by side.
        ("(S (N a) (N b))", "(N a) (N b)", (0, 1, 0)),
    ],
)
def test_which_brackets_count(gold: str, test: str, expected: tuple[int, int, int]) -> None:
    assert counts(scored(gold, test)) == expected


def test_tags_are_not_cut() -> None:
    assert scored("(S (N-1 a) (M b))", "(S (N a) (M b))").correct_tags == 1


def test_labels_that_count_as_the_same() -> None:
    for gold, test in (("ADVP", "PRT"), ("PRT", "ADVP")):
        found = scored(f"(S ({gold} ({gold} up)))", f"(S ({test} ({test} up)))")
        assert (found.matched, found.correct_tags) == (2, 1)
    equal = dataclasses.replace(COLLINS, eq_label=frozenset({("A", "B"), ("B", "C"), ("ROOT", "TOP")}))
    assert scored("(A (N a))", "(C (N a))", equal).matched == 0
    assert counts(scored("(ROOT (A (N a)))", "(B (N a))", equal)) == (1, 1, 1)  # as TOP it is deleted
    assert scored("(S (TOP a) (N b))", "(S (TOP a) (N b))", equal).words == 1
    assert scored("(S (ROOT a) (N b))", "(S (ROOT a) (N b))", equal).words == 2  # but a word's tag must be TOP itself


def test_words_that_count_as_the_same() -> None:
    equal = dataclasses.replace(COLLINS, eq_word=frozenset({("This", "this")}))
    for gold, test in (("This", "this"), ("this", "This")):
        assert scored(f"(S (P {gold}))", f"(S (P {test}))", equal).status == Status.OK
        assert scored(f"(S (P {gold}))", f"(S (P {test}))").message == f"Words unmatch ({gold}|{test})"


def test_length() -> None:
    """Of the gold tree; punctuation counts, traces do not, and it is there for errors and skips too."""
    gold = "(S (N a) (, ,) (-NONE- *) (N b) (. .))"
    assert [scored(gold, test).length for test in (gold, "(S (N a))", "(. .)")] == [4, 4, 4]
    assert scored(gold, gold).words == 2


def test_sentences_that_cannot_be_scored() -> None:
    assert scored("(S (N a) (N b))", "(S (N a))") == Sentence(1, 2, Status.ERROR, message="Length unmatch (2|1)")
    assert scored("(S (N a) (N b))", "(S (N a) (N c))") == Sentence(1, 2, Status.ERROR, message="Words unmatch (b|c)")
    assert scored("(S (N a))", "(S (. .))") == Sentence(1, 1, Status.SKIP)
    assert scored("(S (. .))", "(S (. .))") == Sentence(1, 1, Status.SKIP)


def test_quotation_marks_that_one_tree_deletes() -> None:
    """Words 1 and 3 come back into the first tree: its brackets are then S 0-5, NP 0-4, VP 4-5."""
    one = "(S (NP (DT the) (`` ') (NN dog) ('' ')) (VP (VBZ barks)))"
    other = "(S (NP (DT the) (POS ') (NN dog)) (VP (NN ') (VBZ barks)))"
    expected = Sentence(1, 5, matched=1, gold=3, test=3, crossing=1, words=5, correct_tags=3)
    assert scored(one, other, QUOTING) == expected
    assert scored(other, one, QUOTING) == expected
    assert scored(one, other).message == "Length unmatch (3|5)"
    # Where both trees delete them, they stay away.
    assert scored(one, one, QUOTING).words == 3


def test_only_quotation_marks_come_back() -> None:
    assert scored("(S (N a) (`` x))", "(S (N a) (NN x))", QUOTING).message == "Length unmatch (1|2)"
    # One of two words too many is put back; the message counts it.
    assert scored("(S (N a) (`` '))", "(S (N a) (NN ') (N b))", QUOTING).message == "Length unmatch (2|3)"


def test_deep_trees() -> None:
    deep = "(NP " * 5000 + "(N a)" + ")" * 5000
    assert counts(scored(deep, deep)) == (5000, 5000, 5000)


def test_summary_by_hand() -> None:
    sentences = [
        Sentence(1, 10, matched=4, gold=4, test=4, crossing=0, words=8, correct_tags=8),
        Sentence(2, 41, matched=3, gold=6, test=5, crossing=3, words=8, correct_tags=6),
        Sentence(3, 10, Status.ERROR, message="Words unmatch (a|b)"),
        Sentence(4, 10, Status.SKIP),
        Sentence(5, 10, matched=3, gold=3, test=4, crossing=2, words=4, correct_tags=3),
    ]
    assert dataclasses.asdict(summarise(sentences)) == pytest.approx(
        {
            "sentences": 5,
            "errors": 1,
            "skipped": 1,
            "valid": 3,
            "matched": 10,
            "gold": 13,
            "test": 13,
            "crossing": 5,
            "words": 20,
            "correct_tags": 17,
            "recall": 1000 / 13,
            "precision": 1000 / 13,
            "f_measure": 1000 / 13,
            "complete_match": 100 / 3,
            "average_crossing": 5 / 3,
            "no_crossing": 100 / 3,
            "two_or_less_crossing": 200 / 3,
            "tagging_accuracy": 85,
        }
    )


def test_f_measure() -> None:
    assert summarise([Sentence(1, 4, matched=1, gold=1, test=3)]).f_measure == pytest.approx(50)
    nothing = summarise([Sentence(1, 4, Status.SKIP)])
    assert math.isnan(nothing.f_measure)
    assert (nothing.recall, nothing.average_crossing, nothing.tagging_accuracy) == (0, 0, 0)


def write(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def statuses(folder: Path, gold: list[str], test: list[str], max_error: int = 10) -> list[tuple[int, str]]:
    gold_path, test_path = write(folder / "x.gold", *gold), write(folder / "x.test", *test)
    found = score_files(gold_path, test_path, dataclasses.replace(COLLINS, max_error=max_error))
    return [(sentence.status, sentence.message) for sentence in found]


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
def test_test_lines(test: str, status: Status, message: str, tmp_path: Path) -> None:
    """The lines after it are scored as ever."""
    found = statuses(tmp_path, ["(S (N a))"] * 2, [test, "(S (N a))"])
    assert found[0][0] == status
    assert found[0][1].startswith(message) and bool(found[0][1]) == bool(message)
    assert found[1] == (Status.OK, "")


def test_scored_files(tmp_path: Path) -> None:
    gold, test = write(tmp_path / "gold", GOLD, "(S (N a))"), write(tmp_path / "test", TEST, "(S (NP (N a)))")
    found = list(score_files(gold, test))
    assert [sentence.number for sentence in found] == [1, 2]
    assert [counts(sentence) for sentence in found] == [(6, 6, 7), (1, 1, 2)]


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
def test_too_many_errors(max_error: int, tmp_path: Path) -> None:
    """EVALB compares before it counts, so that one error more than MAX_ERROR still passes."""
    few = ["(S (N a))", "(S (N a)"] * (max_error + 2)
    lines = len(few) - 2
    assert len(statuses(tmp_path, ["(S (N a))"] * lines, few[:lines], max_error=max_error)) == lines
    with pytest.raises(UserError) as error:
        statuses(tmp_path, ["(S (N a))"] * len(few), few, max_error=max_error)
    assert str(error.value).startswith(f"{tmp_path}/x.test:{len(few)}: Not a tree")
    assert f"error {max_error + 2}, and MAX_ERROR {max_error} stops the scoring;" in str(error.value)


def test_line_counts_differ(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.gold has 2 lines, .*x\.test has 1; "):
        statuses(tmp_path, ["(S (N a))"] * 2, ["(S (N a))"])
    with pytest.raises(UserError, match=r"x\.gold: empty; nothing to score"):
        statuses(tmp_path, [], [])


def test_parameter_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.prm",
        "##-----##",
        "",
        "DEBUG 0",
        "MAX_ERROR 5",
        "CUTOFF_LEN\t70  ",
        "LABELED 0",
        "DELETE_LABEL TOP",
        "DELETE_LABEL #",
        "DELETE_LABEL_FOR_LENGTH -NONE-",
        "QUOTE_LABEL POS",
        "EQ_LABEL  A B",
        "EQ_WORD Dog dog",
        "# EQ_WORD Cat cat",
    )
    assert read_parameters(path) == Parameters(
        max_error=5,
        cutoff_len=70,
        labeled=False,
        delete_label=frozenset({"TOP", "#"}),
        delete_label_for_length=frozenset({"-NONE-"}),
        quote_label=frozenset({"POS"}),
        eq_label=frozenset({("A", "B")}),
        eq_word=frozenset({("Dog", "dog")}),
    )


def test_what_a_parameter_file_leaves_out(tmp_path: Path) -> None:
    assert read_parameters(write(tmp_path / "x.prm", "# nothing")) == NOTHING
    assert (NOTHING.max_error, NOTHING.cutoff_len, NOTHING.labeled) == (10, 40, True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("DELETE_LABLE TOP", "unknown EVALB parameter 'DELETE_LABLE'; did you mean 'DELETE_LABEL'?"),
        ("delete_label TOP", "unknown EVALB parameter 'delete_label'; "),
        ("DELETE_LABEL", "DELETE_LABEL takes one value, not 0"),
        ("DELETE_LABEL TOP S1", "DELETE_LABEL takes one value, not 2"),
        ("EQ_LABEL ADVP", "EQ_LABEL takes two values, not 1"),
        ("MAX_ERROR many", "MAX_ERROR takes a whole number of at most 9 digits, not 'many'"),
        ("CUTOFF_LEN -1", "CUTOFF_LEN takes a whole number of at most 9 digits, not '-1'"),
        ("DEBUG 1", "DEBUG 1: this program lists no brackets; write DEBUG 0"),
    ],
)
def test_wrong_parameters(line: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.prm", "LABELED 1", line, "LABELED 1")
    with pytest.raises(UserError) as error:
        read_parameters(path)
    assert str(error.value).startswith(f"{path}:2: {message}")


def test_without_tensorflow(tmp_path: Path) -> None:
    code = "import sys; import t2t_repro.parsing.evalb; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
