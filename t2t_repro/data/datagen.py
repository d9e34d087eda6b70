"""Implements t2t-datagen: turns a problem's text into a vocabulary, shards, test sets, a summary and a description.

A run reads the text twice: first to check it, count pairs and learn the vocabulary, then to write the shards. If the
run ends early for any reason, the next run keeps the finished shards and writes only the missing ones. Finished data is
kept unless the user gives --overwrite.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from t2t_repro.console.progress import progress, say
from t2t_repro.corpora.parallel import Pair
from t2t_repro.corpora.private_folder import make_private
from t2t_repro.data import job as jobs
from t2t_repro.data import shard_writing, summary, test_set_files
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.description import SPLITS, Description
from t2t_repro.data.job import Job, Options
from t2t_repro.data.resume_state import ResumeState
from t2t_repro.data.shard_writing import TextChangedError
from t2t_repro.data.text_check import TextCheck
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabularies
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, shortened
from t2t_repro.problem import Problem, is_label


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
            data directory, other users can write to `tmp_dir`, or the run would replace other data without
            `options.overwrite`. Finished shards stay, and the next run resumes. If the text changed during the run, no
            shards stay.
    """
    problem.check()
    job = jobs.prepare(problem, Path(data_dir), tmp_dir, options or Options())
    jobs.refuse_other_settings(job)
    jobs.refuse_to_overwrite_sources(job)
    if not problem.is_self_contained:
        make_private(tmp_dir)
    with jobs.only_run(job.data_dir):
        return _generate(job)


def _generate(job: Job) -> Description:
    text = _read_all(job)
    if finished := _finished(job, text):
        finished = _relabelled(job, finished)
        if job.problem.test_sets:
            test_set_files.write(job.problem, job.data_dir, job.tmp_dir, overwrite=False)
        say(f"{job.data_dir}: the data of problem {job.name} is complete; --overwrite generates it again")
        return finished
    vocab, state = _resume_or_start(job, text)
    try:
        shard_writing.write_shards(job, text.cleaning, vocab, state)
    except TextChangedError:  # Nobody knows which shards hold the earlier text and which hold the later text.
        jobs.delete_output(job)
        raise
    if job.problem.test_sets:
        test_set_files.write(job.problem, job.data_dir, job.tmp_dir)
    figures = summary.summarize(job.data_dir, job.name, text.cleaning, state.counts(), vocab)
    description = _describe(job, text, vocab, state)
    description.save(job.description_path)
    summary.save(job.data_dir, job.name, figures)
    job.state_path.unlink()
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
    """Returns the description of the finished data if it is undamaged and equals what this run would write, or None."""
    if job.options.overwrite or job.state_path.exists():
        return None
    with suppress(UserError):
        description = Description.load(job.description_path)
        has_vocabulary = _saved_vocabulary(job).fingerprint == description.vocabulary_fingerprint
        state = _state_of(description)
        if has_vocabulary and state.fingerprint == text.fingerprint:
            if not shard_writing.missing_shards(job, text.cleaning, state):
                return description
            say(f"{job.data_dir}: files of problem {job.name} are missing or damaged; writing them again")
    return None


def _saved_vocabulary(job: Job) -> Vocabulary:
    """Returns the vocabulary in the data directory. Raises UserError if it is missing or damaged."""
    sources = job.source_vocabulary_path
    return load_vocabularies(job.data_dir, job.vocabulary_path.name, sources.name if sources else "")


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


def _state_of(description: Description) -> ResumeState:
    """Returns the state of the run that wrote a description. A run resumed from it replaces only damaged shards."""
    return ResumeState(
        description.source_fingerprint,
        description.vocabulary_fingerprint,
        description.shards,
        description.vocabulary_given,
    )


def _resume_or_start(job: Job, text: Text) -> tuple[Vocabulary, ResumeState]:
    """Returns the vocabulary and the state of the earlier run in the data directory, or of a new run.

    A run with the same text, settings and user vocabulary resumes. Otherwise this function deletes the existing shards,
    saves the vocabulary, and starts a new run.

    Raises:
        UserError: if this would delete shards and the user did not give --overwrite.
    """
    jobs.delete_temporary_files(job)
    sample, text.sample = text.sample, []  # Lets Python free the large sample when this function returns.
    state = _earlier_state(job, text)
    if state is None:
        jobs.refuse_to_replace(job)
    vocab = _vocabulary(job, sample, state)
    if state is None or state.vocabulary_fingerprint != vocab.fingerprint:
        # A vocabulary that was lost and learned again can differ if the SentencePiece library was updated.
        jobs.refuse_to_replace(job)
        jobs.start_over(job)
        state = ResumeState(text.fingerprint, vocab.fingerprint, {}, vocabulary_given=job.user_vocabulary is not None)
    elif state.shards:
        say(f"resuming after {len(state.shards):,} finished shards")
    for path, part in ((job.vocabulary_path, vocab), (job.source_vocabulary_path, vocab.sources)):
        if path and not (path.is_file() and path.read_bytes() == part.model):
            part.save(path)
    state.save(job.state_path)
    job.description_path.unlink(missing_ok=True)
    return vocab, state


def _earlier_state(job: Job, text: Text) -> ResumeState | None:
    """Returns the state of an unfinished or damaged earlier run with the same text, settings and user vocabulary."""
    with suppress(UserError):
        state = ResumeState.load(job.state_path)
        if state.fingerprint == text.fingerprint:
            return state
    if not job.options.overwrite:
        with suppress(UserError):
            state = _state_of(Description.load(job.description_path))
            if state.fingerprint == text.fingerprint:
                return state
    return None


def _vocabulary(job: Job, sample: list[str], state: ResumeState | None) -> Vocabulary:
    """Returns the user's vocabulary, or else that of the earlier run (`state`), or else learns one from `sample`."""
    if job.user_vocabulary:
        return job.user_vocabulary
    with suppress(UserError):
        vocab = _saved_vocabulary(job)
        if state and vocab.fingerprint == state.vocabulary_fingerprint:
            return vocab
    say(f"learning a vocabulary from {len(sample):,} texts")
    return sentencepiece.train(sample, job.settings.vocab_size, job.problem.symbols)


def _describe(job: Job, text: Text, vocab: Vocabulary, state: ResumeState) -> Description:
    digest = hashlib.sha256(vocab.model)
    if vocab.separate_source_size:
        digest.update(vocab.sources.model)
    sources = job.source_vocabulary_path
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
        source_fingerprint=text.fingerprint,
        shards=state.shards,
        source_vocabulary=sources.name if sources else "",
    )
