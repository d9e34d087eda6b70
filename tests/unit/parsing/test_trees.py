"""Tests that bracketed text is read as trees and written again, and that treebank trees are
prepared for parsing.
"""

from pathlib import Path

import pytest

from t2t_repro.errors import UserError
from t2t_repro.parsing.trees import parse_trees, prepare, read_trees, under_top
from treebanks import parse


def test_a_tree_may_span_lines_and_a_line_may_hold_several_trees() -> None:
    lines = [
        "( (S",
        "    (NP (NN dog) )",
        "",
        "    (VP (VBZ barks) ) ))  (X (UH oh))(X (UH",
        "no))",
    ]
    assert [str(tree) for tree in parse_trees(lines, "text")] == [
        "( (S (NP (NN dog)) (VP (VBZ barks))))",
        "(X (UH oh))",
        "(X (UH no))",
    ]


def test_only_ascii_white_space_separates() -> None:
    word = "5\u00a0\u0085\u2028\u3000\x1c000"
    assert [leaf.word for leaf in parse(f"(NP\t(CD {word})\x0b(NN km))").leaves()] == [word, "km"]


def test_a_tree_may_be_of_any_depth() -> None:
    text = "(S " * 3000 + "(NN dog)" + ")" * 3000
    assert str(prepare(parse(text))) == text
    assert [leaf.word for leaf in parse(text).leaves()] == ["dog"]


@pytest.mark.parametrize(
    ("lines", "number", "fault"),
    [
        (["(S (NN a))", "(S (NN b)"], 2, "never ends"),
        (["(S (NN a))", "", "(S (NN b))) (S (NN c))"], 3, "')' is outside a tree"),
        (["(S (NN a))", "dog"], 2, "'dog' is outside a tree"),
        (["(S", "(NN big dog))"], 2, "(NN big dog ...)"),
        (["(S dog (NN a))", ""], 1, "(S dog ...)"),
        (["()"], 1, "( ...)"),
    ],
)
def test_wrong_brackets_are_reported_with_file_and_line(
    tmp_path: Path, lines: list[str], number: int, fault: str
) -> None:
    path = tmp_path / "wsj_0001.mrg"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        list(read_trees(str(path)))
    assert str(error.value).startswith(f"{path}:{number}: ") and fault in str(error.value)
    with pytest.raises(UserError, match=f"^text:{number + 10}: "):
        list(parse_trees(lines, "text", first_line=11))


@pytest.mark.parametrize(
    ("raw", "prepared"),
    [
        # Traces are removed, and so are constituents that contain only traces.
        ("( (S (NP-SBJ (-NONE- *)) (VP (VB go))))", "(S (VP (VB go)))"),
        (
            "( (S (NP (NP (-NONE- *T*-1))) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *?*))))))",
            "(S (VP (VB go)))",
        ),
        # Function tags, indices and second labels are removed.
        (
            "( (S (NP-SBJ-1 (NN a)) (NP=2 (NN b)) (NP-LOC-PRD=1-3 (NN c))))",
            "(S (NP (NN a)) (NP (NN b)) (NP (NN c)))",
        ),
        (
            "( (VP (ADVP|PRT (RB up)) (PRT|ADVP (RP in)) (JJ|NN fun)))",
            "(VP (ADVP (RB up)) (PRT (RP in)) (JJ fun))",
        ),
        # Labels that start with a sign stay whole, and so do words that contain signs.
        (
            (
                "( (NP (PRP$ its) (-LRB- -LRB-) ($ US$) (# #) (: --) (-RRB- -RRB-) (NN a-b=c|d) "
                "(`` ``) ('' '')))"
            ),
            (
                "(NP (PRP$ its) (-LRB- -LRB-) ($ US$) (# #) (: --) (-RRB- -RRB-) (NN a-b=c|d) (`` "
                "``) ('' ''))"
            ),
        ),
        # The outer bracket is removed, or stays as TOP if it contains several constituents or a
        # word.
        ("(TOP (S (NN a)))", "(S (NN a))"),
        ("( ( (S (NN a))))", "(S (NN a))"),
        ("( (S (NN a)) (S (-NONE- *)))", "(S (NN a))"),
        ("( (S (NN a)) (. .))", "(TOP (S (NN a)) (. .))"),
        ("( (S (NN a)) (S (NN b)))", "(TOP (S (NN a)) (S (NN b)))"),
        ("(UH oh)", "(TOP (UH oh))"),
        ("( (S ( (NN a)) ((VP (VB b)) (. .))))", "(S (NN a) (TOP (VP (VB b)) (. .)))"),
        # A constituent stays if its only child has the same label.
        ("( (S (NP-SBJ (NP (NN a)) (PP (-NONE- *ICH*-1)))))", "(S (NP (NP (NN a))))"),
    ],
)
def test_annotation_is_removed_for_parsing(raw: str, prepared: str) -> None:
    tree = prepare(parse(raw))
    assert str(tree) == prepared
    assert tree and prepare(tree) == tree
    assert under_top(under_top(tree)) == under_top(tree)
    assert str(under_top(tree)) == (
        prepared if prepared.startswith("(TOP") else f"(TOP {prepared})"
    )
    assert prepare(parse("( (S (NP (-NONE- *)) (VP (-NONE- *?*))))")) is None
