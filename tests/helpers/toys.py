"""A problem of a few words, and what generating its data leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem

ENGLISH = ("red", "green", "house", "tree", "small", "large", "river")
GREEK = ("κόκκινο", "πράσινο", "σπίτι", "δέντρο", "μικρό", "μεγάλο", "ποτάμι")


def lines(count: int, words: tuple[str, ...] = ENGLISH) -> list[str]:
    """Different lines of a few words each."""
    return [" ".join(words[number // 7**place % 7] for place in range(number % 5 + 2)) for number in range(count)]


class Toy(Problem):
    """English to Greek words from memory; `watch` is told of each pair before it is given."""

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


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


class Published(Toy):
    """With test sets, of which one is not at hand."""

    test_sets = ("first/full", "far", "second")
    file_suffixes = ("en", "el")

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        if name == "far":
            raise UserError("far.tgz: no such file; download it")
        yield from ({"inputs": f"{name} {number}\u2028\r.", "targets": f"{number}."} for number in range(3))
