"""Problems with a few words, whose data is generated in a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data.datagen import generate_data
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem

ENGLISH = ("red", "green", "house", "tree", "small", "large", "river")
GREEK = ("κόκκινο", "πράσινο", "σπίτι", "δέντρο", "μικρό", "μεγάλο", "ποτάμι")


def lines(count: int, words: tuple[str, ...] = ENGLISH) -> list[str]:
    """Returns different lines of a few words."""
    return [" ".join(words[number // 7**place % 7] for place in range(number % 5 + 2)) for number in range(count)]


class Toy(Problem):
    """English to Greek words from memory. Before each pair it calls `watch(split, pass, number)`, passes from 1."""

    num_train_shards = 3
    pairs: dict[str, list[Pair]]

    def __init__(self, train: int = 50, dev: int = 10, watch: Callable[[str, int, int], None] | None = None) -> None:
        super().__init__({"vocab_size": 400}, name="toy")
        self.pairs = {
            split: [
                {"inputs": source, "targets": target}
                for source, target in zip(lines(count), lines(count, GREEK), strict=True)
            ]
            for split, count in (("train", train), ("dev", dev))
        }
        self.watch = watch
        self.passes = {"train": 0, "dev": 0}

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        self.passes[split] += 1
        for number, pair in enumerate(self.pairs[split]):
            if self.watch:
                self.watch(split, self.passes[split], number)
            yield pair


class Published(Toy):
    """A problem with test sets, of which one is missing."""

    test_sets = ("first/full", "far", "second")
    file_suffixes = ("en", "el")

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        if name == "far":
            raise UserError("far.tgz: no such file; download it")
        yield from ({"inputs": f"{name} {number}\u2028\r.", "targets": f"{number}."} for number in range(3))


def raise_at(error: BaseException, *place: object) -> Callable[[str, int, int], None]:
    """Returns a `watch` for Toy that raises `error` at a place (split, pass, number)."""

    def watch(*current_place: object) -> None:
        if current_place == place:
            raise error

    return watch


def text_files(folder: Path) -> Problem:
    """Writes small files, and returns the problem text_files that reads them."""
    for name, words, count in (("a.en", ENGLISH, 40), ("a.el", GREEK, 40), ("b.en", ENGLISH, 5), ("b.el", GREEK, 5)):
        (folder / name).write_text("".join(line + "\n" for line in lines(count, words)), "utf-8")
    settings = {"train": f"{folder}/a.en,{folder}/a.el", "dev": f"{folder}/b.en,{folder}/b.el", "vocab_size": 400}
    return registry.problem("text_files", settings)


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the bytes of each file in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def failure(problem: Problem, folder: Path, vocab_file: Path | str = "") -> str:
    """Returns the one-line error of a run of t2t-datagen that must fail."""
    with pytest.raises(UserError) as error:
        generate_data(problem, folder, "", vocab_file=vocab_file)
    assert "\n" not in str(error.value)
    return str(error.value)
