"""Numbers in English words to German words: a problem that needs no data, for trying things out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem, setting

DEV_SIZE = 500
LARGEST = 999_999


@registry.register_problem
class NumbersEnde(Problem):
    """Numbers up to a million, "three hundred and forty-two" to "dreihundertzweiundvierzig"; needs no data."""

    num_train_shards = 1
    target_space_id: ClassVar[int] = 8  # German words, in tensor2tensor's numbering

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        """How much of it there is."""

        vocab_size: int = setting(512, Problem.Settings.__dataclass_fields__["vocab_size"].metadata["help"])
        train_size: int = setting(20000, "numbers to train on")

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """Different numbers in each split; small ones, of which there are few, are drawn more often than others."""
        from num2words import num2words

        numbers = random.Random(2017)
        taken: set[int] = set()
        for position in range(DEV_SIZE + self.settings.train_size):
            number = -1
            while number in taken or number < 0:
                number = numbers.randrange(10_000 if position % 2 and len(taken) < 10_000 else LARGEST + 1)
            taken.add(number)
            if (position < DEV_SIZE) == (split == "dev"):
                yield {"inputs": num2words(number, lang="en"), "targets": num2words(number, lang="de")}

    def check(self) -> None:
        """Raises UserError where there are not so many numbers."""
        super().check()
        if not 1 <= self.settings.train_size <= LARGEST - DEV_SIZE:
            raise UserError(f"--train_size={self.settings.train_size} must be in 1 .. {LARGEST - DEV_SIZE}")
