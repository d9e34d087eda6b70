"""Opens the data that t2t-datagen generated for a problem: its description, vocabulary and records.

t2t-datagen writes the description, `<problem>.json`, after all other files that training needs. So
a data directory without a description holds no finished data.
"""

import dataclasses
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from t2t_repro import registry
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import summary
from t2t_repro.data.large_split import open_records
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies.kinds import (
    check_vocabulary_name,
    load_vocabularies,
    load_vocabulary,
)
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, counted, shortened
from t2t_repro.files.json_file import from_fields, from_json, to_json
from t2t_repro.files.output_files import write_file
from t2t_repro.files.untrusted import read_text
from t2t_repro.problem import Problem

SPLITS = ("train", "dev")
MAX_BYTES = 1 << 23
"""Maximum size of a description. It lists up to 10,000 shards with less than 600 bytes each."""


@dataclass(frozen=True)
class Description:
    """Facts about the generated data of a problem, stored as JSON."""

    problem: str
    """Name of the problem, without "_rev"."""
    settings: dict
    """Settings of the problem. If the user supplied a vocabulary, vocab_size is the size of that
    vocabulary.
    """
    vocabulary: str
    """File name of the vocabulary of the targets."""
    vocabulary_fingerprint: str
    """Twelve hex digits that identify the vocabulary."""
    fingerprint: str
    """Twelve hex digits that identify all records and the vocabulary."""
    pairs: dict
    """Number of pairs in the shards of each split."""
    dropped: dict
    """For each split, the number of pairs that t2t-datagen dropped, by reason."""
    vocabulary_given: bool = False
    """True if the vocabulary came from --vocab_file, False if it was learned from the text."""
    source_fingerprint: str = ""
    """Hash of the text, the settings and the user's vocabulary."""
    shards: dict = field(default_factory=dict)
    """For each split, `Records.index_fingerprint` of its shards."""
    source_vocabulary: str = ""
    """File name of the vocabulary of the sources; "" if sources and targets have the same
    vocabulary.
    """
    corpora: dict = field(default_factory=dict)
    """For each split, its corpora as fields of `StoredCorpus`, in the order of their shards.
    Empty for data of tensor2tensor.
    """

    def __post_init__(self) -> None:
        """Raises UserError if `pairs` or `vocabulary` is invalid. `from_json` checks only their
        types.
        """
        if not all(
            type(self.pairs.get(split)) is int and self.pairs[split] >= 0 for split in SPLITS
        ):
            raise UserError(
                f"pairs={shortened(repr(self.pairs))} must give the number of pairs for train and "
                "dev; restore the file"
            )
        check_vocabulary_name(self.vocabulary)
        if self.source_vocabulary:
            check_vocabulary_name(self.source_vocabulary)
        for split in SPLITS:
            self.stored_corpora(split)

    def stored_corpora(self, split: str) -> tuple[StoredCorpus, ...]:
        """Returns the corpora of a split, in the order of their shards. Raises UserError if they
        are invalid.
        """
        items = self.corpora.get(split, [])
        corpora = tuple(from_fields(StoredCorpus, item, f"corpora of {split}") for item in items)
        # Each corpus starts where the one before stops, from 0 to the number of pairs.
        starts = [*(corpus.start for corpus in corpora), self.pairs[split]]
        stops = [0, *(corpus.stop for corpus in corpora)]
        is_valid = starts == stops == sorted(stops)
        for corpus in corpora:
            is_valid = is_valid and 0 <= corpus.weight < math.inf and corpus.shards >= 0
        if corpora and not is_valid:
            raise UserError(
                f"corpora={shortened(repr(corpora))} do not fit pairs={self.pairs}; restore the "
                "file"
            )
        return corpora

    def save(self, path: Path) -> None:
        """Writes the description, which appears only when it is complete."""
        write_file(path, to_json(self))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns the description in a file. Raises UserError if it is damaged."""
        return from_json(cls, read_text(path, MAX_BYTES), str(path))


def description_path(data_dir: str | Path, problem: str) -> Path:
    return Path(data_dir) / f"{problem}.json"


def problems_in(data_dir: str | Path) -> list[str]:
    """Returns the names of the problems whose data in the data directory is finished."""
    paths = sorted(Path(data_dir).glob("*.json"))
    return [path.stem for path in paths if path.name != summary.FILE_NAME]


def missing_data(data_dir: str | Path, problem: Problem, tmp_dir: str = "") -> UserError:
    """Returns an error that reports missing data and names the t2t-datagen command that generates
    the data.
    """
    problems = problems_in(data_dir)
    contents = f" (it holds {', '.join(problems)})" if problems else ""
    cure = f"run {datagen_command(data_dir, problem, tmp_dir)}"
    if problem.replaced_by:
        cure = (
            "give the folder that tensor2tensor's t2t-datagen wrote, or generate data of this "
            f"kind with --problem={problem.replaced_by}"
        )
    return UserError(f"{data_dir}: no data of problem {problem.base_name!r}{contents}; {cure}")


def datagen_command(data_dir: str | Path, problem: Problem, tmp_dir: str = "") -> str:
    """Returns the command that generates the data of a problem. `tmp_dir` is the user's --tmp_dir;
    "" for none.
    """
    flags = {"t2t_usr_dir": registry.usr_dir(), "problem": problem.base_name}
    flags["tmp_dir"] = "" if problem.is_self_contained else tmp_dir
    flags["data_dir"] = str(data_dir)
    arguments = [f"--{name}={shlex.quote(value)}" for name, value in flags.items() if value]
    return " ".join(["t2t-datagen", *arguments])


def load_problem(data_dir: str | Path, name: str) -> tuple[Problem, Vocabulary, Description]:
    """Returns a problem with the settings of its generated data, the vocabulary, and the
    description of the data.

    If the problem is reversed, the vocabularies of sources and targets are swapped, also in the
    description.
    """
    description_file = description_path(data_dir, name.removesuffix(registry.REVERSED))
    if not description_file.is_file():
        raise missing_data(data_dir, registry.problem(name))
    description = Description.load(description_file)
    problem = registry.problem(name, description.settings)
    path = Path(data_dir) / description.vocabulary
    vocabulary = load_vocabularies(
        Path(data_dir), description.vocabulary, description.source_vocabulary
    )
    if vocabulary.fingerprint != description.vocabulary_fingerprint:
        raise UserError(
            f"{path}: fingerprint {vocabulary.fingerprint}, but the data was made with "
            f"{description.vocabulary_fingerprint}; restore the original vocabulary or run "
            "t2t-datagen again"
        )
    if problem.was_reversed and description.source_vocabulary:
        vocabulary = vocabulary.sources.with_sources(load_vocabulary(path))
        description = dataclasses.replace(
            description,
            vocabulary=description.source_vocabulary,
            source_vocabulary=description.vocabulary,
        )
    return problem, vocabulary, description


@dataclass(frozen=True)
class Data:
    problem: Problem
    vocabulary: Vocabulary
    description: Description
    records: dict[str, Records]
    """The examples of each split, under "train" and "dev": `LargeSplit` if they are many."""
    data_dir: str
    """The data directory."""


@dataclass(frozen=True)
class ForeignFormat:
    """A way to read data that another program generated, which has no description."""

    program: str
    """Name of the other program."""
    has_data: Callable[[str, Problem], bool]
    """Returns True if the data directory has the problem's data in this format."""
    load: Callable[[str, Problem], Data]
    """Returns the problem's data in the data directory."""


FOREIGN_FORMATS: list[ForeignFormat] = []
"""The formats that are looked for if a data directory has no description of a problem."""


def foreign_format(data_dir: str, problem_name: str) -> ForeignFormat | None:
    """Returns the format of a problem's data if another program generated it; else None."""
    if has_description(data_dir, problem_name):
        return None
    problem = registry.problem(problem_name)
    formats = (known for known in FOREIGN_FORMATS if known.has_data(data_dir, problem))
    return next(formats, None)


def has_description(data_dir: str, problem_name: str) -> bool:
    """Returns True if t2t-datagen has generated a problem's data in the data directory."""
    return description_path(data_dir, problem_name.removesuffix(registry.REVERSED)).exists()


def load_data(data_dir: str, problem_name: str) -> Data:
    """Returns the data of a problem. If the problem's name ends with "_rev", sources and targets
    are swapped.

    The data is that of t2t-datagen or, if there is none, in one of the `FOREIGN_FORMATS`.

    Raises UserError if the data is missing or damaged, or the shards are not those that the
    description is about.
    """
    if foreign := foreign_format(data_dir, problem_name):
        return foreign.load(data_dir, registry.problem(problem_name))
    problem, vocabulary, description = load_problem(data_dir, problem_name)
    sizes = (vocabulary.sources.size, vocabulary.size)
    records = {}
    for split in SPLITS:
        pairs = description.pairs[split]
        shards = find_shards(data_dir, problem.base_name, split)
        corpora = description.stored_corpora(split)
        split_records = open_records(pairs, shards, problem.was_reversed, sizes, corpora)
        records[split] = split_records
        fingerprint = split_records.index_fingerprint
        if len(split_records) != pairs or description.shards.get(split) != fingerprint:
            raise UserError(
                f"{data_dir}: the {split} shards ({counted(len(split_records), 'pair')}) are not "
                f"those that {description_path(data_dir, problem.base_name)} describes "
                f"({counted(pairs, 'pair')}); copy the shards and the description of the same run "
                "here, or run t2t-datagen again"
            )
    return Data(problem, vocabulary, description, records, str(data_dir))
