"""What to learn: where text comes from, its settings, its metrics and how its outputs are searched for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError, unknown
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import Score


def setting(default: Any, help: str) -> Any:
    """A field of a problem's `Settings`.

    Args:
        help: one line for --help.
    """
    return dataclasses.field(default=default, metadata={"help": help})


class Problem:
    """A mapping from text to text that a model can learn.

    A subclass says where its text comes from, by `generate`; what it offers to the user's choice, by its `Settings`,
    each field of which is a flag of t2t-datagen; and what else differs from the defaults below.

    Args:
        settings: values for fields of `Settings`.
        was_reversed: whether to learn the other direction ("_rev" in tensor2tensor).
        name: the registered name, without "_rev".

    Raises:
        UserError: an unknown setting.
    """

    @dataclass(frozen=True)
    class Settings:
        """What the user may choose; each field is a flag of t2t-datagen."""

        vocab_size: int = setting(
            32000, "subwords in the vocabulary that both sides share; fewer where the text is too small for as many"
        )
        clean_max_words: int = setting(0, "leave out training pairs with a side of more words; 0 keeps all")
        clean_max_ratio: float = setting(
            0.0, "leave out training pairs with a side of more than so many times the other's words; 0 keeps all"
        )
        clean_duplicates: bool = setting(False, "leave out training pairs that repeat an earlier one")

    num_train_shards: ClassVar[int] = 100
    """Files that the training data is spread over; other splits have one."""
    decode_hparams: ClassVar[DecodeHParams] = DecodeHParams()
    """How outputs are searched for by default; the paper's values for translation."""
    symbols: ClassVar[tuple[str, ...]] = ()
    """Strings that the vocabulary holds as one piece each, wherever they occur."""
    test_sets: ClassVar[tuple[str, ...]] = ()
    """Names of its test sets, each of which t2t-datagen writes as two files of text."""
    dev_set: ClassVar[str] = "dev"
    """Which of the test sets is the text of the dev split."""
    file_suffixes: ClassVar[tuple[str, str]] = ("inputs", "targets")
    """Ends of the names of text files with sources and with targets, e.g. languages."""
    target_space_id: ClassVar[int] = 0
    """tensor2tensor's number of the target language and unit, for use_target_space_embedding; 0 is any."""

    def __init__(self, settings: dict[str, Any], was_reversed: bool = False, name: str = "") -> None:
        names = [field.name for field in dataclasses.fields(self.Settings)]
        for given in settings:
            if given not in names:
                raise unknown(f"setting of problem {name!r}", given, names)
        self.settings: Any = self.Settings(**settings)
        self.was_reversed = was_reversed
        self.base_name = name

    @property
    def name(self) -> str:
        """The name as the user writes it, with "_rev" where the problem is reversed."""
        return self.base_name + ("_rev" if self.was_reversed else "")

    @property
    def changed_settings(self) -> dict[str, Any]:
        """The settings that are not their defaults."""
        given = [(field, getattr(self.settings, field.name)) for field in dataclasses.fields(self.settings)]
        return {field.name: value for field, value in given if value != field.default}

    @property
    def is_self_contained(self) -> bool:
        """Whether `generate` needs nothing that is not at hand; if so, t2t-trainer calls it where data is missing."""
        return True

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """The pairs of a split, in the unreversed direction, in the same order each time.

        Args:
            split: "train" or "dev".
            tmp_dir: folder of downloads and raw sources.

        Raises:
            UserError: a source is missing or damaged.
        """
        raise NotImplementedError(f"problem {self.name}: define generate(self, split, tmp_dir)")

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        """The pairs of a published test set, in the unreversed direction.

        Raises:
            UserError: no such set, or its source is missing or damaged.
        """
        raise unknown("test set", name, self.test_sets)

    def finish(self, sources: Sequence[str], outputs: Sequence[str]) -> tuple[list[str], Any]:
        """What t2t-decoder writes, a line for each source, and what is to be said of it on the terminal, if anything.

        Args:
            sources: lines that were decoded.
            outputs: the model's output for each.
        """
        return list(outputs), None

    def scores(self, outputs: Sequence[str], references: Sequence[str]) -> list[Score]:
        """How good outputs are, as `finish` gave them, by the measures of the task; the first is the one to report."""
        from t2t_repro.metrics import bleu  # here, since sacreBLEU takes a while to import

        language = self.file_suffixes[0 if self.was_reversed else 1]
        return bleu.scores(outputs, references, language if language in bleu.moses_languages() else "en")

    def check(self) -> None:
        """Raises UserError where the settings do not suffice to generate data; called before anything is written."""
        for name, least in (("vocab_size", 1), ("clean_max_words", 0), ("clean_max_ratio", 0)):
            value = getattr(self.settings, name)
            if not value >= least:  # nor is nan
                raise UserError(f"--{name}={value} must be {least} or more")
