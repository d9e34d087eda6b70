"""Reads a problem's text a second time: writes the missing shards, and verifies that the text has not changed."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from t2t_repro.console.progress import progress
from t2t_repro.data import encoding, records
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.description import SPLITS
from t2t_repro.data.job import Job
from t2t_repro.data.resume_state import ResumeState
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError

FEW_PAIRS = 50_000
"""Number of pairs below which one process encodes the text by default: starting more processes would take longer."""


class TextChangedError(UserError):
    """Raised if t2t-datagen reads the text of a split again and gets other text than before."""

    def __init__(self, job: Job, split: str) -> None:
        super().__init__(
            f"problem {job.name}: its {split} text changed while it was read; run t2t-datagen again, or if the problem "
            "is your own, let generate yield the same pairs on each call"
        )


def shard_sizes(job: Job, split: str, pairs: int) -> dict[Path, int]:
    """Returns the number of pairs for each shard of a split, by path. The numbers differ by at most one."""
    shards = min(job.problem.num_train_shards, pairs) if split == "train" else 1
    ends = [pairs * shard // shards for shard in range(shards + 1)]
    return {
        records.shard_path(job.data_dir, job.name, split, shard, shards): end - start
        for shard, (start, end) in enumerate(itertools.pairwise(ends))
    }


def missing_shards(job: Job, cleaning: dict[str, Cleaning], state: ResumeState) -> dict[Path, int]:
    """Returns the number of pairs for each shard that is missing, unfinished or damaged, by path."""
    sizes = [shard_sizes(job, split, cleaning[split].pairs_kept) for split in SPLITS]
    return {path: size for split_sizes in sizes for path, size in split_sizes.items() if not state.has(path)}


def write_shards(job: Job, cleaning: dict[str, Cleaning], vocabulary: Vocabulary, state: ResumeState) -> None:
    """Reads all text again, and writes the missing shards.

    Args:
        cleaning: selects the pairs of each split. Its `first_pass` has ended.
        state: lists the finished shards. This function adds each shard that it writes, and saves the state.

    Raises:
        TextChangedError: if the text is not the same as in the first pass, or as when a finished shard was written.
    """
    missing = missing_shards(job, cleaning, state)
    text_hashes: dict[Path, Any] = collections.defaultdict(hashlib.sha256)
    portions = _portions(job, cleaning, state, missing, text_hashes)
    processes = job.options.num_concurrent_processes
    if not processes:
        pairs = sum(split_cleaning.pairs_kept for split_cleaning in cleaning.values())
        processes = 1 if pairs < FEW_PAIRS else len(os.sched_getaffinity(0))
    # A single call encodes the portions of all shards, so that no process is idle between two shards.
    with contextlib.closing(encoding.encode(portions, vocabulary, processes)) as encoded:
        for path, size in missing.items():
            digest, counts = hashlib.sha256(), Counter[str]()
            shard_portions = itertools.islice(encoded, -(-size // encoding.PORTION_PAIRS))
            index = records.write_chunks(path, _count(shard_portions, counts), digest)
            hashes = {"sha256": digest.hexdigest(), "rows_sha256": records.rows_sha256(index)}
            state.add(path, hashes | {"text_sha256": text_hashes[path].hexdigest()}, counts)
            state.save(job.state_path)
        _exhaust(encoded)


def _portions(
    job: Job, cleaning: dict[str, Cleaning], state: ResumeState, missing: dict[Path, int], text_hashes: dict[Path, Any]
) -> Iterator[encoding.Portion]:
    """Yields the text of the missing shards. Reads all text, and adds the text of each shard to its hash.

    Raises:
        TextChangedError: see `write_shards`.
    """
    for split, split_cleaning in cleaning.items():
        error = TextChangedError(job, split)
        kept_pairs = split_cleaning.next_pass(job.problem.generate(split, job.tmp_dir), error)
        pairs = progress(kept_pairs, split, split_cleaning.pairs_kept, "pairs")
        for path, size in shard_sizes(job, split, split_cleaning.pairs_kept).items():
            for portion in encoding.portions(itertools.islice(pairs, size)):
                text_hashes[path].update("".join([f"{source}\n{target}\n" for source, target in portion]).encode())
                if path in missing:
                    yield portion
            text_sha256 = text_hashes[path].hexdigest()
            if path not in missing and state.shards[path.name].get("text_sha256", text_sha256) != text_sha256:
                raise error
        _exhaust(pairs)  # `next_pass` compares the text after the last pair.


def _count(encoded: Iterable[encoding.Encoded], counts: Counter[str]) -> Iterator[records.Chunk]:
    """Yields the chunks of encoded portions, and adds their counts to `counts`."""
    for portion in encoded:
        counts += portion.counts
        yield portion.chunk


def _exhaust(items: Iterable[object]) -> None:
    collections.deque(items, maxlen=0)
