"""Problems with a few words and few lines, whose data is generated within a second."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.job import Options
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from user_errors import user_error

ENGLISH = ("red", "green", "house", "tree", "small", "large", "river")
GREEK = ("κόκκινο", "πράσινο", "σπίτι", "δέντρο", "μικρό", "μεγάλο", "ποτάμι")


def lines(count: int, words: tuple[str, ...] = ENGLISH) -> list[str]:
    """Returns `count` lines of 2 to 6 words each. The first 245 lines are all different."""
    return [
        " ".join(words[number // 7**place % 7] for place in range(number % 5 + 2))
        for number in range(count)
    ]


class Toy(Problem):
    """A problem that translates English words to Greek words. Its pairs are generated without
    files.

    Args:
        train: number of training pairs.
        dev: number of dev pairs.
        watch: called before each pair with the split, the number of the pass over the split,
            counted from 1, and the number of the pair, counted from 0.
    """

    num_train_shards = 3
    changed_settings: ClassVar[dict[str, Any]] = {}
    pairs: dict[str, list[Pair]]

    def __init__(
        self, train: int = 50, dev: int = 10, watch: Callable[[str, int, int], None] | None = None
    ) -> None:
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
    """A problem with three test sets of three pairs. Reading "far" fails, as if its file were
    missing.
    """

    test_sets = ("first/full", "far", "second")
    file_suffixes = ("en", "el")
    languages = ("en", "el")

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        if name == "far":
            raise UserError("far.tgz: no such file; download it")
        yield from (
            {"inputs": f"{name} {number}\u2028\r.", "targets": f"{number}."} for number in range(3)
        )


def text_files(folder: Path) -> Problem:
    """Writes small training and dev files into `folder` and returns a text_files problem that reads
    them.
    """
    for name, words, count in (
        ("a.en", ENGLISH, 40),
        ("a.el", GREEK, 40),
        ("b.en", ENGLISH, 5),
        ("b.el", GREEK, 5),
    ):
        (folder / name).write_text("".join(line + "\n" for line in lines(count, words)), "utf-8")
    settings = {
        "train": f"{folder}/a.en,{folder}/a.el",
        "dev": f"{folder}/b.en,{folder}/b.el",
        "vocab_size": 400,
    }
    return registry.problem("text_files", settings)


def problem_of(train: str, **settings: Any) -> Problem:
    """Returns a text_files problem that trains on the corpora `train`."""
    return registry.problem("text_files", {"train": train, "dev": "b.en,b.de"} | settings)


def train_pairs(problem: Problem) -> list[tuple[str, str]]:
    """Checks a problem, and returns the pairs of its train split."""
    problem.check()
    return [(pair["inputs"], pair["targets"]) for pair in problem.generate("train", "")]


def failure(
    problem: Problem, folder: Path, vocab_file: Path | str = "", overwrite: bool = False
) -> str:
    """Generates the data of a problem, asserts that this fails with UserError, and returns its
    one-line message.
    """
    return user_error(generate_data, problem, folder, "", Options(0, vocab_file, overwrite))
