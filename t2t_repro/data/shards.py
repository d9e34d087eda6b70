"""Writes the shards of a run of t2t-datagen, corpus after corpus.

If the data directory already has the shards of a corpus with the same text and vocabulary, they are
linked instead.
"""

import collections
import contextlib
import hashlib
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from t2t_repro.console.progress import progress
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import encoding, records
from t2t_repro.data.cleaning import CleanCorpus
from t2t_repro.data.dataset import SPLITS, Description
from t2t_repro.data.encoding import Encoded, Portion
from t2t_repro.data.job import Job
from t2t_repro.data.large_split import open_records
from t2t_repro.data.records import Records
from t2t_repro.data.text_check import TextCheck
from t2t_repro.data.vocabularies.kinds import load_vocabularies
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError

FEW_PAIRS = 50_000
"""Number of pairs below which one process encodes the text by default: starting more processes
would take longer.
"""

MAX_SHARDS = 100
PAIRS_PER_SHARD = 10_000
MAX_PAIRS_PER_SHARD = 1_000_000
"""Most shards of a train corpus and most pairs in each, if the problem does not set the number of
shards. A corpus of more than 100 million pairs has more shards, with a million pairs in each.
"""


class Engine(Protocol):
    """Reads, cleans and encodes the train split in other processes."""

    def first_pass(self, job: Job, corpora: Sequence[CleanCorpus], check: TextCheck) -> list[str]:
        """Sets the cleaning of corpora as after their first pass, and gives pairs to `check`.

        Returns what `sentencepiece.sample` would return, or [] if the user supplied a vocabulary.
        """

    def write_shards(self, job: Job, corpus: CleanCorpus, vocabulary: Vocabulary) -> list[Path]:
        """Writes the shards of a corpus, and sets its counts. Returns the paths of the shards."""

    def finish(self) -> None:
        """Deletes the files that the other processes have written elsewhere. No method is called
        after it.
        """


def write_shards(
    job: Job,
    corpora: Sequence[CleanCorpus],
    vocabulary: Vocabulary,
    folder: Path,
    engine: Engine | None = None,
) -> None:
    """Reads the text of all splits again, writes the shards to `folder`, and sets the counts of the
    corpora.

    Raises UserError if the text is not the same as in the first pass of the cleaning, which has
    ended.
    """
    for corpus in corpora:
        if engine and corpus.split == "train" and not corpus.stored:
            corpus.stored = engine.write_shards(job, corpus, vocabulary)
    new = [corpus for corpus in corpora if not corpus.stored]
    has_few_pairs = sum(corpus.cleaning.pairs_kept for corpus in new) < FEW_PAIRS
    processes = 1 if has_few_pairs else len(os.sched_getaffinity(0))
    processes = job.options.num_concurrent_processes or processes
    # A single call encodes the portions of all shards, so that no process is idle between two
    # shards.
    with contextlib.closing(encoding.encode(_portions(job, new), vocabulary, processes)) as encoded:
        for split in SPLITS:
            shards = [
                (corpus, number, size)
                for corpus in corpora
                if corpus.split == split
                for number, size in enumerate(shard_sizes(job, corpus))
            ]
            for shard, (corpus, number, size) in enumerate(shards):
                path = records.shard_path(folder, job.name, split, shard, len(shards))
                if corpus.stored:
                    stored = corpus.stored[number]
                    _link(stored, path)
                    _link(records.index_path(stored), records.index_path(path))
                else:
                    portions = itertools.islice(encoded, -(-size // encoding.PORTION_PAIRS))
                    records.write_chunks(path, chunks(portions, corpus.counts))
        exhaust(encoded)  # Read to the end of the text, so that `Cleaning.next_pass` compares it.


def find_stored(job: Job, corpora: Sequence[CleanCorpus], description: Description) -> None:
    """Sets `stored` and the counts of corpora whose text the data directory has in undamaged
    shards.
    """
    if not is_intact(job, description):
        return
    for split in SPLITS:
        shards = iter(records.find_shards(job.data_dir, job.name, split))
        for old in description.stored_corpora(split):
            paths = list(itertools.islice(shards, old.shards))
            for corpus in corpora:
                has_same_text = corpus.cleaning.kept_fingerprint == old.text
                if has_same_text and len(shard_sizes(job, corpus)) == old.shards:
                    corpus.stored = paths
                    corpus.counts = Counter(text_bytes=old.text_bytes, byte_pieces=old.byte_pieces)


def chunks(portions: Iterable[Encoded], counts: Counter[str]) -> Iterator[records.Chunk]:
    """Yields the records of encoded portions, and adds their counts to `counts`."""
    for chunk, portion_counts in portions:
        counts.update(portion_counts)
        yield chunk


def shard_sizes(job: Job, corpus: CleanCorpus) -> list[int]:
    """Returns the number of pairs in each shard of a corpus. The numbers differ by at most one."""
    pairs = corpus.cleaning.pairs_kept
    by_default = max(
        min(MAX_SHARDS, -(-pairs // PAIRS_PER_SHARD)), -(-pairs // MAX_PAIRS_PER_SHARD)
    )
    shards = (
        min(job.problem.num_train_shards or by_default, pairs) if corpus.split == "train" else 1
    )
    return [
        end - start
        for start, end in itertools.pairwise(pairs * shard // shards for shard in range(shards + 1))
    ]


def _portions(job: Job, corpora: Iterable[CleanCorpus]) -> Iterator[Portion]:
    """Yields the text of all shards. Raises UserError if the text is not the same as in the first
    pass.
    """
    for corpus in corpora:
        error = UserError(
            f"problem {job.name}: its {corpus.split} text changed while it was read; run "
            "t2t-datagen again, or if the problem is your own, let generate yield the same pairs "
            "on each call"
        )
        text = job.problem.generate_corpus(corpus.split, corpus.number, job.tmp_dir)
        kept_pairs = corpus.cleaning.next_pass(text, error)
        pairs = progress(kept_pairs, corpus.split, corpus.cleaning.pairs_kept, "pairs")
        for size in shard_sizes(job, corpus):
            yield from encoding.portions(itertools.islice(pairs, size))
        exhaust(pairs)


def exhaust(items: Iterable[object]) -> None:
    collections.deque(items, maxlen=0)


def _link(old: Path, new: Path) -> None:
    """Makes `new` a hard link to the file `old`, or a copy if the file system has no links."""
    try:
        os.link(old.resolve(), new)
    except OSError:
        shutil.copyfile(old, new)


def open_shards(job: Job, folder: Path, pairs: dict[str, int]) -> dict[str, Records]:
    """Returns the records of each split; see `Data.records`. `pairs` has their numbers."""
    return {
        split: open_records(pairs[split], records.find_shards(folder, job.name, split))
        for split in SPLITS
    }


def is_intact(job: Job, description: Description) -> bool:
    """Returns True if the data directory has the vocabulary and the shards that a description is
    about, undamaged.
    """
    try:
        vocabulary = load_vocabularies(
            job.data_dir, description.vocabulary, description.source_vocabulary
        )
        shards = open_shards(job, job.data_dir, description.pairs)
        corpora = description.stored_corpora("train")
        return data_fingerprint(vocabulary, shards, corpora) == description.fingerprint
    except (UserError, OSError):  # a file is missing or damaged
        return False


def data_fingerprint(
    vocabulary: Vocabulary, shards: dict[str, Records], train: Sequence[StoredCorpus]
) -> str:
    """Returns twelve hex digits that identify the vocabulary, all records, and the weights of the
    train corpora.
    """
    digest = hashlib.sha256(vocabulary.model)
    if vocabulary.separate_source_size:
        digest.update(vocabulary.sources.model)
    for split in SPLITS:
        for path in shards[split].paths:
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    if any(corpus.weight for corpus in train):
        digest.update(repr([(corpus.stop, corpus.weight) for corpus in train]).encode())
    return digest.hexdigest()[:12]
