"""The base class of problems: a source of text, its settings, its scores and its default search."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError, unknown
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import Score


def setting(default: Any, help: str = "") -> Any:
    """Defines a field of a problem's `Settings`.

    Args:
        help: one line for --help; by default, the help of the base class's field with the same name.
    """
    return dataclasses.field(default=default, metadata={"help": help})


class Problem:
    """A mapping from text to text that a model can learn.

    A subclass must define `generate`, which yields the text. It may define more `Settings`, each of which becomes a
    flag of t2t-datagen, and replace the other defaults below.

    Args:
        settings: values for fields of `Settings`.
        was_reversed: True to learn the opposite direction ("_rev" in tensor2tensor).
        name: registered name, without "_rev".

    Raises:
        UserError: if a setting is unknown.
    """

    @dataclass(frozen=True)
    class Settings:
        """The user's choices. Each field is a flag of t2t-datagen."""

        vocab_size: int = setting(32000, "subwords in the shared vocabulary; a small text yields fewer")
        clean_max_words: int = setting(0, "drop training pairs with more words than this on a side; 0 keeps all")
        clean_max_ratio: float = setting(
            0.0, "drop training pairs with more than this many words on one side per word on the other; 0 keeps all"
        )
        clean_duplicates: bool = setting(False, "drop training pairs that repeat an earlier pair")

    num_train_shards: ClassVar[int] = 100
    """Number of files for the training data. Other splits have one file."""
    decode_hparams: ClassVar[DecodeHParams] = DecodeHParams()
    """Default settings of decoding; by default, the paper's for translation."""
    symbols: ClassVar[tuple[str, ...]] = ()
    """Strings that are always a single piece of the vocabulary."""
    test_sets: ClassVar[tuple[str, ...]] = ()
    """Names of the test sets. t2t-datagen writes each as two text files."""
    dev_set: ClassVar[str] = "dev"
    """Name of the test set with the text of the dev split."""
    file_suffixes: ClassVar[tuple[str, str]] = ("inputs", "targets")
    """File name suffixes of source and target text, e.g. languages."""
    target_space_id: ClassVar[int] = 0
    """tensor2tensor's number of the target language and unit, for use_target_space_embedding; 0 is generic."""

    def __init__(self, settings: dict[str, Any], was_reversed: bool = False, name: str = "") -> None:
        setting_names = [field.name for field in dataclasses.fields(self.Settings)]
        for setting_name in settings:
            if setting_name not in setting_names:
                raise unknown(f"setting of problem {name!r}", setting_name, setting_names)
        self.settings: Any = self.Settings(**settings)
        self.was_reversed = was_reversed
        self.base_name = name

    @property
    def name(self) -> str:
        """Name as the user writes it, with "_rev" if the problem is reversed."""
        return self.base_name + ("_rev" if self.was_reversed else "")

    @property
    def changed_settings(self) -> dict[str, Any]:
        """Settings that differ from their defaults."""
        values = [(field, getattr(self.settings, field.name)) for field in dataclasses.fields(self.settings)]
        return {field.name: value for field, value in values if value != field.default}

    @classmethod
    def setting_help(cls, name: str) -> str:
        """Returns the help of a setting: its own, or that of the nearest base class that has one."""
        for settings in cls.Settings.__mro__:
            field = getattr(settings, "__dataclass_fields__", {}).get(name)
            if field and field.metadata.get("help"):
                return str(field.metadata["help"])
        return ""

    @property
    def is_self_contained(self) -> bool:
        """True if the data needs no downloads, and no files except those in the settings.

        t2t-trainer generates such data if it is missing.
        """
        return True

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields the pairs of a split in the unreversed direction, in the same order on each call.

        Args:
            split: "train" or "dev".
            tmp_dir: folder of downloads and raw sources.

        Raises:
            UserError: if a source is missing or damaged.
        """
        raise NotImplementedError(f"problem {self.name}: define generate(self, split, tmp_dir)")

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields the pairs of a test set in the unreversed direction.

        Raises:
            UserError: if the name is unknown, or the source is missing or damaged.
        """
        raise unknown("test set", name, self.test_sets)

    def finish(self, sources: Sequence[str], outputs: Sequence[str]) -> tuple[list[str], Any]:
        """Turns a model's outputs into the lines that t2t-decoder writes.

        Args:
            sources: decoded lines.
            outputs: the model's output for each source.

        Returns:
            One line per source, and a report to print, or None.
        """
        return list(outputs), None

    def scores(self, outputs: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Scores outputs, as `finish` returns them, by the task's metrics. The first score is the main one."""
        from t2t_repro.metrics import bleu  # Lazy, because sacreBLEU is slow to import.

        language = self.file_suffixes[0 if self.was_reversed else 1]
        return bleu.scores(outputs, references, language if language in bleu.moses_languages() else "en")

    def check(self) -> None:
        """Raises UserError if a setting is out of range. Called before anything is written."""
        for name, minimum in (("vocab_size", 1), ("clean_max_words", 0), ("clean_max_ratio", 0)):
            value = getattr(self.settings, name)
            if not value >= minimum:  # NaN fails, too.
                raise UserError(f"--{name}={value} must be {minimum} or more")
