"""Problem for quick experiments without files: translating numbers from English words to German
words.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError
from t2t_repro.metrics.score import Score, exact_matches
from t2t_repro.problem import Problem, SpaceID, setting

DEV_SIZE = 500
MAX_NUMBER = 999_999


@registry.register_problem
class NumbersEnde(Problem):
    """Numbers up to 999,999 from English to German words: "forty-two" to "zweiundvierzig". Needs no
    files.
    """

    num_train_shards = 1
    languages = ("en", "de")
    target_space_id = SpaceID.DE_TOK

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        vocab_size: int = setting(512)
        train_size: int = setting(20000, "numbers to train on")

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields the random numbers of a split in words. No number occurs twice, not even in
        different splits.

        The splits divide one list of random numbers. Among its first 10,000, every other number is
        below 10,000.
        """
        from num2words import num2words

        random_numbers = random.Random(2017)
        used: set[int] = set()
        for position in range(DEV_SIZE + self.settings.train_size):
            limit = 10_000 if position % 2 and len(used) < 10_000 else MAX_NUMBER + 1
            number = random_numbers.randrange(limit)
            while number in used:
                number = random_numbers.randrange(limit)
            used.add(number)
            if (position < DEV_SIZE) == (split == "dev"):
                yield {
                    "inputs": num2words(number, lang="en"),
                    "targets": num2words(number, lang="de"),
                }

    def scores(self, outputs: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Returns exact matches and chrF. BLEU counts sequences of four words, but a German number
        is one word.
        """
        chrf = [score for score in super().scores(outputs, references) if score.name == "chrf"]
        return [exact_matches(outputs, references), *chrf]

    def check(self) -> None:
        super().check()
        if not 1 <= self.settings.train_size <= MAX_NUMBER - DEV_SIZE:
            raise UserError(
                f"--train_size={self.settings.train_size} must be in 1 .. {MAX_NUMBER - DEV_SIZE}"
            )
