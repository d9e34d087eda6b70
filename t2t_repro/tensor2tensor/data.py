"""Opens a data directory that tensor2tensor's t2t-datagen wrote.

Its shards have the names and the format of ours. It has vocabulary files, but no indexes and no description.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

from t2t_repro.console.progress import say
from t2t_repro.data.description import SPLITS, Description
from t2t_repro.data.records import Records, find_files, find_shards, index_path
from t2t_repro.data.resume_state import state_path
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem

CURE = "copy it here from the folder in which tensor2tensor's t2t-datagen wrote it"
VOCABULARY_CURE = (
    "copy tensor2tensor's file here, or give the vocabulary with t2t-datagen --vocab_file (and --source_vocab_file); "
    "to learn one, remove vocab_filename, source_vocab_name and target_vocab_name from the problem's class"
)


def has_t2t_data(data_dir: str | Path, problem: Problem) -> bool:
    """Returns True if the directory has shards of a problem that tensor2tensor can have.

    Returns False for shards of an unfinished run of our t2t-datagen.
    """
    if state_path(data_dir, problem.base_name).exists():
        return False
    return bool(problem.t2t_vocabularies[1] and find_files(data_dir, problem.base_name, SPLITS[0]))


def vocabulary_names(problem: Problem) -> tuple[str, str]:
    """Returns the file names of the vocabularies of a problem's sources and targets, swapped if it is reversed."""
    sources, targets = problem.t2t_vocabularies
    return (targets, sources) if problem.was_reversed else (sources, targets)


def load_t2t_vocabulary(data_dir: str | Path, problem: Problem) -> Vocabulary:
    """Returns the vocabulary of a problem's targets, together with that of its sources.

    Raises UserError if a file is missing or damaged.
    """
    return _load_both(data_dir, vocabulary_names(problem))


def existing_vocabulary(data_dir: str | Path, problem: Problem) -> Vocabulary | None:
    """Returns the vocabulary in the data directory with which t2t-datagen encodes a problem of tensor2tensor.

    Returns None if t2t-datagen must learn a vocabulary. As in tensor2tensor, existing files are used.

    Raises UserError if the problem needs such a file, which is missing or damaged.
    """
    names = problem.t2t_vocabularies
    if problem.learns_vocabulary and not all(name and (Path(data_dir) / name).is_file() for name in names):
        return None
    return _load_both(data_dir, names, VOCABULARY_CURE)


def _load_both(data_dir: str | Path, names: tuple[str, str], cure: str = CURE) -> Vocabulary:
    """Returns the vocabulary of the targets, together with that of the sources. `names` are those of their files."""
    sources, targets = (_load(data_dir, name, cure) for name in names)
    return targets.with_sources(sources)


def _load(data_dir: str | Path, name: str, cure: str) -> Vocabulary:
    if name.endswith(ByteVocabulary.suffix):
        return ByteVocabulary()  # tensor2tensor writes no file for it
    path = Path(data_dir) / name
    if not path.is_file():
        raise UserError(f"{path}: this vocabulary is missing; {cure}")
    return load_vocabulary(path)


def load_t2t_records(data_dir: str | Path, problem: Problem, vocabulary: Vocabulary) -> dict[str, Records]:
    """Returns the examples of each split, under "train" and "dev". At first use, writes an index beside each shard.

    Raises:
        UserError: if a shard is missing or damaged, or has packed examples.
    """
    shards = {}
    for split in SPLITS:
        shards[split] = find_shards(data_dir, problem.base_name, split)
        if not shards[split]:
            raise UserError(f"{data_dir}/{problem.base_name}-{split}-00000-of-00001: this shard is missing; {CURE}")
    with open(shards["train"][0], "rb") as file:
        if b"targets_segmentation" in file.read(1 << 16):
            raise UserError(
                f"{shards['train'][0]}: packed examples, which are not supported; generate the data of a problem "
                "without packed_length"
            )
    if new := sum(not index_path(path).exists() for paths in shards.values() for path in paths):
        say(f"{data_dir}: indexing {new:,} shards of problem {problem.base_name}")
    sizes = vocabulary.sources.size, vocabulary.size
    return {split: Records(paths, problem.was_reversed, sizes) for split, paths in shards.items()}


def describe(problem: Problem, vocabulary: Vocabulary, records: dict[str, Records]) -> Description:
    """Returns a description of data that tensor2tensor generated, as t2t-datagen would have written it."""
    sources, targets = vocabulary_names(problem)
    digest = hashlib.sha256(vocabulary.model)
    for split_records in records.values():
        for path, rows_sha256 in split_records.hashes():
            digest.update(f"{path.name} {rows_sha256}\n".encode())
    return Description(
        problem=problem.base_name,
        settings=dataclasses.asdict(problem.settings),
        vocabulary=targets,
        vocabulary_fingerprint=vocabulary.fingerprint,
        fingerprint=digest.hexdigest()[:12],
        pairs={split: len(split_records) for split, split_records in records.items()},
        dropped={},
        source_vocabulary=sources if vocabulary.separate_source_size else "",
    )
