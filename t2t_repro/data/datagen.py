"""Implements t2t-datagen: turns a problem's text into a vocabulary, shards, test sets, a summary and a description.

A run reads the text twice: first to check it, count pairs and learn the vocabulary, then to write the shards. All files
appear together at the end. Finished data is kept unless the user gives --overwrite.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from t2t_repro.console.progress import progress, say
from t2t_repro.corpora.parallel import Pair
from t2t_repro.corpora.private_folder import make_private
from t2t_repro.data import encoding, records, summary, test_set_files
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.description import SPLITS, Description
from t2t_repro.data.job import (
    Job,
    Options,
    prepare,
    refuse_other_settings,
    refuse_to_overwrite_sources,
    refuse_to_replace,
)
from t2t_repro.data.records import Records
from t2t_repro.data.text_check import TextCheck
from t2t_repro.data.unfinished import put_in_place, unfinished_folder
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabularies
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, shortened
from t2t_repro.problem import Problem, is_label

FEW_PAIRS = 50_000
"""Number of pairs below which one process encodes the text by default: starting more processes would take longer."""


def generate_data(problem: Problem, data_dir: str | Path, tmp_dir: str, options: Options | None = None) -> Description:
    """Generates the data files of a problem. The files have the same bytes for any number of processes.

    If the data directory already has this data, the function reads the text only to compare it, and changes nothing.

    Args:
        data_dir: folder to which the files are written.
        tmp_dir: folder of downloads and the problem's source files.
        options: choices of the user that are not settings of the problem; None for the defaults.

    Raises:
        UserError: if a source is missing, damaged or also an output, a split is empty, the disk is full, the vocabulary
            file is not a vocabulary with the problem's symbols, a process that encodes died, another run is using the
            data directory, other users can write to `tmp_dir`, the text changed during the run, or the run would
            replace other data without `options.overwrite`. The data directory stays as it was.
    """
    problem.check()
    job = prepare(problem, Path(data_dir), tmp_dir, options or Options())
    refuse_other_settings(job)
    refuse_to_overwrite_sources(job)
    if not problem.is_self_contained:
        make_private(tmp_dir)
    with unfinished_folder(job.data_dir) as folder:
        text = _read_all(job)
        return _finished(job, text) or _generate(job, text, folder)


def _generate(job: Job, text: Text, folder: Path) -> Description:
    """Writes all files to `folder`, and then moves them to the data directory."""
    vocabulary = _vocabulary(job, text)
    vocabulary.save(folder / job.vocabulary_name)
    if job.source_vocabulary_name:
        vocabulary.sources.save(folder / job.source_vocabulary_name)
    counts = _write_shards(job, text.cleaning, vocabulary, folder)
    if job.problem.test_sets:
        test_set_files.write(job.problem, folder, job.tmp_dir)
    shards = {split: Records(records.find_shards(folder, job.name, split)) for split in SPLITS}
    figures = summary.summarize(shards, text.cleaning, counts, vocabulary)
    summary.save(folder, job.name, figures, job.data_dir)
    description = _describe(job, text, vocabulary, shards)
    description.save(folder / job.description_path.name)
    if job.options.overwrite or not job.problem.test_sets:
        # Old test sets may not belong to the new settings. A problem without test sets uses a copy of its dev split.
        test_set_files.delete(job.problem, job.data_dir)
    put_in_place(folder, job.name)
    for line in (*summary.lines(figures), f"data: {job.data_dir}"):
        say(line)
    return description


@dataclass
class Text:
    """Results of reading a problem's text for the first time. A run reads the text twice."""

    cleaning: dict[str, Cleaning]
    """For each split, the rules that select pairs, and the counts of kept and dropped pairs."""
    sample: list[str] = field(default_factory=list)
    """Texts from which the run learns the vocabulary. Empty if the user supplied a vocabulary."""
    fingerprint: str = ""
    """Hash of the text, the settings and the user's vocabulary, as hex digits."""


def _read_all(job: Job) -> Text:
    """Reads all text for the first time, so that the run finds any mistake in the text before it writes a file."""
    settings = job.settings
    limits = (settings.clean_max_words, settings.clean_max_ratio, settings.clean_duplicates)
    text = Text({"train": Cleaning(*limits), "dev": Cleaning()})
    check = TextCheck(job.problem.tree_symbols)
    train, dev = (_valid_pairs(job, split) for split in SPLITS)
    _read_pairs(job, check.dev(text.cleaning["dev"].first_pass(dev)))
    train = progress(check.train(text.cleaning["train"].first_pass(train)), "reading", None, "pairs")
    if job.user_vocabulary:
        _read_pairs(job, train)
    else:
        text.sample = sentencepiece.sample(side for pair in train for side in (pair["inputs"], pair["targets"]))
    for split, cleaning in text.cleaning.items():
        if not cleaning.pairs_kept:
            reasons = "".join(f", {reason} {count:,}" for reason, count in cleaning.dropped.items())
            raise UserError(
                f"problem {job.name}: no pair is left in its {split} split (read {cleaning.pairs_read:,}{reasons}); "
                "check the source"
            )
    for warning in check.warnings():
        say(f"warning: problem {job.name}: {warning}")
    text.fingerprint = _fingerprint(job, text)
    return text


def _valid_pairs(job: Job, split: str) -> Iterator[Pair]:
    """Yields the pairs of a split. Raises UserError if a custom problem yields something else."""
    for pair in job.problem.generate(split, job.tmp_dir):
        if not (isinstance(pair, dict) and all(isinstance(pair.get(side), str) for side in ("inputs", "targets"))):
            raise UserError(
                f"problem {job.name}: generate yielded {shortened(repr(pair))}; yield a dict with the strings "
                '"inputs" and "targets"'
            )
        yield pair


def _read_pairs(job: Job, pairs: Iterable[Pair]) -> None:
    """Reads all pairs. Raises UserError if the user's vocabulary lacks a word of them."""
    for pair in pairs:
        if job.user_vocabulary:
            job.user_vocabulary.sources.check(pair["inputs"])
            job.user_vocabulary.check(pair["targets"])


def _fingerprint(job: Job, text: Text) -> str:
    """Returns a hash of the text, the settings and the user's vocabulary, as hex digits."""
    settings = (job.data_settings(), job.problem.symbols, job.problem.num_train_shards)
    parts = [str(settings), *(cleaning.fingerprint for cleaning in text.cleaning.values())]
    if job.user_vocabulary:
        parts.append(job.user_vocabulary.fingerprint)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _finished(job: Job, text: Text) -> Description | None:
    """Returns the description of the data in the directory if it is what this run would write and undamaged, or None.

    Writes missing test sets.

    Raises:
        UserError: if the directory has other data of the problem, and the user did not give --overwrite.
    """
    if job.options.overwrite:
        return None
    description = job.existing_description()
    if not description or description.source_fingerprint != text.fingerprint:
        refuse_to_replace(job)
        return None
    if not _is_intact(job, description):
        say(f"{job.data_dir}: files of problem {job.name} are missing or damaged; generating the data again")
        return None
    description = _relabelled(job, description)
    if job.problem.test_sets:
        test_set_files.write(job.problem, job.data_dir, job.tmp_dir, overwrite=False)
    say(f"{job.data_dir}: the data of problem {job.name} is complete; --overwrite generates it again")
    return description


def _is_intact(job: Job, description: Description) -> bool:
    try:
        vocabulary = load_vocabularies(job.data_dir, job.vocabulary_name, job.source_vocabulary_name)
        shards = {split: Records(records.find_shards(job.data_dir, job.name, split)) for split in SPLITS}
        return _data_fingerprint(vocabulary, shards) == description.fingerprint
    except UserError:  # a file is missing or damaged
        return False


def _relabelled(job: Job, description: Description) -> Description:
    """Returns the description of finished data, with this run's settings in it. Saves it if the settings differ.

    The settings can differ only in labels, such as the languages' names, which do not change the data. A label that the
    user did not give keeps its value.
    """
    settings = dataclasses.asdict(job.settings)
    for label in filter(is_label, dataclasses.fields(job.settings)):
        if settings[label.name] == label.default:
            settings[label.name] = description.settings.get(label.name, label.default)
    if settings != description.settings:
        description = dataclasses.replace(description, settings=settings)
        description.save(job.description_path)
    return description


def _vocabulary(job: Job, text: Text) -> Vocabulary:
    """Returns the user's vocabulary, or learns one from the sample, which is then deleted because it is large."""
    if job.user_vocabulary:
        return job.user_vocabulary
    sample, text.sample = text.sample, []
    say(f"learning a vocabulary from {len(sample):,} texts")
    return sentencepiece.train(sample, job.settings.vocab_size, job.problem.symbols)


def _write_shards(job: Job, cleaning: dict[str, Cleaning], vocabulary: Vocabulary, folder: Path) -> Counter[str]:
    """Reads all text again, and writes the shards.

    Args:
        cleaning: selects the pairs of each split. Its `first_pass` has ended.
        vocabulary: encodes the text.
        folder: where to write.

    Returns:
        The counts of all pairs, see `encoding.Encoded`.

    Raises:
        UserError: if the text is not the same as in the first pass.
    """
    counts = Counter[str]()
    sizes = {split: _shard_sizes(job, split, cleaning[split].pairs_kept) for split in cleaning}
    processes = job.options.num_concurrent_processes
    if not processes:
        processes = 1 if sum(map(sum, sizes.values())) < FEW_PAIRS else len(os.sched_getaffinity(0))
    # A single call encodes the portions of all shards, so that no process is idle between two shards.
    portions = _portions(job, cleaning, sizes)
    with contextlib.closing(encoding.encode(portions, vocabulary, processes)) as encoded:
        for split, split_sizes in sizes.items():
            for shard, size in enumerate(split_sizes):
                path = records.shard_path(folder, job.name, split, shard, len(split_sizes))
                shard_portions = itertools.islice(encoded, -(-size // encoding.PORTION_PAIRS))
                records.write_chunks(path, _counted(shard_portions, counts))
        _exhaust(encoded)  # Read to the end of the text, so that `Cleaning.next_pass` compares it.
    return counts


def _shard_sizes(job: Job, split: str, pairs: int) -> list[int]:
    """Returns the number of pairs in each shard of a split. The numbers differ by at most one."""
    shards = min(job.problem.num_train_shards, pairs) if split == "train" else 1
    return [end - start for start, end in itertools.pairwise(pairs * shard // shards for shard in range(shards + 1))]


def _portions(job: Job, cleaning: dict[str, Cleaning], sizes: dict[str, list[int]]) -> Iterator[encoding.Portion]:
    """Yields the text of all shards. Raises UserError if the text is not the same as in the first pass."""
    for split, split_cleaning in cleaning.items():
        error = UserError(
            f"problem {job.name}: its {split} text changed while it was read; run t2t-datagen again, or if the problem "
            "is your own, let generate yield the same pairs on each call"
        )
        kept_pairs = split_cleaning.next_pass(job.problem.generate(split, job.tmp_dir), error)
        pairs = progress(kept_pairs, split, split_cleaning.pairs_kept, "pairs")
        for size in sizes[split]:
            yield from encoding.portions(itertools.islice(pairs, size))
        _exhaust(pairs)


def _counted(encoded: Iterable[encoding.Encoded], counts: Counter[str]) -> Iterator[records.Chunk]:
    """Yields the chunks of encoded portions, and adds their counts to `counts`."""
    for portion in encoded:
        counts += portion.counts
        yield portion.chunk


def _exhaust(items: Iterable[object]) -> None:
    collections.deque(items, maxlen=0)


def _data_fingerprint(vocabulary: Vocabulary, shards: dict[str, Records]) -> str:
    """Returns twelve hex digits that identify the vocabulary and all records."""
    digest = hashlib.sha256(vocabulary.model)
    if vocabulary.separate_source_size:
        digest.update(vocabulary.sources.model)
    for split in SPLITS:
        for path in shards[split].paths:
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


def _describe(job: Job, text: Text, vocabulary: Vocabulary, shards: dict[str, Records]) -> Description:
    return Description(
        problem=job.name,
        settings=dataclasses.asdict(job.settings),
        vocabulary=job.vocabulary_name,
        vocabulary_fingerprint=vocabulary.fingerprint,
        fingerprint=_data_fingerprint(vocabulary, shards),
        pairs={split: cleaning.pairs_kept for split, cleaning in text.cleaning.items()},
        dropped={split: dict(cleaning.dropped) for split, cleaning in text.cleaning.items()},
        vocabulary_given=job.user_vocabulary is not None,
        source_fingerprint=text.fingerprint,
        shards={split: split_shards.index_fingerprint for split, split_shards in shards.items()},
        source_vocabulary=job.source_vocabulary_name,
    )
