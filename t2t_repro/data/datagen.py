"""Implements t2t-datagen: turns a problem's text into a vocabulary, shards, test sets, a summary and a description.

A run reads the text twice: first to check it, count pairs and learn the vocabulary, then to write the shards. If the
run is interrupted or killed, the next run keeps the finished shards and writes only the missing ones.
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
from typing import Any

from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import encoding, records, summary, test_set_files, vocabulary
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.description import Description, description_path
from t2t_repro.data.resume_state import ResumeState
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from t2t_repro.progress import progress, say

SPLITS = ("train", "dev")
FEW_PAIRS = 50_000
"""Number of pairs below which one process encodes the text by default: starting more processes would take longer."""


def generate_data(
    problem: Problem, data_dir: str | Path, tmp_dir: str, processes: int = 0, vocab_file: str | Path = ""
) -> Description:
    """Generates the data files of a problem. The files have the same bytes for any number of `processes`.

    Args:
        data_dir: folder to which the files are written.
        tmp_dir: folder of downloads and the problem's source files.
        processes: number of processes that encode text. 0 means one per core, or 1 for fewer than `FEW_PAIRS` pairs.
        vocab_file: file of the vocabulary to use, or "" to learn a vocabulary. If a file is given, the size of its
            vocabulary replaces the setting vocab_size.

    Raises:
        WorkerLostError: if an encoding process died. The finished shards stay, and the next run resumes.
        UserError: if a source is missing or damaged, a split is empty, the disk is full, `vocab_file` is not a
            vocabulary with the problem's symbols, or `vocab_file` is "" although existing data was made with a
            `vocab_file`. The run leaves no new file.
    """
    problem.check()
    job = _prepare(problem, Path(data_dir), tmp_dir, vocab_file)
    text = _read_all(job)
    try:
        vocab, state = _resume_or_start(job, text)
        pairs = sum(cleaning.pairs_kept for cleaning in text.cleaning.values())
        processes = processes or (1 if pairs < FEW_PAIRS else len(os.sched_getaffinity(0)))
        _write_shards(job, text, vocab, state, processes)
        test_set_files.delete(problem, job.data_dir)
        if problem.test_sets:
            test_set_files.write(problem, job.data_dir, tmp_dir)
        figures = summary.summarize(job.data_dir, job.name, text.cleaning, state.counts(), vocab)
        description = _describe(job, text, vocab, state)
        description.save(job.description_path)
        summary.save(job.data_dir, job.name, figures)
        job.state_path.unlink()
    except encoding.WorkerLostError:
        raise  # Keep the finished shards for the next run, as after a KeyboardInterrupt.
    except Exception:
        _delete_output(job)
        raise
    for line in (*summary.lines(figures), f"data: {data_dir}"):
        say(line)
    return description


@dataclass(frozen=True)
class Job:
    """Arguments of a run of t2t-datagen: the problem, its settings, the folders and the user's vocabulary, if any."""

    problem: Problem
    settings: Any
    """Settings of the problem. If the user supplied a vocabulary, vocab_size is the size of that vocabulary."""
    data_dir: Path
    tmp_dir: str
    vocab_file: Path
    user_vocabulary: Vocabulary | None

    @property
    def name(self) -> str:
        return self.problem.base_name

    @property
    def description_path(self) -> Path:
        return description_path(self.data_dir, self.name)

    @property
    def state_path(self) -> Path:
        return self.data_dir / f".{self.name}.unfinished"

    @property
    def vocabulary_path(self) -> Path:
        return self.data_dir / f"vocab.{self.name}.{self.settings.vocab_size}.model"


def _prepare(problem: Problem, data_dir: Path, tmp_dir: str, vocab_file: str | Path) -> Job:
    """Returns the Job of a run. If the user supplied a vocabulary, loads it and sets vocab_size to its size."""
    user_vocabulary, settings = None, problem.settings
    if vocab_file:
        user_vocabulary = Vocabulary.load(vocab_file)
        if missing := user_vocabulary.missing_symbols(problem.symbols):
            raise UserError(
                f"--vocab_file={vocab_file}: lacks {len(missing)} of the {len(problem.symbols)} symbols of problem "
                f"{problem.name}, for example {missing[0]}; use a vocabulary that was learned with these symbols"
            )
        settings = dataclasses.replace(settings, vocab_size=user_vocabulary.size)
    job = Job(problem, settings, data_dir, tmp_dir, Path(vocab_file), user_vocabulary)
    if not user_vocabulary and _has_user_vocabulary(job):
        raise UserError(
            f"{data_dir}: its vocabulary of {job.name} came from --vocab_file; give --vocab_file again to keep it, or "
            "choose another --data_dir to learn one"
        )
    return job


def _has_user_vocabulary(job: Job) -> bool:
    """Returns True if --vocab_file was used for the problem's finished or unfinished data in the data directory."""
    with contextlib.suppress(UserError):
        if Description.load(job.description_path).vocabulary_given:
            return True
    with contextlib.suppress(UserError):
        return ResumeState.load(job.state_path).vocabulary_given
    return False


@dataclass
class Text:
    """Results of reading a problem's text for the first time. A run reads the text twice."""

    cleaning: dict[str, Cleaning]
    """For each split, the rules that select pairs, and the counts of kept and dropped pairs."""
    hashes: dict[str, int] = field(default_factory=dict)
    """Hash of all pairs of each split. If the hash of the second reading differs, the text has changed meanwhile."""
    sample: list[str] = field(default_factory=list)
    """Texts from which the run learns the vocabulary. Empty if the user supplied a vocabulary."""


class HashedPairs:
    """Iterable over pairs that computes a hash of all pairs that it has yielded."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = pairs
        self.hash = 0
        """Hash of all pairs yielded so far. Valid only in this process: Python's `hash` differs in other processes."""

    def __iter__(self) -> Iterator[Pair]:
        for pair in self._pairs:
            self.hash = hash((self.hash, pair["inputs"], pair["targets"]))
            yield pair


def _read_all(job: Job) -> Text:
    """Reads all text for the first time, so that the run finds any mistake in the text before it writes a file."""
    settings = job.settings
    limits = (settings.clean_max_words, settings.clean_max_ratio, settings.clean_duplicates)
    text = Text({"train": Cleaning(*limits), "dev": Cleaning()})
    sources = {split: HashedPairs(job.problem.generate(split, job.tmp_dir)) for split in SPLITS}
    _exhaust(text.cleaning["dev"].first_pass(sources["dev"]))
    train = progress(text.cleaning["train"].first_pass(sources["train"]), "reading", None, "pairs")
    if job.user_vocabulary:
        _exhaust(train)
    else:
        text.sample = vocabulary.sample(side for pair in train for side in (pair["inputs"], pair["targets"]))
    for split, cleaning in text.cleaning.items():
        text.hashes[split] = sources[split].hash
        if not cleaning.pairs_kept:
            reasons = "".join(f", {reason} {count:,}" for reason, count in cleaning.dropped.items())
            raise UserError(
                f"problem {job.name}: no pair is left in its {split} split (read {cleaning.pairs_read:,}{reasons}); "
                "check the source"
            )
    return text


def _exhaust(items: Iterable[Any]) -> None:
    collections.deque(items, maxlen=0)


def _resume_or_start(job: Job, text: Text) -> tuple[Vocabulary, ResumeState]:
    """Returns the vocabulary and the state of the unfinished run in the data directory, or of a new run.

    An unfinished run with the same text, settings and user vocabulary resumes. Otherwise this function deletes the
    existing shards, saves the vocabulary, and starts a new run.
    """
    fingerprint = _fingerprint(job, text)
    job.description_path.unlink(missing_ok=True)
    _delete_temporary_files(job)
    sample, text.sample = text.sample, []  # Lets Python free the large sample when this function returns.
    with contextlib.suppress(UserError):
        state, vocab = ResumeState.load(job.state_path), Vocabulary.load(job.vocabulary_path)
        if (state.fingerprint, state.vocabulary_fingerprint) == (fingerprint, vocab.fingerprint):
            say(f"resuming after {len(state.shards):,} finished shards")
            return vocab, state
    _delete_shards(job)
    if job.user_vocabulary:
        vocab = job.user_vocabulary
    else:
        say(f"learning a vocabulary from {len(sample):,} texts")
        vocab = vocabulary.train(sample, job.settings.vocab_size, job.problem.symbols)
    vocab.save(job.vocabulary_path)
    state = ResumeState(fingerprint, vocab.fingerprint, {}, vocabulary_given=job.user_vocabulary is not None)
    state.save(job.state_path)
    return vocab, state


def _fingerprint(job: Job, text: Text) -> str:
    """Returns a hash of the text, the settings and the user's vocabulary, as hex digits."""
    settings = (dataclasses.asdict(job.settings), job.problem.symbols, job.problem.num_train_shards)
    parts = [str(settings), *(cleaning.fingerprint for cleaning in text.cleaning.values())]
    if job.user_vocabulary:
        parts.append(job.user_vocabulary.fingerprint)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _write_shards(job: Job, text: Text, vocab: Vocabulary, state: ResumeState, processes: int) -> None:
    """Reads all text again, and writes the shards that are not yet finished according to `state`."""
    with encoding.Encoder(vocab, processes) as encoder:
        for split, cleaning in text.cleaning.items():
            source = HashedPairs(job.problem.generate(split, job.tmp_dir))
            pairs = progress(cleaning.next_pass(source), split, cleaning.pairs_kept, "pairs")
            sizes = _shard_sizes(job, split, cleaning.pairs_kept)
            _write_missing_shards(pairs, sizes, encoder, state, job.state_path)
            _exhaust(pairs)
            if source.hash != text.hashes[split]:
                raise UserError(
                    f"problem {job.name}: its {split} text changed while it was read; run t2t-datagen again"
                )


def _shard_sizes(job: Job, split: str, pairs: int) -> dict[Path, int]:
    """Returns the number of pairs for each shard of a split, by path. The numbers differ by at most one."""
    shards = min(job.problem.num_train_shards, pairs) if split == "train" else 1
    ends = [pairs * shard // shards for shard in range(shards + 1)]
    return {
        records.shard_path(job.data_dir, job.name, split, shard, shards): end - start
        for shard, (start, end) in enumerate(itertools.pairwise(ends))
    }


def _write_missing_shards(
    pairs: Iterator[Pair], sizes: dict[Path, int], encoder: encoding.Encoder, state: ResumeState, state_path: Path
) -> None:
    """Writes the shards of a split that are not yet finished according to `state`. Saves `state` after each shard.

    Args:
        pairs: the pairs of all shards of the split, including finished shards.
        sizes: number of pairs in each shard, by path.
    """
    missing = [path for path in sizes if not state.has(path)]

    def portions() -> Iterator[encoding.Portion]:
        for path, size in sizes.items():
            shard_pairs = itertools.islice(pairs, size)
            if path in missing:
                yield from encoding.portions(shard_pairs)
            else:
                _exhaust(shard_pairs)  # Skip the pairs of a finished shard.

    # A single call encodes the portions of all shards, so that no process is idle between two shards.
    encoded = encoder.encode(portions())
    for path in missing:
        digest, counts = hashlib.sha256(), Counter[str]()
        shard_portions = itertools.islice(encoded, -(-sizes[path] // encoding.PORTION_PAIRS))
        records.write_chunks(path, _count(shard_portions, counts), digest)
        state.add(path, digest.hexdigest(), counts)
        state.save(state_path)


def _count(encoded: Iterable[encoding.Encoded], counts: Counter[str]) -> Iterator[records.Chunk]:
    for portion in encoded:
        counts += portion.counts
        yield portion.chunk


def _describe(job: Job, text: Text, vocab: Vocabulary, state: ResumeState) -> Description:
    digest = hashlib.sha256(vocab.model)
    for shard in state.shards.values():
        digest.update(bytes.fromhex(shard["sha256"]))
    return Description(
        problem=job.name,
        settings=dataclasses.asdict(job.settings),
        vocabulary=job.vocabulary_path.name,
        vocabulary_fingerprint=vocab.fingerprint,
        fingerprint=digest.hexdigest()[:12],
        pairs={split: cleaning.pairs_kept for split, cleaning in text.cleaning.items()},
        dropped={split: dict(cleaning.dropped) for split, cleaning in text.cleaning.items()},
        vocabulary_given=job.user_vocabulary is not None,
    )


def _delete_temporary_files(job: Job) -> None:
    """Deletes the temporary files that a killed run of t2t-datagen left behind."""
    for name in (f"{job.name}[-.]*", f".{job.name}.unfinished", f"vocab.{job.name}.*", summary.FILE_NAME):
        for path in job.data_dir.glob(f".{name}.{'?' * 8}"):
            path.unlink(missing_ok=True)


def _delete_shards(job: Job) -> None:
    for split in SPLITS:
        for path in records.find_files(job.data_dir, job.name, split):
            path.unlink()


def _delete_output(job: Job) -> None:
    """Deletes all data of the problem, except the user's --vocab_file if it lies in the data directory."""
    _delete_temporary_files(job)
    _delete_shards(job)
    test_set_files.delete(job.problem, job.data_dir)
    for path in (job.vocabulary_path, job.state_path, job.description_path):
        if not (job.user_vocabulary and path.resolve() == job.vocab_file.resolve()):
            path.unlink(missing_ok=True)
