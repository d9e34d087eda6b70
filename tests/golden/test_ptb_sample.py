"""Trees of the Penn Treebank's free sample: the known counts, and that they are written and read back without loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_repro import registry
from t2t_repro.parsing.linearization import Repairs, delinearise, linearise, tag_of
from t2t_repro.parsing.trees import TOP, Tree, parse_trees, under_top
from t2t_repro.problems.wsj_parsing import PHRASE_LABELS, WsjParsing

SAMPLE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "ptb_sample"
pytestmark = pytest.mark.skipif(not SAMPLE.exists(), reason="../shared/data/ptb_sample is not there")

SPLITS = {"train_sections": "00,0100-0159", "dev_sections": "0160-0179", "test_sections": "0180-0199"}


@pytest.fixture(scope="module")
def problem() -> WsjParsing:
    found = registry.problem("wsj_parsing", SPLITS)
    assert isinstance(found, WsjParsing)
    found.check()
    return found


@pytest.fixture(scope="module")
def trees(problem: WsjParsing) -> list[Tree]:
    return [tree for split in ("train", "dev", "test") for tree in problem.prepared_trees(split, str(SAMPLE)) if tree]


def test_there_are_as_many_trees_and_words_as_the_samples_description_says(trees: list[Tree]) -> None:
    lengths = [len(list(tree.leaves())) for tree in trees]
    assert (len(trees), sum(lengths), sum(length <= 40 for length in lengths), max(lengths)) == (3914, 94084, 3629, 249)


def test_no_annotation_is_left_and_each_label_has_its_pieces(trees: list[Tree]) -> None:
    phrases: set[str] = set()
    for tree in trees:
        tree.fold(lambda leaf: None, lambda constituent, _: phrases.add(constituent.label))
        assert tree.label != TOP
    assert phrases == set(PHRASE_LABELS) - {TOP}
    tags = {leaf.label for tree in trees for leaf in tree.leaves()}
    letters = {tag for tag in tags if tag.isalpha()}
    assert tags - letters == {"PRP$", "WP$", "-LRB-", "-RRB-", "$", "#", ",", ".", ":", "``", "''"}
    assert len(letters) == 34


def test_written_with_tags_and_read_back_each_tree_is_the_same(trees: list[Tree]) -> None:
    for tree in trees:
        words = [leaf.word for leaf in tree.leaves()]
        assert delinearise(linearise(tree), words) == (tree, Repairs())


def test_written_with_xx_and_read_back_each_tree_has_the_same_brackets(trees: list[Tree]) -> None:
    for tree in trees:
        found, repairs = delinearise(linearise(tree, "XX"), [leaf.word for leaf in tree.leaves()])
        assert not repairs
        same = tree.fold(
            lambda leaf: Tree(tag_of(leaf.word), word=leaf.word), lambda t, parts: Tree(t.label, tuple(parts))
        )
        assert found == same


def test_finished_gold_outputs_are_the_gold_trees(problem: WsjParsing) -> None:
    differing = 0
    for split in ("train", "dev", "test"):
        pairs = list(problem.generate(split, str(SAMPLE)))
        gold = [str(under_top(tree)) for tree in problem.prepared_trees(split, str(SAMPLE)) if tree]
        found, repairs = problem.finish((pair["inputs"] for pair in pairs), (pair["targets"] for pair in pairs))
        differing += sum(a != b for a, b in zip(found, gold, strict=True))
        assert repairs.trees == repairs.tags_changed
        assert len(list(parse_trees(found, "found"))) == len(gold)
    assert differing == 1  # the treebank has "Wa", of a book's title, as a comma
