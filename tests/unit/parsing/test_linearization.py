"""Tests that trees are converted to target text, and that any output of a model is converted to a
tree.
"""

import random

import pytest
import tensorflow as tf

from t2t_repro.parsing.linearization import (
    EITHER,
    MARK,
    NO_WORD,
    ORDINARY,
    Repairs,
    delinearise,
    graph_kinds_of,
    kinds_of,
    linearise,
    tag_of,
    words_of,
)
from t2t_repro.parsing.trees import PUNCTUATION, Tree
from treebanks import parse, random_tree

JOHN = "(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"
LABELS = ["S", "NP", "VP", "TOP", "-NONE-", ","]
NOISE = [
    "",
    "(",
    ")",
    "(NP)NP",
    "((S",
    "DT)NP",
    "(S(NP",
    "⁇",
    "\u00a0",
    "XX",
    "-NONE-",
    "TOP",
    "''",
    "=",
    "-LRB-",
]
DELETED = (*PUNCTUATION, "-NONE-", "TOP")
WORDS = ["dog", "the", ",", ".", "''", "'", "``", "--", "-LRB-", "%"]
WORDS += ["a\u00a0b", "U.S.", "-NONE-", "TOP", "$", "\u2028"]


def words(tree: Tree) -> list[str]:
    return [leaf.word for leaf in tree.leaves()]


def brackets(tree: Tree) -> str:
    return tree.fold(
        lambda leaf: leaf.word,
        lambda constituent, parts: f"({constituent.label} {' '.join(parts)})",
    )


def new_tree(generator: random.Random) -> Tree:
    tags = ["NN", "DT", *PUNCTUATION, "PRP$"]
    leaves = [
        Tree(generator.choice(tags), word=generator.choice(WORDS))
        for _ in range(generator.randint(1, 9))
    ]
    return random_tree(generator, leaves, LABELS)


# The first example is figure 2 of Vinyals et al. 2015.
@pytest.mark.parametrize(
    ("text", "symbol", "expected"),
    [
        (JOHN, "tag", "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"),
        (JOHN, "XX", "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"),
        (JOHN, "word", "(S (NP John )NP (VP has (NP a dog )NP )VP . )S"),
        ("(NP (PRP$ its) (-LRB- -LCB-) ($ C$) (: --))", "tag", "(NP PRP$ -LRB- $ : )NP"),
        ("(NP (PRP$ its) (-LRB- -LCB-) ($ C$) (: --) (POS '))", "XX", "(NP XX -LRB- $ : XX )NP"),
    ],
)
def test_a_tree_is_written_with_a_symbol_for_each_word(
    text: str, symbol: str, expected: str
) -> None:
    assert linearise(parse(text), symbol) == expected


def test_any_tree_is_read_back_without_loss() -> None:
    generator = random.Random(1)
    for _ in range(300):
        tree = new_tree(generator)
        assert delinearise(linearise(tree), words(tree)) == (tree, Repairs())
        for symbol in ("XX", "word"):
            untagged, repairs = delinearise(
                linearise(tree, symbol), words(tree), word_symbol=symbol
            )
            assert not repairs
            assert brackets(untagged) == brackets(tree)
            assert all(leaf.label == tag_of(leaf.word) for leaf in untagged.leaves())


@pytest.mark.parametrize(
    ("text", "line", "expected", "repairs"),
    [
        # The output is empty, has only brackets, or has only a word symbol.
        ("", "a b .", "(TOP (XX a) (XX b) (. .))", {"words_missing": 3, "roots_joined": 1}),
        (
            "(S (NP )NP )S",
            "a",
            "(TOP (XX a))",
            {"words_missing": 1, "constituents_empty": 2, "roots_joined": 1},
        ),
        # Brackets are missing, superfluous, without a label, or empty.
        (
            "(S (NP NN (VP VB )NP . )S",
            "a b .",
            "(S (NP (NN a) (VP (VB b))) (. .))",
            {"brackets_closed": 1},
        ),
        (
            "(S (NP NN )VP VB )S",
            "a b",
            "(S (NP (NN a) (VB b)))",
            {"brackets_dropped": 1, "brackets_closed": 1},
        ),
        (")S (S ( NN ) )S", "a", "(S (NN a))", {"brackets_dropped": 3}),
        (
            "(S (NP (X (Y DT )NP VB )S",
            "a b",
            "(S (NP (X (Y (DT a)))) (VB b))",
            {"brackets_closed": 2},
        ),
        # The output has several constituents or a word at its top level, or already has TOP.
        ("(NP NN )NP (VP VB )VP", "a b", "(TOP (NP (NN a)) (VP (VB b)))", {"roots_joined": 1}),
        ("(TOP (S NN )S . )TOP", "a .", "(TOP (S (NN a)) (. .))", {}),
        # The numbers of symbols and words are equal, so symbol n becomes the tag of word n, even if
        # it does not fit.
        ("(S , NN )S", "a ,", "(S (, a) (NN ,))", {}),
        # There are too few or too many symbols, so `delinearise` aligns words and symbols at the
        # punctuation marks.
        (
            "(S (NP DT )NP (VP VB )VP )S",
            "a b c",
            "(S (NP (DT a)) (VP (VB b) (XX c)))",
            {"words_missing": 1},
        ),
        (
            "(S (NP DT )NP , VB . )S",
            "a b , c .",
            "(S (NP (DT a) (XX b)) (, ,) (VB c) (. .))",
            {"words_missing": 1},
        ),
        ("(S (NP NN )NP . )S", "`` a .", "(S (NP (`` ``) (NN a)) (. .))", {"words_missing": 1}),
        (
            "(S (NP DT NN )NP (PP IN )PP )S",
            "a",
            "(S (NP (DT a)))",
            {"words_extra": 2, "constituents_empty": 1},
        ),
        (
            "(S DT , NN . )S",
            "a b c . d",
            "(S (DT a) (, b) (NN c) (. .) (XX d))",
            {"words_missing": 1},
        ),
    ],
)
def test_each_fault_has_its_repair(
    text: str, line: str, expected: str, repairs: dict[str, int]
) -> None:
    tree, counts = delinearise(text, line.split())
    assert str(tree) == expected
    assert counts == Repairs(**repairs, trees=1 if repairs else 0)


def random_output(generator: random.Random) -> tuple[str, list[str]]:
    """Returns a random output, from a correct tree to mostly noise, and the words of a source
    sentence.
    """
    tree = new_tree(generator)
    tokens = linearise(tree).split()
    line = words(tree)
    for _ in range(generator.choice([0, 1, 2, 5, 50])):
        bracket = generator.choice("()") + generator.choice(LABELS)
        tokens.insert(
            generator.randint(0, len(tokens)),
            generator.choice([bracket, "NN", generator.choice(NOISE)]),
        )
    tokens = [token for token in tokens if generator.random() < 0.95]
    line = [word for word in line if generator.random() < 0.9] or ["dog"]
    return generator.choice([" ", " ", " ", "  ", "\t"]).join(tokens), line


def test_any_output_becomes_a_tree_over_the_words() -> None:
    generator = random.Random(2)
    total = Repairs()
    for number in range(800):
        text, line = random_output(generator)
        tree, repairs = delinearise(text, line, tags_by_form=number % 2 == 0)
        assert words(tree) == line, text
        assert parse(str(tree)) == tree, text
        total += repairs
        # `delinearise` adds no constituent except TOP: the output has an opening bracket for every
        # other constituent.
        labels = tree.fold(
            lambda leaf: [], lambda constituent, parts: sum(parts, [constituent.label])
        )
        for label in set(labels) - {"TOP"}:
            assert labels.count(label) <= text.count(f"({label}"), text
    assert str(Repairs(trees=2, words_missing=1)) == "trees: 2, words missing: 1"
    assert str(Repairs()) == "none"
    assert min(vars(total).values()) > 15  # each kind of repair occurred often
    assert total.trees < 790


def test_with_tags_by_form_evalb_deletes_the_same_words_of_any_output() -> None:
    generator = random.Random(3)
    for _ in range(400):
        text, line = random_output(generator)
        tree, _ = delinearise(text, line, tags_by_form=True)
        other, _ = delinearise("", line, tags_by_form=True)
        for leaf, other_leaf in zip(tree.leaves(), other.leaves(), strict=True):
            # The tag of ' says if it is an ending or a quotation mark.
            if leaf.word != "'":
                assert (leaf.label in DELETED) == (other_leaf.label in DELETED)


def test_python_and_the_graph_find_the_same_kinds_of_words() -> None:
    assert words_of("  a (b) f(x)\t5\u00a0km \n") == [
        "a",
        "-LRB-b-RRB-",
        "f-LRB-x-RRB-",
        "5\u00a0km",
    ]
    lines = [
        "a (, b) , . ' '' ; $ ...",
        "",
        " \t\x0b\x0c,\u00a0, \u3000. \u2026\r\n",
        "[ # `` -- ' \u2019 C$ -LRB-",
        "\x1c, \x85",
    ]
    kinds = [kinds_of(line) for line in lines]
    assert kinds[0] == [ORDINARY] * 3 + [MARK] * 2 + [EITHER, MARK, MARK, ORDINARY, MARK]
    assert [len(row) for row in kinds] == [10, 0, 3, 8, 2]
    graph_kinds = graph_kinds_of(tf.constant(lines)).numpy().tolist()
    assert graph_kinds == [row + [NO_WORD] * (10 - len(row)) for row in kinds]
