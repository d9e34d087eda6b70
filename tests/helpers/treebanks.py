"""Parses a tree, and writes a small treebank with the folder layout of the Penn Treebank."""

from __future__ import annotations

from pathlib import Path

from t2t_repro.parsing.trees import Tree, parse_trees

WORDS = ("dog", "cat", "bird", "tree", "river")


def parse(text: str) -> Tree:
    """Returns the only tree in a text."""
    (tree,) = parse_trees([text], "text")
    return tree


def write_treebank(folder: Path) -> None:
    """Writes 40 short parsed sentences into section 02 of FOLDER/wsj, and 5 each into sections 22 and 23."""
    for section, count in (("02", 40), ("22", 5), ("23", 5)):
        (folder / "wsj" / section).mkdir(parents=True)
        nouns = [WORDS[number % 5] for number in range(count)]
        text = "".join(f"( (S (NP-SBJ (DT the) (NN {noun})) (VP (VBZ is)) (. .)) )\n" for noun in nouns)
        (folder / "wsj" / section / f"wsj_{section}01.mrg").write_text(text, "utf-8")
