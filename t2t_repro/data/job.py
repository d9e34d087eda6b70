"""The job of a run of t2t-datagen: its arguments, and the checks and deletions of files in its data directory."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_repro.data import records, summary, test_set_files
from t2t_repro.data.description import SPLITS, Description, description_path
from t2t_repro.data.resume_state import ResumeState, state_path
from t2t_repro.data.vocabularies.kinds import SUFFIXES, load_vocabulary
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.locks import locked
from t2t_repro.files.output_files import Input, refuse_overwriting
from t2t_repro.problem import Problem, is_label
from t2t_repro.tensor2tensor.data import existing_vocabulary

LOCK = ".datagen.lock"
"""Name of the file in a data directory that t2t-datagen keeps locked, so that no second run writes there."""


@dataclass(frozen=True)
class Options:
    """Choices of the user about a run that are not settings of the problem. t2t-datagen has a flag for each."""

    num_concurrent_processes: int = dataclasses.field(default=0, metadata={"upper_bound": 4096})
    """Number of processes that encode text; 0: one per core, or one for fewer than 50,000 pairs; the data does not
    depend on this number."""
    vocab_file: str | Path = ""
    """Vocabulary file to use instead of learning a vocabulary: vocab.* of a model folder, of another --data_dir or of
    tensor2tensor (*.subwords, *.tokens)."""
    overwrite: bool = False
    """Generate the data again, even if --data_dir has finished data, or data from other text or settings."""
    source_vocab_file: str | Path = ""
    """Vocabulary file for the sources, if --vocab_file is only for the targets."""


@dataclass(frozen=True)
class Job:
    """Arguments of a run of t2t-datagen: the problem, its settings, the folders and the user's vocabulary, if any."""

    problem: Problem
    settings: Any
    """Settings of the problem. If the user supplied a vocabulary, vocab_size is the size of that vocabulary."""
    data_dir: Path
    tmp_dir: str
    options: Options
    user_vocabulary: Vocabulary | None

    @property
    def name(self) -> str:
        return self.problem.base_name

    @property
    def description_path(self) -> Path:
        return description_path(self.data_dir, self.name)

    @property
    def state_path(self) -> Path:
        return state_path(self.data_dir, self.name)

    @property
    def vocabulary_path(self) -> Path:
        suffix = (self.user_vocabulary or SentencePieceVocabulary).suffix
        return self.data_dir / f"vocab.{self.name}.{self.settings.vocab_size}{suffix}"

    @property
    def source_vocabulary_path(self) -> Path | None:
        """Path of the vocabulary of the sources; None if sources and targets have the same vocabulary."""
        if not self.user_vocabulary or not (source_size := self.user_vocabulary.separate_source_size):
            return None
        return self.data_dir / f"vocab.{self.name}.{source_size}.source{self.user_vocabulary.sources.suffix}"

    def data_settings(self) -> dict[str, Any]:
        """Returns the settings that change the shards or the vocabulary, by name."""
        fields = dataclasses.fields(self.settings)
        return {field.name: getattr(self.settings, field.name) for field in fields if not is_label(field)}

    def shard_files(self) -> list[Path]:
        """Returns the paths of the existing shards and their indexes."""
        return [path for split in SPLITS for path in records.find_files(self.data_dir, self.name, split)]


def prepare(problem: Problem, data_dir: Path, tmp_dir: str, options: Options) -> Job:
    """Returns the Job of a run. If the user supplied a vocabulary, loads it and sets vocab_size to its size.

    A problem of tensor2tensor may have a vocabulary file in the data directory, which is used in the same way.

    Raises:
        UserError: if the vocabulary is damaged or lacks the problem's symbols, or the data directory has data that was
            made with --vocab_file, but the user did not give --vocab_file.
    """
    user_vocabulary, settings = None, problem.settings
    if problem.was_reversed and options.source_vocab_file:  # the data, and so the Job, is that of the other direction
        sources, targets = options.vocab_file, options.source_vocab_file
        options = dataclasses.replace(options, vocab_file=targets, source_vocab_file=sources)
    if options.vocab_file:
        user_vocabulary = load_vocabulary(options.vocab_file)
        if options.source_vocab_file:
            user_vocabulary = user_vocabulary.with_sources(load_vocabulary(options.source_vocab_file))
        if missing := user_vocabulary.missing_symbols(problem.symbols):
            raise UserError(
                f"--vocab_file={options.vocab_file}: lacks {len(missing)} of the {len(problem.symbols)} symbols of "
                f"problem {problem.name}, for example {missing[0]}; use a vocabulary that was learned with these "
                "symbols"
            )
    elif user_vocabulary := existing_vocabulary(data_dir, problem):
        sources, targets = (data_dir / name for name in problem.t2t_vocabularies)
        options = dataclasses.replace(options, vocab_file=targets, source_vocab_file=sources)
        default_size = type(problem)({}).settings.vocab_size
        if settings.vocab_size not in (default_size, user_vocabulary.size):
            raise UserError(
                f"--vocab_size={settings.vocab_size} has no effect, because {targets} determines the size; omit it, or "
                "choose another --data_dir to learn a vocabulary"
            )
    if user_vocabulary:
        settings = dataclasses.replace(settings, vocab_size=user_vocabulary.size)
    job = Job(problem, settings, data_dir, tmp_dir, options, user_vocabulary)
    if not user_vocabulary and _has_user_vocabulary(job):
        raise UserError(
            f"{data_dir}: its vocabulary of {job.name} came from --vocab_file; run t2t-datagen with that "
            "--vocab_file to keep it, or choose another --data_dir to learn one"
        )
    return job


def _has_user_vocabulary(job: Job) -> bool:
    """Returns True if --vocab_file was used for the problem's finished or unfinished data in the data directory."""
    with suppress(UserError):
        if Description.load(job.description_path).vocabulary_given:
            return True
    with suppress(UserError):
        return ResumeState.load(job.state_path).vocabulary_given
    return False


def source_files(problem: Problem) -> list[Input]:
    """Returns the existing files that the problem's settings name.

    A setting can name a file, several files separated by commas, or a folder of files. Labels, such as the names of
    languages, name no files.
    """
    files: list[Input] = []
    for field in dataclasses.fields(problem.settings):
        name, value = field.name, getattr(problem.settings, field.name)
        is_path = isinstance(value, str) and not is_label(field)
        parts = [part.strip() for part in value.split(",")] if is_path else []
        for start, end in itertools.combinations(range(len(parts) + 1), 2):
            path = Path(",".join(parts[start:end]))
            # Path.is_file would raise OSError for a setting that is too long to be a file name.
            paths = path.iterdir() if os.path.isdir(path) and parts[start] else [path]
            files += [(f"--{name}", file) for file in paths if os.path.isfile(file)]
    return files


def refuse_to_overwrite_sources(job: Job) -> None:
    """Raises UserError if a file from which the problem reads its text is one that the run writes or deletes."""
    outputs = [
        *job.shard_files(),
        *(job.description_path, job.state_path, job.vocabulary_path, job.data_dir / summary.FILE_NAME),
        *filter(None, [job.source_vocabulary_path]),
        *test_set_files.all_paths(job.problem, job.data_dir),
    ]
    refuse_overwriting("--data_dir", outputs, source_files(job.problem))
    if job.source_vocabulary_path:
        sources, targets = job.options.source_vocab_file, job.options.vocab_file
        refuse_overwriting("--data_dir", [job.vocabulary_path], [("the vocabulary of the sources", sources)])
        refuse_overwriting("--data_dir", [job.source_vocabulary_path], [("the vocabulary of the targets", targets)])


@contextmanager
def only_run(data_dir: Path) -> Iterator[None]:
    """Returns a context in which no other t2t-datagen writes to a data directory. Creates the directory if necessary.

    Raises:
        UserError: if another t2t-datagen is using it, or the directory cannot be written.
    """
    is_new = not data_dir.exists()
    refusal = f"{data_dir}: another t2t-datagen is at work there; wait for its end, or give another --data_dir"
    try:
        with locked(data_dir / LOCK, refusal, "choose another --data_dir", delete=True):
            yield
    finally:
        if is_new:
            with suppress(OSError):  # rmdir fails if the folder has files.
                data_dir.rmdir()


def refuse_other_settings(job: Job) -> None:
    """Raises UserError if the data directory has finished data of the problem with other settings than the job's.

    Does nothing if the user gave --overwrite.
    """
    if job.options.overwrite:
        return
    try:
        description = Description.load(job.description_path)
    except UserError:
        return
    for name, value in job.data_settings().items():
        old_value = description.settings.get(name, value)
        if old_value != value:
            raise _refusal(job, f"that was made with --{name}={old_value}, not {value}")


def refuse_to_replace(job: Job) -> None:
    """Raises UserError if the data directory has shards of the problem that the run would delete.

    Does nothing if the user gave --overwrite.
    """
    if job.options.overwrite or not (files := job.shard_files()):
        return
    if job.description_path.exists():
        raise _refusal(job, "that was made from another text, with another vocabulary or by an older version")
    shards = sum(path.suffix != ".index" for path in files)
    raise _refusal(job, f"(shards: {shards:,}) that this run cannot resume: its text, settings or vocabulary differ")


def _refusal(job: Job, reason: str) -> UserError:
    return UserError(
        f"{job.data_dir}: holds data of problem {job.name} {reason}; run t2t-datagen with --overwrite to replace that "
        "data, or give another --data_dir to keep it"
    )


def start_over(job: Job) -> None:
    """Deletes the description and shards that earlier runs wrote for the problem.

    Also deletes the test sets' files if the user gave --overwrite, because they may not belong to the new settings. The
    copy of the dev split, which is the test set of a problem that defines none, is always deleted.
    """
    job.description_path.unlink(missing_ok=True)
    for path in job.shard_files():
        path.unlink()
    if job.options.overwrite or not job.problem.test_sets:
        test_set_files.delete(job.problem, job.data_dir)


def delete_output(job: Job) -> None:
    """Deletes all data of the problem, except the user's vocabulary files if they lie in the data directory."""
    start_over(job)
    user_files = {Path(file).resolve() for file in (job.options.vocab_file, job.options.source_vocab_file) if file}
    for path in (job.vocabulary_path, job.source_vocabulary_path, job.state_path):
        if path and path.resolve() not in user_files:
            path.unlink(missing_ok=True)


def delete_temporary_files(job: Job) -> None:
    """Deletes the temporary files that a killed run of t2t-datagen left behind.

    `whole_file` names a temporary file ".NAME.RANDOM", from the final file's name and eight random characters.
    """
    number = r"\d{5}"
    names = [
        rf"{re.escape(job.name)}-(train|dev)-{number}-of-{number}(\.index)?",
        rf"vocab\.{re.escape(job.name)}\.\d+(\.source)?({'|'.join(map(re.escape, SUFFIXES))})",
        *(re.escape(path.name) for path in (job.description_path, job.state_path)),
        *(re.escape(path.name) for path in test_set_files.all_paths(job.problem, job.data_dir)),
        re.escape(summary.FILE_NAME),
    ]
    temporary = re.compile(rf"\.({'|'.join(names)})\.[a-z0-9_]{{8}}")
    for path in job.data_dir.iterdir():
        if temporary.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)
