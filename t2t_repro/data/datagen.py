"""Implements t2t-datagen: turns a problem's text into a vocabulary, shards, test sets, a summary and a description.

A run reads the text twice: first to check it, count pairs and learn the vocabulary, then to write the shards. All files
appear together at the end. Finished data is kept unless the user gives --overwrite.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from t2t_repro.console.progress import progress, say
from t2t_repro.corpora.parallel import Pair
from t2t_repro.corpora.private_folder import make_private
from t2t_repro.data import encoding, records, summary, test_set_files
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.dataset import SPLITS, Description
from t2t_repro.data.encoding import Encoded, Portion
from t2t_repro.data.job import Job, Options, prepare, refuse_to_replace
from t2t_repro.data.records import Records
from t2t_repro.data.text_check import TextCheck
from t2t_repro.data.unfinished import put_in_place, unfinished_folder
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabularies
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, counted, shortened
from t2t_repro.problem import Problem

FEW_PAIRS = 50_000
"""Number of pairs below which one process encodes the text by default: starting more processes would take longer."""

MAX_SHARDS, PAIRS_PER_SHARD = 100, 10_000
"""Most shards of a train split and most pairs in each, where the problem does not set the number of shards."""


def generate_data(problem: Problem, data_dir: str | Path, tmp_dir: str, options: Options | None = None) -> Description:
    """Generates the data files of a problem. The files have the same bytes for any number of processes.

    If the data directory already has this data, the function reads the text only to compare it, and changes nothing.

    Args:
        data_dir: folder to which the files are written.
        tmp_dir: folder of downloads and the problem's source files.
        options: choices of the user that are not settings of the problem; None for the defaults.

    Raises:
        UserError: if a setting, the text, the vocabulary file or a folder cannot be used, or the run would replace
            other data without `options.overwrite`. The data directory stays as it was.
    """
    problem.check()
    job = prepare(problem, Path(data_dir), tmp_dir, options or Options())
    if not problem.is_self_contained:
        make_private(tmp_dir)
    with unfinished_folder(job.data_dir) as folder:
        job, text = _read_all(job)
        return _finished(job, text) or _generate(job, text, folder)


@dataclass
class Text:
    """Results of reading a problem's text for the first time. A run reads the text twice."""

    cleaning: dict[str, Cleaning]
    """For each split, the rules that select pairs, and the counts of kept and dropped pairs."""
    sample: list[str]
    """Texts from which the run learns the vocabulary. Empty if the user supplied a vocabulary."""
    fingerprint: str
    """Hash of the text, the settings and the user's vocabulary, as hex digits."""


def _read_all(job: Job) -> tuple[Job, Text]:
    """Reads all text for the first time, so that the run finds any mistake in the text before it writes a file.

    Returns the job with the size of the vocabulary, which may depend on the text.
    """
    settings = job.settings
    limits = (settings.clean_max_words, settings.clean_max_ratio, settings.clean_duplicates)
    cleaning = {"train": Cleaning(*limits), "dev": Cleaning()}
    train, dev = (cleaning[split].first_pass(_valid_pairs(job, split)) for split in SPLITS)
    check, sample = TextCheck(dev), []
    train = progress(check.train(train), "reading", None, "pairs")
    if job.user_vocabulary:
        _exhaust(train)
    else:
        sample = sentencepiece.sample(side for pair in train for side in (pair["inputs"], pair["targets"]))
    for split, split_cleaning in cleaning.items():
        if not split_cleaning.pairs_kept:
            reasons = "".join(f", {reason} {count:,}" for reason, count in split_cleaning.dropped.items())
            raise UserError(
                f"problem {job.name}: no pair is left in its {split} split (read {split_cleaning.pairs_read:,}"
                f"{reasons}); check the source"
            )
    warnings = check.warnings(job.problem.target_language)
    if not job.user_vocabulary:
        pairs = cleaning["train"].pairs_kept
        default = sentencepiece.default_size(sample, pairs)
        job = dataclasses.replace(
            job, settings=dataclasses.replace(settings, vocab_size=settings.vocab_size or default)
        )
        if job.settings.vocab_size > 2 * default:
            warnings.append(
                f"--vocab_size={settings.vocab_size} makes most subwords of {counted(pairs, 'pair')} whole words that "
                f"occur too rarely to be learned; --vocab_size={default} suits this text"
            )
    for warning in warnings:
        say(f"warning: problem {job.name}: {warning}")
    hashed = [str((job.data_settings, job.problem.symbols, job.problem.num_train_shards))]
    hashed += [split_cleaning.fingerprint for split_cleaning in cleaning.values()]
    if job.user_vocabulary:
        hashed.append(job.user_vocabulary.fingerprint)
    return job, Text(cleaning, sample, hashlib.sha256("\n".join(hashed).encode()).hexdigest())


def _valid_pairs(job: Job, split: str) -> Iterator[Pair]:
    """Yields the pairs of a split. Raises UserError if a custom problem yields something else."""
    for pair in job.problem.generate(split, job.tmp_dir):
        if not (isinstance(pair, dict) and all(isinstance(pair.get(side), str) for side in ("inputs", "targets"))):
            raise UserError(
                f"problem {job.name}: generate yielded {shortened(repr(pair))}; yield a dict with the strings "
                '"inputs" and "targets"'
            )
        yield pair


def _finished(job: Job, text: Text) -> Description | None:
    """Returns the description of the data in the directory if it is what this run would write and undamaged, or None.

    Writes missing test sets, and the labels (such as the languages) that the user gave, into the description.

    Raises:
        UserError: if the directory has other data of the problem, and the user did not give --overwrite.
    """
    description = job.existing_description
    if job.options.overwrite:
        return None
    if not description or description.source_fingerprint != text.fingerprint:
        refuse_to_replace(job)
        return None
    if not _is_intact(job, description):
        say(f"{job.data_dir}: files of problem {job.name} are missing or damaged; generating the data again")
        return None
    labels = {name: value for name, value in job.problem.changed_settings.items() if name not in job.data_settings}
    if not labels.items() <= description.settings.items():
        description = dataclasses.replace(description, settings=description.settings | labels)
        description.save(job.description_path)
    if job.problem.test_sets:
        test_set_files.write(job.problem, job.data_dir, job.tmp_dir, overwrite=False)
    say(f"{job.data_dir}: the data of problem {job.name} is complete; --overwrite generates it again")
    return description


def _is_intact(job: Job, description: Description) -> bool:
    try:
        vocabulary = load_vocabularies(job.data_dir, job.vocabulary_name, job.source_vocabulary_name)
        return _data_fingerprint(vocabulary, _shards(job, job.data_dir)) == description.fingerprint
    except UserError:  # a file is missing or damaged
        return False


def _generate(job: Job, text: Text, folder: Path) -> Description:
    """Writes all files to `folder`, and then moves them to the data directory."""
    vocabulary, sample = job.user_vocabulary, text.sample
    if not vocabulary:
        say(f"learning a vocabulary from {counted(len(sample), 'text')}")
        vocabulary = sentencepiece.train(sample, job.settings.vocab_size, job.problem.symbols)
        sample.clear()  # because it is large
    vocabulary.save(folder / job.vocabulary_name)
    if job.source_vocabulary_name:
        vocabulary.sources.save(folder / job.source_vocabulary_name)
    counts = _write_shards(job, text.cleaning, vocabulary, folder)
    if job.problem.test_sets:
        test_set_files.write(job.problem, folder, job.tmp_dir)
    shards = _shards(job, folder)
    figures = summary.summarize(shards, text.cleaning, counts, vocabulary)
    summary.save(folder, job.name, figures, job.data_dir)
    description = Description(
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
    description.save(folder / job.description_path.name)
    if job.options.overwrite or not job.problem.test_sets:
        # Old test sets may not belong to the new settings. A problem without test sets uses a copy of its dev split.
        for path in test_set_files.all_paths(job.problem, job.data_dir):
            path.unlink(missing_ok=True)
    put_in_place(folder, job.name)
    for line in (*summary.lines(figures), f"data: {job.data_dir}"):
        say(line)
    return description


def _shards(job: Job, folder: Path) -> dict[str, Records]:
    return {split: Records(records.find_shards(folder, job.name, split)) for split in SPLITS}


def _write_shards(job: Job, cleaning: dict[str, Cleaning], vocabulary: Vocabulary, folder: Path) -> Counter[str]:
    """Reads all text again, and writes the shards to `folder`. Returns the counts of all pairs, see `Encoded`.

    Args:
        cleaning: selects the pairs of each split. Its `first_pass` has ended.

    Raises:
        UserError: if the text is not the same as in the first pass.
    """
    counts = Counter[str]()
    sizes = {split: _shard_sizes(job, split, cleaning[split].pairs_kept) for split in cleaning}
    processes = job.options.num_concurrent_processes
    if not processes:
        processes = 1 if sum(map(sum, sizes.values())) < FEW_PAIRS else len(os.sched_getaffinity(0))

    def chunks(portions: Iterable[Encoded]) -> Iterator[records.Chunk]:
        for portion in portions:
            counts.update(portion.counts)
            yield portion.chunk

    # A single call encodes the portions of all shards, so that no process is idle between two shards.
    with contextlib.closing(encoding.encode(_portions(job, cleaning, sizes), vocabulary, processes)) as encoded:
        for split, split_sizes in sizes.items():
            for shard, size in enumerate(split_sizes):
                path = records.shard_path(folder, job.name, split, shard, len(split_sizes))
                records.write_chunks(path, chunks(itertools.islice(encoded, -(-size // encoding.PORTION_PAIRS))))
        _exhaust(encoded)  # Read to the end of the text, so that `Cleaning.next_pass` compares it.
    return counts


def _shard_sizes(job: Job, split: str, pairs: int) -> list[int]:
    """Returns the number of pairs in each shard of a split. The numbers differ by at most one."""
    by_default = min(MAX_SHARDS, -(-pairs // PAIRS_PER_SHARD))
    shards = min(job.problem.num_train_shards or by_default, pairs) if split == "train" else 1
    return [end - start for start, end in itertools.pairwise(pairs * shard // shards for shard in range(shards + 1))]


def _portions(job: Job, cleaning: dict[str, Cleaning], sizes: dict[str, list[int]]) -> Iterator[Portion]:
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
