"""Opens a data directory that tensor2tensor's t2t-datagen wrote.

Its shards have the names and the format of ours. It has vocabulary files, but no indexes and no
description.
"""

import dataclasses
import hashlib
from pathlib import Path

from t2t_repro.console.progress import say
from t2t_repro.data.dataset import FOREIGN_FORMATS, SPLITS, Data, Description, ForeignFormat
from t2t_repro.data.records import Records, find_files, find_shards, index_path
from t2t_repro.data.vocabularies.kinds import load_vocabularies
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, counted
from t2t_repro.problem import Problem


def has_t2t_data(data_dir: str, problem: Problem) -> bool:
    """Returns True if the directory has shards of a problem that tensor2tensor can have."""
    _, targets = problem.t2t_vocabularies
    return bool(targets and find_files(data_dir, problem.base_name, SPLITS[0]))


def load_t2t_data(data_dir: str, problem: Problem) -> Data:
    """Returns the data that tensor2tensor generated for a problem. At first use, writes an index
    beside each shard.

    Raises UserError if a file is missing or damaged, or has packed examples.
    """
    names = problem.t2t_vocabularies[::-1] if problem.was_reversed else problem.t2t_vocabularies
    vocabulary = load_vocabularies(Path(data_dir), targets=names[1], sources=names[0])
    records = _load_records(data_dir, problem, vocabulary)
    digest = hashlib.sha256(
        vocabulary.model + b"".join(records[split].index_lines for split in SPLITS)
    )
    description = Description(
        problem=problem.base_name,
        settings=dataclasses.asdict(problem.settings),
        vocabulary=names[1],
        vocabulary_fingerprint=vocabulary.fingerprint,
        fingerprint=digest.hexdigest()[:12],
        pairs={split: len(split_records) for split, split_records in records.items()},
        dropped={},
        source_vocabulary=names[0] if vocabulary.separate_source_size else "",
    )
    return Data(problem, vocabulary, description, records, str(data_dir))


def _load_records(data_dir: str, problem: Problem, vocabulary: Vocabulary) -> dict[str, Records]:
    shards = {split: find_shards(data_dir, problem.base_name, split) for split in SPLITS}
    for split in SPLITS:
        if not shards[split]:
            raise UserError(
                f"{data_dir}/{problem.base_name}-{split}-00000-of-00001: this shard is missing; "
                "copy it here from the folder in which tensor2tensor's t2t-datagen wrote it"
            )
    with open(shards["train"][0], "rb") as file:
        if b"targets_segmentation" in file.read(1 << 16):
            raise UserError(
                f"{shards['train'][0]}: packed examples, which are not supported; generate the "
                "data of a problem without packed_length"
            )
    if new := sum(not index_path(path).exists() for paths in shards.values() for path in paths):
        say(f"{data_dir}: indexing {counted(new, 'shard')} of problem {problem.base_name}")
    sizes = vocabulary.sources.size, vocabulary.size
    return {split: Records(paths, problem.was_reversed, sizes) for split, paths in shards.items()}


FOREIGN_FORMATS.append(ForeignFormat("tensor2tensor", has_t2t_data, load_t2t_data))
