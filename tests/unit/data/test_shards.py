"""Tests the shards of several corpora, and that shards of unchanged corpora are kept when another
corpus is added.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from folders import contents
from t2t_repro import registry
from t2t_repro.corpora.corpus import Corpus
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from t2t_repro.data.job import Options
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from toys import GREEK, Toy, failure, lines, text_files

VOCABULARY = "vocab.toy.400.model"


class Corpora(Toy):
    """A problem with the train corpora `parts`: the numbers of the pairs at their start and end,
    and their weight.
    """

    def __init__(self, **parts: tuple[int, int, float]) -> None:
        super().__init__(100)
        self.parts = parts
        self.settings = Problem.Settings(400, clean_duplicates=True)

    def corpora(self, split: str) -> tuple[Corpus, ...]:
        if split == "dev":
            return (Corpus(),)
        return tuple(Corpus(name, weight) for name, (_, _, weight) in self.parts.items())

    def generate_corpus(self, split: str, number: int, tmp_dir: str) -> Iterator[Pair]:
        if split == "dev":
            return self.generate(split, tmp_dir)
        start, stop, _ = list(self.parts.values())[number]
        return iter(self.pairs["train"][start:stop])


STAGES: list[tuple[dict[str, tuple[int, int, float]], list[int]]] = [
    ({"first": (0, 40, 2.0), "second": (30, 60, 1.0)}, [0, 1, 2, 3, 4, 5]),
    ({"first": (0, 40, 2.0), "second": (30, 60, 1.0), "new": (55, 80, 1.0)}, [0, 1, 2, 3, 4, 5]),
    # Now the pairs 30 to 39 are duplicates in "first", no longer in "second".
    ({"second": (30, 60, 5.0), "new": (55, 80, 1.0), "first": (0, 40, 2.0)}, [3, 4, 5]),
    ({"second": (30, 60, 0.0)}, [0, 1, 2]),
]
"""The corpora of one run after another, and the numbers of the shards that are the files of the run
before.
"""


def inodes(folder: Path) -> dict[int, str]:
    return {path.stat().st_ino: path.name for path in folder.glob("toy-train-*")}


@pytest.mark.parametrize("has_links", [True, False])
def test_only_new_corpora_are_encoded_and_the_bytes_are_those_of_a_run_from_scratch(
    tmp_path: Path, has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_data(Corpora(**STAGES[0][0]), tmp_path / "data", "")
    vocabulary = tmp_path / VOCABULARY
    vocabulary.write_bytes((tmp_path / "data" / VOCABULARY).read_bytes())
    if not has_links:
        monkeypatch.setattr(os, "link", lambda *paths: os.mkdir("/"))  # an OSError
    for number, (parts, kept) in enumerate(STAGES):
        before = inodes(tmp_path / "data")
        generate_data(
            Corpora(**parts), tmp_path / "data", "", Options(0, vocabulary, overwrite=True)
        )
        shards = [f"toy-train-{shard:05}-of-{3 * len(parts):05}" for shard in kept if has_links]
        shards += [f"{name}.index" for name in shards]
        after = inodes(tmp_path / "data")
        assert {after[inode] for inode in before.keys() & after} == {*shards}
        generate_data(Corpora(**parts), tmp_path / f"{number}", "", Options(0, vocabulary))
        assert contents(tmp_path / "data") == contents(tmp_path / f"{number}")


def test_a_damaged_shard_is_never_kept(tmp_path: Path) -> None:
    old = Corpora(**STAGES[0][0])
    new = Corpora(**STAGES[1][0])
    for folder in ("damaged", "whole"):
        generate_data(old, tmp_path / folder, "")
    shard = tmp_path / "damaged" / "toy-train-00001-of-00006"
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    for folder in ("damaged", "whole"):
        vocabulary = tmp_path / folder / VOCABULARY
        generate_data(new, tmp_path / folder, "", Options(0, vocabulary, overwrite=True))
    assert contents(tmp_path / "damaged") == contents(tmp_path / "whole")


def test_other_weights_are_other_data(tmp_path: Path) -> None:
    fingerprints = set()
    for weights in ((1.0, 2.0), (1.0, 3.0), (0.0, 0.0)):
        problem = Corpora(first=(0, 40, weights[0]), second=(40, 60, weights[1]))
        if fingerprints:
            assert "holds data of problem toy" in failure(problem, tmp_path)
        fingerprints.add(generate_data(problem, tmp_path, "", Options(overwrite=True)).fingerprint)
    assert len(fingerprints) == 3


def test_the_data_knows_its_corpora(tmp_path: Path) -> None:
    pairs = zip(lines(9), lines(9, GREEK), strict=True)
    (tmp_path / "c.tsv").write_text("".join(f"{a} new\t{b}\n" for a, b in pairs))
    problem = text_files(tmp_path)
    train = f"{problem.settings.train};{tmp_path}/c.tsv"
    settings = vars(problem.settings) | {"train": train, "corpus_temperature": 2.0}
    description = generate_data(registry.problem("text_files", settings), tmp_path / "data", "")
    loaded = load_data(str(tmp_path / "data"), "text_files")
    assert loaded.description == description
    first, second = loaded.records["train"].corpora
    assert (first.name, first.start, first.stop) == ("a.el", 0, 40)
    assert (second.name, second.start, second.stop) == ("c.tsv", 40, 49)
    tokens = loaded.records["train"].lengths[1]
    assert first.weight**2 == pytest.approx(tokens[:40].sum())
    assert second.weight**2 == pytest.approx(tokens[40:].sum())
    summaries = json.loads((tmp_path / "data" / "datagen.json").read_text("utf-8"))
    figures = summaries["text_files"]["splits"]
    assert [corpus["pairs_kept"] for corpus in figures["train"]["corpora"]] == [40, 9]
    assert "corpora" not in figures["dev"]
    for train in (
        [{"stop": 40}],
        [{"stop": 40}, {"start": 39, "stop": 49}],
        [{"stop": 60}, {"start": 60, "stop": 49}],
        [{"stop": 49, "weight": -1}],
        [{"stop": 49, "wait": 1}],
        "all",
    ):
        with pytest.raises(UserError):
            dataclasses.replace(description, corpora={"train": train})
