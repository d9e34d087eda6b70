"""Tests the warnings about text that was probably given by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_repro.data.datagen import generate_data
from t2t_repro.data.text_check import TextCheck
from t2t_repro.parsing.linearization import TreeSymbols
from toys import GREEK, Toy, lines

OVERLAP = "every dev pair is also a training pair, so the dev loss will not show overfitting"
COPY = "in every training pair, the target text is the source text; are both sides one file?"
A, B, C = ("a", "eins"), ("b", "zwei"), ("c", "drei")


@pytest.mark.parametrize(
    ("train", "dev", "warnings"),
    [
        ([A, B], [B, C], []),
        ([A, B], [("a", "zwei")], []),
        ([A, B, C], [B, B], [OVERLAP]),
        ([("a", "a"), B], [C], []),
        ([("a", "a")], [("a", "a")], [OVERLAP, COPY]),
    ],
)
def test_a_dev_split_within_the_train_split_and_equal_sides_are_reported(
    train: list[tuple[str, str]], dev: list[tuple[str, str]], warnings: list[str]
) -> None:
    check = TextCheck()
    for watch, pairs in ((check.dev, dev), (check.train, train)):
        originals = [{"inputs": source, "targets": target} for source, target in pairs]
        assert list(watch(originals)) == originals
    assert check.warnings() == warnings


TREE = "(S (NP ART )NP (VP )VP $. )S"
OTHERS = "its trees have labels or tags that the problem does not list: "
CANNOT = "; a search with well_formed=true cannot write them"


class Parser(Toy):
    """A problem whose targets are trees."""

    tree_symbols = TreeSymbols(("S", "NP"), ())


@pytest.mark.parametrize(
    ("symbols", "warnings"),
    [
        (TreeSymbols(("S", "NP", "VP"), ("ART", "$.")), []),
        (TreeSymbols(("S",), ()), [f"{OTHERS}NP VP{CANNOT}"]),
        (TreeSymbols(("S", "VP"), ("NN",)), [f"{OTHERS}$. ART NP{CANNOT}"]),
        (TreeSymbols(("X",), ("X",)), [f"{OTHERS}$. ART NP S VP{CANNOT}"]),
        (None, []),
    ],
)
def test_trees_with_other_labels_or_tags_are_reported(symbols: TreeSymbols | None, warnings: list[str]) -> None:
    check = TextCheck(symbols)
    list(check.dev([{"inputs": "Es schneit .", "targets": TREE}]))
    list(check.train([{"inputs": "Es schläft .", "targets": TREE}]))
    assert check.warnings() == warnings


def test_the_warnings_are_about_the_text_that_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # White space around a text and pairs with an empty side do not count.
    problem = Toy()
    problem.pairs["dev"] = [{"inputs": source, "targets": "x"} for source in lines(5)]
    problem.pairs["train"] = [{"inputs": source, "targets": f" {source}"} for source in lines(40, GREEK)]
    problem.pairs["train"].append({"inputs": "", "targets": "x"})
    generate_data(problem, tmp_path / "two", "")
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")] == [
        f"warning: problem toy: {COPY}"
    ]
    parser = Parser()
    parser.pairs["train"] = [{"inputs": source, "targets": f"(CNP {source} )CNP"} for source in lines(40)]
    generate_data(parser, tmp_path / "three", "")
    assert f"warning: problem toy: {OTHERS}CNP{CANNOT}\n" in capsys.readouterr().err
