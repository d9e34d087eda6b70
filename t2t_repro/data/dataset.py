"""Opens the data that t2t-datagen generated for a problem."""

from __future__ import annotations

from dataclasses import dataclass

from t2t_repro import registry
from t2t_repro.data.description import SPLITS, Description, description_path, load_problem
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from t2t_repro.tensor2tensor.data import describe, has_t2t_data, load_t2t_records, load_t2t_vocabulary


@dataclass(frozen=True)
class Data:
    """Data that t2t-datagen generated for one problem."""

    problem: Problem
    vocabulary: Vocabulary
    description: Description
    records: dict[str, Records]
    """The examples of each split, under "train" and "dev"."""
    data_dir: str
    """The data directory."""


def has_data(data_dir: str, problem_name: str) -> bool:
    """Returns True if the directory has finished data of a problem, or data that tensor2tensor generated."""
    return _has_description(data_dir, problem_name) or has_t2t_data(data_dir, registry.problem(problem_name))


def has_only_t2t_data(data_dir: str, problem_name: str) -> bool:
    """Returns True if the directory has data of a problem that tensor2tensor generated, not our t2t-datagen."""
    return not _has_description(data_dir, problem_name) and has_t2t_data(data_dir, registry.problem(problem_name))


def _has_description(data_dir: str, problem_name: str) -> bool:
    return description_path(data_dir, problem_name.removesuffix(registry.REVERSED)).exists()


def load_data(data_dir: str, problem_name: str) -> Data:
    """Returns the data of a problem. If the problem's name ends with "_rev", sources and targets are swapped.

    If the directory has no description, but has shards of tensor2tensor's t2t-datagen, returns their data.

    Raises:
        UserError: if the data is missing or damaged.
    """
    if has_only_t2t_data(data_dir, problem_name):
        problem = registry.problem(problem_name)
        vocabulary = load_t2t_vocabulary(data_dir, problem)
        records = load_t2t_records(data_dir, problem, vocabulary)
        return Data(problem, vocabulary, describe(problem, vocabulary, records), records, str(data_dir))
    problem, vocabulary, description = load_problem(data_dir, problem_name)
    records = {
        split: Records(
            find_shards(data_dir, description.problem, split),
            problem.was_reversed,
            (vocabulary.sources.size, vocabulary.size),
        )
        for split in SPLITS
    }
    for split, split_records in records.items():
        if len(split_records) != description.pairs[split]:
            raise UserError(
                f"{data_dir}: the {split} shards hold {len(split_records):,} pairs, but the description says "
                f"{description.pairs[split]:,}; run t2t-datagen again"
            )
        _refuse_foreign_shards(split_records, description, data_dir)
    return Data(problem, vocabulary, description, records, str(data_dir))


def _refuse_foreign_shards(records: Records, description: Description, data_dir: str) -> None:
    """Raises UserError if a shard is not one of those that the description lists, but e.g. a shard of another run.

    Does nothing if an older t2t-datagen made the data, whose description lists no shards.
    """
    if not description.shards:
        return
    for path, rows_sha256 in records.hashes():
        figures = description.shards.get(path.name)
        if figures is None or figures.get("rows_sha256", rows_sha256) != rows_sha256:
            raise UserError(
                f"{path}: not the shard that {description_path(data_dir, description.problem)} describes; copy the "
                "shards and the description of the same run here, or run t2t-datagen again"
            )
