"""Trees to a model's targets, and whatever a model writes back to trees."""

from __future__ import annotations

import random

import pytest

from t2t_repro.parsing.linearization import Repairs, delinearise, linearise, tag_of, words_of
from t2t_repro.parsing.trees import PUNCTUATION, Tree, parse_trees

JOHN = "(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"
LABELS = ["S", "NP", "VP", "TOP", "-NONE-", ","]
NOISE = ["", "(", ")", "(NP)NP", "((S", "DT)NP", "(S(NP", "⁇", "\u00a0", "XX", "-NONE-", "TOP", "''", "=", "-LRB-"]
WORDS = [
    "dog",
    "the",
    ",",
    ".",
    "''",
    "'",
    "``",
    "--",
    "-LRB-",
    "%",
    "a\u00a0b",
    "U.S.",
    "-NONE-",
    "TOP",
    "$",
    "\u2028",
]


def tree(text: str) -> Tree:
    (found,) = parse_trees([text], "text")
    return found


def words(of: Tree) -> list[str]:
    return [leaf.word for leaf in of.leaves()]


def brackets(of: Tree) -> str:
    return of.fold(lambda leaf: leaf.word, lambda constituent, parts: f"({constituent.label} {' '.join(parts)})")


def random_tree(source: random.Random, depth: int = 0) -> Tree:
    if depth and source.random() < 0.3 + 0.1 * depth:
        return Tree(source.choice(["NN", "DT", *PUNCTUATION, "PRP$"]), word=source.choice(WORDS))
    children = (random_tree(source, depth + 1) for _ in range(source.choice([1, 1, 2, 3])))
    return Tree(source.choice(LABELS), tuple(children))


# The figures of Vinyals et al. 2015.
@pytest.mark.parametrize(
    ("text", "symbol", "expected"),
    [
        (JOHN, "tag", "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"),
        (JOHN, "XX", "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"),
        ("(S (VP (VB Go)) (. .))", "XX", "(S (VP XX )VP . )S"),
        ("(NP (PRP$ its) (-LRB- -LCB-) ($ C$) (: --))", "tag", "(NP PRP$ -LRB- $ : )NP"),
        ("(NP (PRP$ its) (-LRB- -LCB-) ($ C$) (: --) (POS '))", "XX", "(NP XX -LRB- $ : XX )NP"),
    ],
)
def test_words_become_symbols(text: str, symbol: str, expected: str) -> None:
    assert linearise(tree(text), symbol) == expected


def test_reading_back_is_exact_for_any_tree() -> None:
    source = random.Random(1)
    for _ in range(2000):
        wanted = random_tree(source)
        assert delinearise(linearise(wanted), words(wanted)) == (wanted, Repairs())
        found, repairs = delinearise(linearise(wanted, "XX"), words(wanted))
        assert not repairs
        assert brackets(found) == brackets(wanted)
        assert all(leaf.label == tag_of(leaf.word) for leaf in found.leaves())


def test_a_word_that_could_have_any_tag_gets_one_where_its_form_tells_it() -> None:
    given = words_of(", . ? ! : ; -- ... - `` ` '' -LRB- -LCB- -RRB- -RCB- $ US$ # ' % & dog U.S. 's '60s")
    found, _ = delinearise(f"(S {'XX ' * len(given)})S", given)
    assert [leaf.label for leaf in found.leaves()] == [
        *(",", ".", ".", ".", ":", ":", ":", ":", ":", "``", "``", "''", "-LRB-", "-LRB-", "-RRB-", "-RRB-"),
        *("$", "$", "#", "XX", "XX", "XX", "XX", "XX", "XX", "XX"),
    ]


@pytest.mark.parametrize(
    ("text", "given", "expected", "repairs"),
    [
        # Nothing at all, or nothing of use.
        ("", "a b .", "(TOP (XX a) (XX b) (. .))", {"words_missing": 3, "roots_joined": 1}),
        ("(S (NP )NP )S", "a", "(TOP (XX a))", {"words_missing": 1, "constituents_empty": 2, "roots_joined": 1}),
        ("NN", "a", "(TOP (NN a))", {"roots_joined": 1}),
        # Brackets.
        ("(S (NP NN (VP VB", "a b", "(S (NP (NN a) (VP (VB b))))", {"brackets_closed": 3}),
        ("(S (NP NN (VP VB )NP . )S", "a b .", "(S (NP (NN a) (VP (VB b))) (. .))", {"brackets_closed": 1}),
        ("(S (NP NN )VP VB )S", "a b", "(S (NP (NN a) (VB b)))", {"brackets_dropped": 1, "brackets_closed": 1}),
        ("(S NN )S )S )TOP", "a", "(S (NN a))", {"brackets_dropped": 2}),
        (")S (S ( NN ) )S", "a", "(S (NN a))", {"brackets_dropped": 3}),
        ("(S(NP NN)NP)S", "a", "(S (NP (NN a)))", {}),
        ("(S (NP )NP NN )S", "a", "(S (NN a))", {"constituents_empty": 1}),
        ("(NP (NP NN )NP )NP", "a", "(NP (NP (NN a)))", {}),
        # Roots.
        ("(NP NN )NP (VP VB )VP", "a b", "(TOP (NP (NN a)) (VP (VB b)))", {"roots_joined": 1}),
        ("(S NN )S .", "a .", "(TOP (S (NN a)) (. .))", {"roots_joined": 1}),
        ("(TOP (S NN )S . )TOP", "a .", "(TOP (S (NN a)) (. .))", {}),
        # As many symbols as words belong together, whatever they are.
        ("(S , NN )S", "a ,", "(S (, a) (NN ,))", {}),
        # Too few or too many words: punctuation meets its like.
        ("(S (NP DT )NP (VP VB )VP )S", "a b c", "(S (NP (DT a)) (VP (VB b) (XX c)))", {"words_missing": 1}),
        ("(S (NP DT )NP , VB . )S", "a b , c .", "(S (NP (DT a) (XX b)) (, ,) (VB c) (. .))", {"words_missing": 1}),
        ("(S (NP DT NN )NP , VB . )S", "a , c .", "(S (NP (DT a)) (, ,) (VB c) (. .))", {"words_extra": 1}),
        ("(S (NP NN )NP . )S", "`` a .", "(S (NP (`` ``) (NN a)) (. .))", {"words_missing": 1}),
        ("(S (NP DT NN )NP (PP IN )PP )S", "a", "(S (NP (DT a)))", {"words_extra": 2, "constituents_empty": 1}),
        ("(S DT , NN . )S", "a b c . d", "(S (DT a) (, b) (NN c) (. .) (XX d))", {"words_missing": 1}),
        ("(S XX , XX , XX )S", "a , b", "(S (XX a) (, ,) (XX b))", {"words_extra": 2}),
    ],
)
def test_repairs(text: str, given: str, expected: str, repairs: dict[str, int]) -> None:
    found, counted = delinearise(text, given.split())
    assert str(found) == expected
    assert counted == Repairs(**repairs, trees=1 if repairs else 0)


def outputs(source: random.Random) -> tuple[str, list[str]]:
    """What a model could write, from a tree with some errors to noise; and words."""
    start = random_tree(source)
    tokens = linearise(start).split()
    given = words(start)
    for _ in range(source.choice([0, 1, 2, 5, 50])):
        bracketed = source.choice("()") + source.choice(LABELS)
        tokens.insert(source.randint(0, len(tokens)), source.choice([bracketed, "NN", source.choice(NOISE)]))
    tokens = [token for token in tokens if source.random() < 0.95]
    given = [word for word in given if source.random() < 0.9] or ["dog"]
    return source.choice([" ", " ", " ", "  ", "\t"]).join(tokens), given


def test_whatever_the_model_writes_there_is_a_tree_over_the_given_words() -> None:
    source = random.Random(2)
    total = Repairs()
    for number in range(20_000):
        text, given = outputs(source)
        found, repairs = delinearise(text, given, tags_by_form=number % 2 == 0)
        assert words(found) == given, text
        (again,) = parse_trees([str(found)], "text")
        assert again == found, text
        total += repairs
        # Nothing but TOP is added: every other constituent is one that the model opened.
        labels: list[str] = []
        found.fold(lambda leaf: "", lambda constituent, _, labels=labels: labels.append(constituent.label) or "")  # type: ignore[misc]
        for label in set(labels) - {"TOP"}:
            assert labels.count(label) <= text.count(f"({label}"), text
    assert min(vars(total).values()) > 500  # each kind of repair was needed
    assert total.trees < 19_000


def test_by_form_the_words_that_evalb_deletes_depend_on_the_words_alone() -> None:
    source = random.Random(3)
    for _ in range(2000):
        text, given = outputs(source)
        deleted = [
            [leaf.label in (*PUNCTUATION, "-NONE-", "TOP") for leaf in delinearise(output, given, True)[0].leaves()]
            for output in (text, "")
        ]
        differing = [word for word, a, b in zip(given, *deleted, strict=True) if a != b]
        assert set(differing) <= {"'"}  # a POS or a quotation mark, as the model has it


def test_by_form_a_tag_is_changed_only_if_need_be() -> None:
    given = words_of("a , b ; ' .")
    right = "(S NN , VB , '' . )S"
    assert delinearise(right, given, True) == delinearise(right, given)
    found, repairs = delinearise("(S , NN -NONE- TOP TOP NN )S", given, True)
    assert str(found) == "(S (XX a) (, ,) (XX b) (: ;) (XX ') (. .))"
    assert repairs == Repairs(trees=1, tags_changed=6)


def test_outputs_may_be_deep_and_long() -> None:
    found, repairs = delinearise("(NP " * 20_000 + "NN", ["a"])
    assert str(found) == "(NP " * 20_000 + "(NN a)" + ")" * 20_000
    assert repairs.brackets_closed == 20_000


def test_a_tree_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a word"):
        delinearise("(S NN )S", [])


def test_repairs_add_up_and_tell_themselves() -> None:
    total = Repairs(trees=1, words_missing=2) + Repairs(trees=1, roots_joined=1)
    assert total == Repairs(trees=2, words_missing=2, roots_joined=1)
    assert str(total) == "2 trees, 2 words missing, 1 roots joined"
    assert str(Repairs()) == "none" and not Repairs()


def test_words_of_a_line_are_such_as_a_tree_can_hold() -> None:
    assert words_of("  a (b) f(x)\t5\u00a0km \n") == ["a", "-LRB-b-RRB-", "f-LRB-x-RRB-", "5\u00a0km"]
    assert words_of(" \t") == []
