"""The base class of problems. A problem defines its text, settings, scores and default settings of
decoding.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from t2t_repro.corpora.corpus import Corpus
from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError, unknown
from t2t_repro.files.json_file import check_types
from t2t_repro.hparam import MAX_INT, DecodeHParams
from t2t_repro.metrics.score import Score


class DatasetSplit:
    """Names of the splits, as in tensor2tensor."""

    TRAIN = "train"
    EVAL = "eval"
    TEST = "test"


class SpaceID:
    """tensor2tensor's numbers for kinds of text, for `Problem.target_space_id`."""

    GENERIC = 0
    EN_CHR = 2
    EN_TOK = 3
    EN_BPE_TOK = 4
    FR_CHR = 5
    FR_TOK = 6
    DE_CHR = 7
    DE_TOK = 8
    DE_BPE_TOK = 9
    PARSE_CHR = 14
    PARSE_TOK = 15
    ZH_TOK = 16
    ICE_CHAR = 17
    ICE_TOK = 18
    ICE_PARSE_TOK = 19
    MK_TOK = 20
    CS_TOK = 21
    CS_CHR = 22
    PY_TOK = 27
    CPP_TOK = 28
    COUNT = 32
    """Number of rows in the embedding that hparams.use_target_space_embedding adds. All numbers
    above are smaller.
    """


def setting(
    default: Any,
    help: str = "",
    is_label: bool = False,
    is_list: bool = False,
) -> Any:
    """Returns a field for a problem's `Settings`.

    Args:
        help: one line for --help; "" means the help of the base class's field with the same name.
        is_label: True if the generated data does not depend on the setting, e.g. on the names of
            the languages.
        is_list: True if the flag may be repeated. The setting's value has ";" between the values of
            the flags.
    """
    metadata = {"help": help, "is_label": is_label, "is_list": is_list}
    return dataclasses.field(default=default, metadata=metadata)


class Problem:
    """A task for a model to learn: turning source text into target text.

    A subclass must define `generate`, which yields the text. The subclass may add fields to
    `Settings`, and override the other attributes and methods below.

    Args:
        settings: values for fields of `Settings`, by name.
        was_reversed: True to swap sources and targets, for a problem name that ends in "_rev".
        name: registered name, without "_rev".

    Attributes:
        settings: the values of all settings, an instance of `Settings`.
        target_language: code of the language of outputs and references, such as "de"; "" if
            unknown. It selects the tokeniser of the paper's BLEU. The user may set it: t2t-decoder
            --target_language.

    Raises UserError if a setting is unknown or has a value of the wrong type.
    """

    @dataclass(frozen=True)
    class Settings:
        """Settings that the user can choose. Each field is a flag of t2t-datagen."""

        vocab_size: int = setting(
            0,
            (
                "subwords in the vocabulary; 0: by the amount of text, 8,000 for 29,000 pairs and "
                "at most 32,000"
            ),
        )
        clean_max_words: int = setting(
            0, "drop training pairs with more words than this on a side; 0 keeps all"
        )
        clean_max_ratio: float = setting(
            0.0,
            (
                "drop training pairs with more than this many words on one side per word on the "
                "other; 0 keeps all"
            ),
        )
        clean_duplicates: bool = setting(False, "drop training pairs that repeat an earlier pair")
        separate_vocabularies: bool = setting(
            False, "learn a vocabulary from the sources and another one from the targets"
        )

    num_train_shards: int = 0
    """Number of shards (files) into which t2t-datagen divides each train corpus; 0: one for each
    10,000 pairs, at most 100. Other splits have one shard.
    """
    decode_hparams: DecodeHParams = DecodeHParams()
    """Default settings of decoding for this problem. The base class has the paper's settings for
    translation.
    """
    symbols: tuple[str, ...] = ()
    """Strings that the vocabulary always encodes as a single token."""
    symbols_of_sources: bool = True
    """False if no source contains `symbols`, so that a separate vocabulary of the sources lacks
    them.
    """
    test_sets: ClassVar[tuple[str, ...]] = ()
    """Names of the test sets. t2t-datagen writes two text files for each test set, sources and
    targets.
    """
    dev_set: ClassVar[str] = "dev"
    """Name of the test set that holds the same text as the dev split."""
    file_suffixes: ClassVar[tuple[str, str]] = ("inputs", "targets")
    """Suffixes of the test sets' file names, for sources and for targets, such as ("en", "de")."""
    replaced_by: str = ""
    """Problem that generates text of this kind, if this problem only reads data that tensor2tensor
    generated.
    """
    is_self_contained: bool = True
    """True if t2t-datagen needs no downloads, and no files except those that the settings name.
    Then t2t-trainer generates missing data. If False, t2t-datagen refuses a --tmp_dir that others
    can write.
    """
    corpus_temperature: float = 1.0
    """T, 1 or more: without weights, shares of corpora are in proportion to (target tokens) ** (1 /
    T).
    """
    target_space_id: int = 0
    """tensor2tensor's number for the targets' language, which selects the vector of
    use_target_space_embedding.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises UserError if `Settings` is not a dataclass."""
        super().__init_subclass__(**options)
        if "__dataclass_fields__" not in vars(cls.Settings):
            raise UserError(
                f"problem {cls.__name__}: write @dataclass(frozen=True) above the class Settings"
            )

    def __init__(
        self, settings: dict[str, Any], was_reversed: bool = False, name: str = ""
    ) -> None:
        check_types(self.Settings, settings, f"settings of problem {name!r}")
        self.settings: Any = self.Settings(**settings)
        self.was_reversed = was_reversed
        self.base_name = name
        self.target_language = self.languages[0 if was_reversed else 1]

    @property
    def name(self) -> str:
        """Registered name, followed by "_rev" if the problem is reversed."""
        return self.base_name + ("_rev" if self.was_reversed else "")

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of the languages of sources and targets, such as ("en", "de"); "" if unknown. Not
        swapped by "_rev".
        """
        return "", ""

    @property
    def t2t_vocabularies(self) -> tuple[str, str]:
        """File names of the vocabularies of sources and targets in tensor2tensor's data; "" if it
        lacks the problem.
        """
        return "", ""

    @property
    def learns_vocabulary(self) -> bool:
        """True if t2t-datagen may learn a vocabulary from the text, False if it must use
        `t2t_vocabularies`.
        """
        return True

    @property
    def changed_settings(self) -> dict[str, Any]:
        """Settings whose values differ from the defaults, by name."""
        # A subclass may have other defaults than its `Settings`.
        defaults = type(self)({}, self.was_reversed, self.base_name).settings
        return {
            name: value
            for name, value in vars(self.settings).items()
            if value != getattr(defaults, name)
        }

    @classmethod
    def setting_help(cls, name: str) -> str:
        """Returns a setting's text for --help. A field without text has the text of the same field
        in a base class.
        """
        for settings in cls.Settings.__mro__:
            field = getattr(settings, "__dataclass_fields__", {}).get(name)
            if field and field.metadata.get("help"):
                return str(field.metadata["help"])
        return ""

    def source_files(self) -> list[tuple[str, str]]:
        """Returns files of text that no setting names directly, each with the flag behind it."""
        return []

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields the sentence pairs of a split, "train" or "dev", in the same order on each call.

        If `was_reversed` is set, the caller swaps the sides of each pair. `tmp_dir` is the folder
        of downloads and the problem's source files.
        """
        raise UserError(f"problem {self.name}: define generate(self, split, tmp_dir)")

    def corpora(self, split: str) -> tuple[Corpus, ...]:
        """Returns the corpora of a split, in the order of their text in `generate`."""
        return (Corpus(),)

    def generate_corpus(self, split: str, number: int, tmp_dir: str) -> Iterator[Pair]:
        """Yields the pairs of the corpus `corpora(split)[number]`. Arguments and order are those of
        `generate`.
        """
        return self.generate(split, tmp_dir)

    def parts(self, split: str, number: int, tmp_dir: str) -> Sequence[Any]:
        """Returns the parts of the corpus `corpora(split)[number]` that several processes can read
        at the same time.

        A part is an object that pickle can store, which `read_part` understands.
        """
        return [None]

    def read_part(self, part: Any, split: str, number: int, tmp_dir: str) -> Iterator[Pair]:
        """Yields the pairs of one of the `parts`. All parts together, in their order, have those of
        the corpus.
        """
        return self.generate_corpus(split, number, tmp_dir)

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields the sentence pairs of a test set. If `was_reversed` is set, the caller swaps the
        sides.
        """
        raise unknown("test set", name, self.test_sets)

    def output_rules(self, vocabulary: Any) -> Any:
        """Returns the `decoding.rules.Rules` that `well_formed` requests, for outputs in this
        vocabulary; None if the problem has no such rules.
        """
        return None

    def finish(self, sources: Sequence[str], outputs: Sequence[str]) -> tuple[list[str], Any]:
        """Returns the lines that t2t-decoder writes, one for each source, and a report to print or
        None.

        `sources` are the lines that the model has read, and `outputs` its output for each of them.
        """
        return list(outputs), None

    def scores(self, outputs: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Returns one score for each metric of the problem, the main metric first.

        `outputs` are lines that `finish` returned. `references` has the correct line for each of
        them.
        """
        from t2t_repro.metrics import bleu  # imported here, because sacreBLEU is slow to import

        return bleu.scores(outputs, references, self.target_language)

    def check(self) -> None:
        """Raises UserError if a setting is out of range, or only some corpora have weights.

        t2t-datagen calls this method before it writes any file.
        """
        for name in ("vocab_size", "clean_max_words", "clean_max_ratio"):
            value = getattr(self.settings, name)
            if not 0 <= value <= MAX_INT:  # also refuses NaN
                raise UserError(f"--{name}={value} must be in 0 .. {MAX_INT}")
        without_weight = [corpus.name for corpus in self.corpora("train") if not corpus.weight]
        if 0 < len(without_weight) < len(self.corpora("train")):
            raise UserError(
                f"corpus {without_weight[0]} has no weight but others have one; give all or none"
            )
