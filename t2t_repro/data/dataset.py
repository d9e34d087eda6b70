"""Opens the data that t2t-datagen generated for a problem."""

from __future__ import annotations

from dataclasses import dataclass

from t2t_repro import registry
from t2t_repro.data.description import SPLITS, Description, description_path, load_problem
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem


@dataclass(frozen=True)
class Data:
    """The data of one problem."""

    problem: Problem
    vocabulary: Vocabulary
    description: Description
    records: dict[str, Records]
    """The examples of each split, under "train" and "dev"."""
    data_dir: str
    """The data directory."""


def has_data(data_dir: str, problem_name: str) -> bool:
    """Returns True if the directory has finished data of a problem."""
    return description_path(data_dir, problem_name.removesuffix(registry.REVERSED)).exists()


def load_data(data_dir: str, problem_name: str) -> Data:
    """Returns the data of a problem. If the problem's name ends with "_rev", sources and targets are swapped.

    Raises:
        UserError: if the data is missing or damaged, or the shards are not those that the description is about.
    """
    problem, vocabulary, description = load_problem(data_dir, problem_name)
    sizes = (vocabulary.sources.size, vocabulary.size)
    records = {
        split: Records(find_shards(data_dir, description.problem, split), problem.was_reversed, sizes)
        for split in SPLITS
    }
    for split, split_records in records.items():
        pairs, fingerprint = description.pairs[split], split_records.index_fingerprint
        # Descriptions of commit 2e29fd7 and before have no fingerprint for a split.
        if len(split_records) != pairs or description.shards.get(split, fingerprint) != fingerprint:
            raise UserError(
                f"{data_dir}: the {split} shards ({len(split_records):,} pairs) are not those that "
                f"{description_path(data_dir, description.problem)} describes ({pairs:,} pairs); copy the shards and "
                "the description of the same run here, or run t2t-datagen again"
            )
    return Data(problem, vocabulary, description, records, str(data_dir))
