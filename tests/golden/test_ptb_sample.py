"""The Penn Treebank's free sample has the published numbers of trees and words, and linearization
loses nothing.
"""

import re
from pathlib import Path

import pytest

from t2t_repro import registry
from t2t_repro.parsing.linearization import linearise
from t2t_repro.parsing.trees import TOP, Tree, parse_trees, under_top
from t2t_repro.parsing.well_formed import MAX_OPENINGS
from t2t_repro.problems.wsj_parsing import PHRASE_LABELS, WsjParsing

SAMPLE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "ptb_sample"
pytestmark = pytest.mark.skipif(
    not SAMPLE.exists(), reason="../shared/data/ptb_sample does not exist"
)

SPLITS = {
    "train_sections": "00,0100-0159",
    "dev_sections": "0160-0179",
    "test_sections": "0180-0199",
}


@pytest.fixture(scope="module")
def problem() -> WsjParsing:
    problem = registry.problem("wsj_parsing", SPLITS)
    assert isinstance(problem, WsjParsing)
    problem.check()
    return problem


@pytest.fixture(scope="module")
def trees(problem: WsjParsing) -> list[Tree]:
    return [
        tree
        for split in ("train", "dev", "test")
        for tree in problem.prepared_trees(split, str(SAMPLE))
        if tree
    ]


def test_the_sample_has_the_trees_and_words_of_its_description(trees: list[Tree]) -> None:
    lengths = [len(list(tree.leaves())) for tree in trees]
    assert (len(trees), sum(lengths), sum(length <= 40 for length in lengths), max(lengths)) == (
        3914,
        94084,
        3629,
        249,
    )


def test_prepared_trees_have_only_labels_that_the_vocabulary_reserves(trees: list[Tree]) -> None:
    phrases: set[str] = set()
    for tree in trees:
        tree.fold(lambda leaf: None, lambda constituent, _: phrases.add(constituent.label))
        assert tree.label != TOP
    assert phrases == set(PHRASE_LABELS) - {TOP}
    tags = {leaf.label for tree in trees for leaf in tree.leaves()}
    letters = {tag for tag in tags if tag.isalpha()}
    assert tags - letters == {"PRP$", "WP$", "-LRB-", "-RRB-", "$", "#", ",", ".", ":", "``", "''"}
    assert len(letters) == 34


@pytest.mark.parametrize("word_symbol", ["tag", "XX"])
def test_a_search_for_trees_may_write_all_trees_of_the_sample(
    trees: list[Tree], word_symbol: str
) -> None:
    symbols = registry.problem("wsj_parsing", {"word_symbol": word_symbol}).tree_symbols
    brackets = {bracket + label for label in symbols.labels for bracket in "()"}
    openings = 0
    for text in (linearise(tree, word_symbol) for tree in trees):
        assert set(text.split()) <= brackets | set(symbols.words)
        openings = max(openings, *(run.count("(") for run in re.findall(r"(?:\([^ ]+ )+", text)))
    assert openings == 6 < MAX_OPENINGS


def test_the_problem_restores_gold_outputs_to_the_gold_trees(
    problem: WsjParsing, trees: list[Tree]
) -> None:
    pairs = [
        pair for split in ("train", "dev", "test") for pair in problem.generate(split, str(SAMPLE))
    ]
    outputs, repairs = problem.finish(
        (pair["inputs"] for pair in pairs), (pair["targets"] for pair in pairs)
    )
    assert repairs.trees == repairs.tags_changed
    assert len(list(parse_trees(outputs, "outputs"))) == len(trees)
    # In one tree, the treebank tags the word "Wa" as a comma, and `finish` changes the tag.
    assert (
        sum(output != str(under_top(tree)) for output, tree in zip(outputs, trees, strict=True))
        == 1
    )
