"""Writes the shards of a run of t2t-datagen, corpus after corpus.

If the data directory already has the shards of a corpus with the same text and vocabulary, they are linked instead.
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

from t2t_repro.console.progress import progress
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import encoding, records
from t2t_repro.data.cleaning import CleanCorpus
from t2t_repro.data.dataset import SPLITS, Description
from t2t_repro.data.encoding import Encoded, Portion
from t2t_repro.data.job import Job
from t2t_repro.data.records import Records
from t2t_repro.data.vocabularies.kinds import load_vocabularies
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError

FEW_PAIRS = 50_000
"""Number of pairs below which one process encodes the text by default: starting more processes would take longer."""

MAX_SHARDS, PAIRS_PER_SHARD = 100, 10_000
"""Most shards of a train corpus and most pairs in each, where the problem does not set the number of shards."""


StoredShards = dict[tuple[str, int], tuple[StoredCorpus, list[Path]]]
"""Corpora in the data directory with the paths of their shards, by hash of the text and number of shards."""


def write_shards(
    job: Job, corpora: Sequence[CleanCorpus], vocabulary: Vocabulary, folder: Path, stored: StoredShards
) -> None:
    """Reads the text again, writes the shards to `folder`, and sets the counts of the corpora.

    Args:
        corpora: the corpora of all splits. The first pass of their cleaning has ended.
        stored: corpora that are not encoded again if their text is the same.

    Raises:
        UserError: if the text is not the same as in the first pass.
    """
    sizes = [shard_sizes(job, corpus) for corpus in corpora]
    paths = _shard_paths(job, corpora, sizes, folder)
    links = [
        stored.get((corpus.cleaning.kept_fingerprint, len(size))) for corpus, size in zip(corpora, sizes, strict=True)
    ]
    new = [(corpus, size) for corpus, size, link in zip(corpora, sizes, links, strict=True) if not link]
    processes = job.options.num_concurrent_processes
    if not processes:
        processes = 1 if sum(sum(size) for _, size in new) < FEW_PAIRS else len(os.sched_getaffinity(0))
    # A single call encodes the portions of all shards, so that no process is idle between two shards.
    with contextlib.closing(encoding.encode(_portions(job, new), vocabulary, processes)) as encoded:
        for corpus, size, corpus_paths, link in zip(corpora, sizes, paths, links, strict=True):
            if link:
                corpus.counts.update(link[0].counts)
                for old, path in zip(link[1], corpus_paths, strict=True):
                    _link(old, path)
                    _link(records.index_path(old), records.index_path(path))
                continue
            for path, pairs in zip(corpus_paths, size, strict=True):
                portions = itertools.islice(encoded, -(-pairs // encoding.PORTION_PAIRS))
                records.write_chunks(path, _chunks(portions, corpus.counts))
        exhaust(encoded)  # Read to the end of the text, so that `Cleaning.next_pass` compares it.


def _chunks(portions: Iterable[Encoded], counts: Counter[str]) -> Iterator[records.Chunk]:
    for portion in portions:
        counts.update(portion.counts)
        yield portion.chunk


def shard_sizes(job: Job, corpus: CleanCorpus) -> list[int]:
    """Returns the number of pairs in each shard of a corpus. The numbers differ by at most one."""
    pairs = corpus.cleaning.pairs_kept
    by_default = min(MAX_SHARDS, -(-pairs // PAIRS_PER_SHARD))
    shards = min(job.problem.num_train_shards or by_default, pairs) if corpus.split == "train" else 1
    return [end - start for start, end in itertools.pairwise(pairs * shard // shards for shard in range(shards + 1))]


def _shard_paths(
    job: Job, corpora: Sequence[CleanCorpus], sizes: Sequence[Sequence[int]], folder: Path
) -> list[list[Path]]:
    """Returns the paths of the shards of each corpus. The numbers in their names continue from corpus to corpus."""
    totals = Counter[str]()
    for corpus, size in zip(corpora, sizes, strict=True):
        totals[corpus.split] += len(size)
    numbers = {split: itertools.count() for split in totals}
    return [
        [
            records.shard_path(folder, job.name, corpus.split, next(numbers[corpus.split]), totals[corpus.split])
            for _ in size
        ]
        for corpus, size in zip(corpora, sizes, strict=True)
    ]


def _portions(job: Job, corpora: Iterable[tuple[CleanCorpus, Sequence[int]]]) -> Iterator[Portion]:
    """Yields the text of all shards. Raises UserError if the text is not the same as in the first pass."""
    for corpus, sizes in corpora:
        error = UserError(
            f"problem {job.name}: its {corpus.split} text changed while it was read; run t2t-datagen again, or if the "
            "problem is your own, let generate yield the same pairs on each call"
        )
        text = job.problem.generate_corpus(corpus.split, corpus.number, job.tmp_dir)
        pairs = progress(corpus.cleaning.next_pass(text, error), corpus.split, sum(sizes), "pairs")
        for size in sizes:
            yield from encoding.portions(itertools.islice(pairs, size))
        exhaust(pairs)


def exhaust(items: Iterable[object]) -> None:
    """Reads all items, and forgets them."""
    collections.deque(items, maxlen=0)


def stored_shards(job: Job, description: Description) -> StoredShards:
    """Returns the corpora in the data directory; none if a file is damaged."""
    corpora: StoredShards = {}
    if is_intact(job, description):
        for split in SPLITS:
            shards = iter(records.find_shards(job.data_dir, job.name, split))
            for corpus in description.stored_corpora(split):
                corpora[corpus.text, corpus.shards] = corpus, list(itertools.islice(shards, corpus.shards))
    return corpora


def _link(old: Path, new: Path) -> None:
    """Makes `new` a hard link to the file `old`, or a copy if the file system has no links."""
    try:
        os.link(old.resolve(), new)
    except OSError:
        shutil.copyfile(old, new)


def open_shards(job: Job, folder: Path) -> dict[str, Records]:
    """Returns the records of each split in a folder."""
    return {split: Records(records.find_shards(folder, job.name, split)) for split in SPLITS}


def is_intact(job: Job, description: Description) -> bool:
    """Returns True if the data directory has the vocabulary and the shards that a description is about, undamaged."""
    try:
        vocabulary = load_vocabularies(job.data_dir, description.vocabulary, description.source_vocabulary)
        corpora = {split: description.stored_corpora(split) for split in SPLITS}
        return data_fingerprint(vocabulary, open_shards(job, job.data_dir), corpora) == description.fingerprint
    except (UserError, OSError):  # a file is missing or damaged
        return False


def data_fingerprint(vocabulary: Vocabulary, shards: dict[str, Records], corpora: dict[str, list[StoredCorpus]]) -> str:
    """Returns twelve hex digits that identify the vocabulary, all records, and the weights of the train corpora."""
    digest = hashlib.sha256(vocabulary.model)
    if vocabulary.separate_source_size:
        digest.update(vocabulary.sources.model)
    for split in SPLITS:
        for path in shards[split].paths:
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    if any(corpus.weight for corpus in corpora["train"]):
        digest.update(repr([(corpus.pairs, corpus.weight) for corpus in corpora["train"]]).encode())
    return digest.hexdigest()[:12]
