"""The job of a run of t2t-datagen: its arguments, and the checks that protect existing files."""

import dataclasses
import functools
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_repro.data import records, summary, test_set_files
from t2t_repro.data.dataset import SPLITS, Description, description_path
from t2t_repro.data.vocabularies.kinds import load_vocabularies, load_vocabulary
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.tags import is_tag
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import Input, refuse_overwriting
from t2t_repro.problem import Problem


@dataclass(frozen=True)
class Options:
    """Choices of the user about a run that are not settings of the problem. t2t-datagen has a flag
    for each.
    """

    num_concurrent_processes: int = dataclasses.field(default=0, metadata={"upper_bound": 4096})
    """Number of processes that encode text; 0: one per core, or one for fewer than 50,000 pairs;
    the data does not depend on this number.
    """
    vocab_file: str | Path = ""
    """Vocabulary file to use instead of learning a vocabulary: vocab.* of a model folder or of
    another --data_dir, or a file of SentencePiece (*.model), subword-nmt (*.bpe), Hugging Face
    (tokenizer.json) or tensor2tensor (*.subwords, *.tokens).
    """
    overwrite: bool = False
    """Generate the data again, even if --data_dir has finished data, or data from other text or
    settings.
    """
    source_vocab_file: str | Path = ""
    """Vocabulary file for the sources, if --vocab_file is only for the targets."""


@dataclass(frozen=True)
class Job:
    """Arguments of a run of t2t-datagen: the problem, its settings, the folders and the user's
    vocabulary, if any.
    """

    problem: Problem
    settings: Any
    """Settings of the problem. If the user supplied a vocabulary, vocab_size is the size of that
    vocabulary.
    """
    data_dir: Path
    tmp_dir: str
    options: Options
    user_vocabulary: Vocabulary | None
    source_vocab_size: int = 0
    """Number of pieces to learn from the sources, if the settings ask for separate vocabularies;
    else 0.
    """

    @property
    def name(self) -> str:
        return self.problem.base_name

    @property
    def vocabulary_name(self) -> str:
        """File name of the vocabulary of the targets."""
        suffix = (self.user_vocabulary or SentencePieceVocabulary).suffix
        return f"vocab.{self.name}.{self.settings.vocab_size}{suffix}"

    @property
    def source_vocabulary_name(self) -> str:
        """File name of the vocabulary of the sources; "" if sources and targets have the same
        vocabulary.
        """
        size = self.source_vocab_size
        suffix = SentencePieceVocabulary.suffix
        if self.user_vocabulary:
            size = self.user_vocabulary.separate_source_size
            suffix = self.user_vocabulary.sources.suffix
        return f"vocab.{self.name}.{size}.source{suffix}" if size else ""

    @property
    def data_settings(self) -> dict[str, Any]:
        """The settings that change the shards or the vocabulary, by name."""
        return {
            field.name: getattr(self.settings, field.name)
            for field in dataclasses.fields(self.settings)
            if not field.metadata.get("is_label")
        }

    @property
    def description_path(self) -> Path:
        return description_path(self.data_dir, self.name)

    @functools.cached_property
    def existing_description(self) -> Description | None:
        """The description that the data directory had before the run; None if it was missing or
        damaged.
        """
        with suppress(UserError, OSError):
            return Description.load(self.description_path)
        return None


def prepare(problem: Problem, data_dir: Path, tmp_dir: str, options: Options) -> Job:
    """Returns the Job of a run. If the user supplied a vocabulary, loads it and sets vocab_size to
    its size.

    A problem of tensor2tensor may have a vocabulary file in the data directory, which is used in
    the same way.

    Raises UserError if the vocabulary is damaged or lacks the problem's symbols, if the directory
    has data that was made with --vocab_file, but the user did not give --vocab_file, or if the run
    would overwrite or delete a file from which the problem reads its text.
    """
    vocabulary = None
    settings = problem.settings
    # The data, and so the Job, is that of the other direction.
    if problem.was_reversed and options.source_vocab_file:
        options = dataclasses.replace(
            options,
            vocab_file=options.source_vocab_file,
            source_vocab_file=options.vocab_file,
        )
    t2t_sources, t2t_targets = (data_dir / name for name in problem.t2t_vocabularies)
    if options.vocab_file:
        vocabulary = load_vocabulary(options.vocab_file)
        if options.source_vocab_file:
            vocabulary = vocabulary.with_sources(load_vocabulary(options.source_vocab_file))
        tags = [symbol for symbol in problem.symbols if is_tag(symbol)]
        symbols = [symbol for symbol in problem.symbols if not is_tag(symbol)]
        missing = [tag for tag in tags if tag not in vocabulary.tags]
        missing += vocabulary.missing_symbols(symbols)
        if missing:
            raise UserError(
                f"--vocab_file={options.vocab_file}: lacks {len(missing)} of the "
                f"{len(problem.symbols)} symbols of problem {problem.name}, for example "
                f"{missing[0]}; use a vocabulary learned with these symbols"
            )
    elif not problem.learns_vocabulary or (t2t_sources.is_file() and t2t_targets.is_file()):
        vocabulary = load_vocabularies(data_dir, t2t_targets.name, t2t_sources.name)
        if settings.vocab_size not in (type(problem)({}).settings.vocab_size, vocabulary.size):
            raise UserError(
                f"--vocab_size={settings.vocab_size} has no effect, because {t2t_targets} "
                "determines the size; omit it, or choose another --data_dir to learn a vocabulary"
            )
    if vocabulary and settings.separate_vocabularies:
        raise UserError(
            f"--separate_vocabularies: has no effect with the vocabulary {vocabulary.source}; "
            "omit it, and name the vocabulary of the sources with --source_vocab_file"
        )
    if vocabulary:
        settings = dataclasses.replace(settings, vocab_size=vocabulary.size)
    job = Job(problem, settings, data_dir, tmp_dir, options, vocabulary)
    if job.existing_description and job.existing_description.vocabulary_given and not vocabulary:
        raise UserError(
            f"{data_dir}: its vocabulary of {job.name} came from --vocab_file; run t2t-datagen "
            "with that --vocab_file to keep it, or choose another --data_dir to learn one"
        )
    _refuse_to_overwrite_sources(job)
    return job


def source_files(problem: Problem) -> list[Input]:
    """Returns the existing files that the problem's settings name, and `Problem.source_files`.

    A setting can name a file, several files separated by commas, or a folder of files. Labels, such
    as the names of languages, name no files.
    """
    files: list[Input] = [*problem.source_files()]
    for field in dataclasses.fields(problem.settings):
        value = getattr(problem.settings, field.name)
        if isinstance(value, str) and not field.metadata.get("is_label"):
            # A name may itself contain commas.
            for name in {value, *map(str.strip, value.split(","))} - {""}:
                paths = Path(name).iterdir() if os.path.isdir(name) else [Path(name)]
                files += [(f"--{field.name}", path) for path in paths]
    return [(flag, path) for flag, path in files if os.path.isfile(path)]


def _refuse_to_overwrite_sources(job: Job) -> None:
    """Raises UserError if a file from which the problem reads its text is one that the run writes
    or deletes.
    """
    outputs = [job.description_path, *test_set_files.all_paths(job.problem, job.data_dir)]
    for name in (summary.FILE_NAME, job.vocabulary_name, job.source_vocabulary_name):
        outputs.append(job.data_dir / name)
    for split in SPLITS:
        outputs += records.find_files(job.data_dir, job.name, split)
    refuse_overwriting("--data_dir", outputs, source_files(job.problem))


def refuse_to_replace(job: Job) -> None:
    """Raises UserError if the data directory has shards or a description of the problem."""
    reason = "from another text, with another vocabulary or by another program"
    old_settings = job.existing_description.settings if job.existing_description else {}
    labels = {
        field.name for field in dataclasses.fields(job.settings) if field.metadata.get("is_label")
    }
    for name, old_value in old_settings.items():
        if name not in labels and (value := getattr(job.settings, name, old_value)) != old_value:
            reason = f"with --{name}={old_value}, not {value}"
    if (
        any(records.find_files(job.data_dir, job.name, split) for split in SPLITS)
        or job.description_path.exists()
    ):
        raise UserError(
            f"{job.data_dir}: holds data of problem {job.name} that was made {reason}; run "
            "t2t-datagen with --overwrite to replace that data, or give another --data_dir to "
            "keep it"
        )
