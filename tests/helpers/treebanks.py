"""Trees: parsed, random, and as a small treebank with the folder layout of the Penn Treebank."""

import random
from collections.abc import Sequence
from pathlib import Path

from t2t_repro.parsing.trees import Tree, parse_trees

WORDS = ("dog", "cat", "bird", "tree", "river")


def parse(text: str) -> Tree:
    """Returns the only tree in a text."""
    (tree,) = parse_trees([text], "text")
    return tree


def random_tree(generator: random.Random, words: Sequence[Tree], labels: Sequence[str]) -> Tree:
    """Returns a random constituent over the tagged `words`. Constituents have one to four
    children.
    """
    cuts = sorted(
        generator.sample(range(1, len(words)), min(len(words) - 1, generator.randrange(4)))
    )
    parts = [words[start:end] for start, end in zip([0, *cuts], [*cuts, len(words)], strict=True)]
    children = (
        part[0]
        if len(part) == 1 and generator.random() < 0.7
        else random_tree(generator, part, labels)
        for part in parts
    )
    return Tree(generator.choice(labels), tuple(children))


def write_treebank(folder: Path) -> None:
    """Writes 40 short parsed sentences into section 02 of FOLDER/wsj, and 5 each into sections 22
    and 23.
    """
    for section, count in (("02", 40), ("22", 5), ("23", 5)):
        (folder / "wsj" / section).mkdir(parents=True)
        nouns = [WORDS[number % 5] for number in range(count)]
        text = "".join(
            f"( (S (NP-SBJ (DT the) (NN {noun})) (VP (VBZ is)) (. .)) )\n" for noun in nouns
        )
        (folder / "wsj" / section / f"wsj_{section}01.mrg").write_text(text, "utf-8")
