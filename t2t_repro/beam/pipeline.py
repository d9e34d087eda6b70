"""An Apache Beam pipeline that translates corpora of millions of lines.

The pipeline reads the input once, in order, and cuts it into batches of lines. A worker translates
a batch and writes the translations to a file, the batch's shard. The shard's name contains the
number of the batch's first line, so shards sorted by name are in the order of the input. If Beam
processes a batch twice, both shards have the same name.
"""

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import DirectOptions

from t2t_repro import registry
from t2t_repro.beam.files import local_export, local_models, match, read_lines, write
from t2t_repro.checkpoints.model_folder import open_folders
from t2t_repro.console.quiet import redirected_errors
from t2t_repro.corpora import augmented
from t2t_repro.decoding.augmentation import write_shard
from t2t_repro.decoding.output import finish_translations, json_line, refuse_diverged, text_line
from t2t_repro.decoding.translation import InputFile
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError, shortened
from t2t_repro.files.output_files import only_writer, refuse_overwriting
from t2t_repro.files.untrusted import parse_json
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import Problem

LINES = "lines"
SHARDS = "shards"
EXISTING = "existing shards"
IN_SEGMENTS = "translated in segments"
TRUNCATED = "truncated"
COUNTERS = (LINES, SHARDS, EXISTING, IN_SEGMENTS, TRUNCATED)
"""Names of the counters of `translate`, which Beam sums over all workers."""
SETTINGS = ".settings"
"""Suffix of the file beside the shards that has a hash of everything that they depend on."""
JSONL = re.compile(r"\.jsonl(\.(gz|bz2|xz))?$")
OS_ERROR = "(?:OS|FileNotFound|Permission|Timeout|Connection|ConnectionRefused)Error"
_LOADING = threading.RLock()
"""Held while a thread loads the model or the user's modules, so that the threads of a process share
them.
"""


@dataclass(frozen=True)
class BeamJob:
    """The settings of a pipeline run, which Beam sends to each worker. The docs of the flags
    describe them.
    """

    output_dir: str
    checkpoints: str
    """Path of a checkpoint for each model folder, separated by commas."""
    decode_hparams: DecodeHParams
    decode_to_file: str
    """Beginning of the shards' paths; see `shard_name`."""
    long_lines: str = "split"
    t2t_usr_dir: str = ""
    resume: bool = False
    engine: str = "tensorflow"
    precision: str = "float32"
    """Type of the weights, by the engine's own name for it."""
    target_language: str = ""
    output_format: str = "text"
    export_dir: str = ""
    """Path of a version of an exported model, which is used in place of model folders; "" for none.
    """


class LineBatch(NamedTuple):
    """Consecutive lines of an input file, whose translations are written to one shard."""

    path: str
    file_number: int
    """Index of the file among the input files, from 0."""
    first_line: int
    """Line number of the batch's first line in the file, from 0."""
    lines: list[str]


def translate(batch: LineBatch, job: BeamJob) -> dict[str, int]:
    """Translates a batch and writes its shard. Returns values of counters. A resumed run keeps
    existing shards.
    """
    shard = shard_name(job.decode_to_file, batch)
    if job.resume and match(shard):
        return {EXISTING: 1}
    translator, problem = load(job)
    is_detailed = job.output_format == "jsonl"
    texts, prefixes = inputs_of(batch)
    translations = translator.translate(
        texts,
        prefixes,
        target_language=job.target_language,
        long_lines=job.long_lines,
        input_file=_place(batch),
        details=is_detailed,
        scores=is_detailed or job.decode_hparams.write_beam_scores,
    )
    refuse_diverged(translation.score for translation in translations)
    finished, _ = finish_translations(problem, texts, translations)
    lines = []
    for text, translation in zip(texts, finished, strict=True):
        if is_detailed:
            line = json_line(text, translation, translator.vocabulary, has_attention=False)
        else:
            line = text_line(translation.hypotheses, job.decode_hparams)
        lines.append(line)
    write(shard, lines)
    return {
        LINES: len(batch.lines),
        SHARDS: 1,
        IN_SEGMENTS: sum(translation.segments > 1 for translation in translations),
        TRUNCATED: sum(translation.is_truncated for translation in translations),
    }


def augment(
    batch: LineBatch, job: BeamJob, folder: str, settings: dict[str, Any]
) -> dict[str, int]:
    """Translates a batch and writes its shard of the corpus of t2t-augment, unless it exists.
    Returns its counts.

    `folder` is the folder of the corpus, and `settings` is the field of its `Augmentation`. If a
    line can have several outputs, an existing shard does not show how many were dropped, so it is
    replaced.
    """
    path = augmented.shard_path(folder, batch.first_line // settings["shard_lines"])
    if path.exists() and job.decode_hparams.n == 1:
        pairs = sum(1 for _ in read_lines(str(path)))
        return {"pairs": pairs, "dropped": len(batch.lines) - pairs}
    counts = write_shard(path, *load(job), batch.lines, _place(batch), settings)
    return dict(zip(("pairs", "dropped"), counts, strict=True))


def _place(batch: LineBatch) -> InputFile:
    return InputFile(batch.path, range(batch.first_line, batch.first_line + len(batch.lines)))


def load(job: BeamJob) -> tuple[Any, Problem]:
    """Returns the model, a `Translator` or an `ExportedModel`, and the problem, which all threads
    of a process share.

    Imports the user's modules, which may define both. The outputs of an export are finished, like
    those of t2t_text.
    """
    with _LOADING:
        return _load(job)


@functools.cache
def _load(job: BeamJob) -> tuple[Any, Problem]:
    if job.export_dir:
        from t2t_repro import devices
        from t2t_repro.serving.exported import ExportedModel

        devices.use_one_gpu()
        return ExportedModel(local_export(job.export_dir)), registry.problem("t2t_text")
    import_usr_dir(job.t2t_usr_dir)
    folders, checkpoints = open_folders(*local_models(job.output_dir, job.checkpoints))
    if job.engine == "tensorflow":
        from t2t_repro import devices

        devices.use_one_gpu()
    translator = Translator.from_folders(
        folders, checkpoints, job.decode_hparams, job.precision, job.engine
    )
    return translator, folders[0].problem


def import_usr_dir(directory: str) -> None:
    """Imports the user's modules, once in a process."""
    with _LOADING:
        if directory and Path(directory).resolve().name not in sys.modules:
            registry.import_usr_dir(directory)


Step = Callable[..., dict[str, int]]
"""`translate` or `augment`."""


def run(
    step: Step, arguments: Sequence[Any], paths: Sequence[str], batch_lines: int, options: Any
) -> dict[str, int]:
    """Calls step(batch, *arguments) for each batch of lines of files. Returns the sums of what it
    returns, by name.

    Raises UserError if a worker raises one, for example because an input file is damaged. `options`
    are Beam's PipelineOptions.
    """
    files = beam.Create(list(enumerate(paths)))
    batches = files | beam.FlatMap(read_batches, batch_lines) | beam.Reshuffle()
    return run_pipeline(batches | "translate" >> beam.Map(_count, step, arguments), options)


def _count(batch: LineBatch, step: Step, arguments: Sequence[Any]) -> None:
    for name, count in step(batch, *arguments).items():
        Metrics.counter(__name__, name).inc(count)


def run_pipeline(steps: beam.PTransform, options: Any) -> dict[str, int]:
    """Runs the steps of a pipeline. Returns the values of its counters by name; see `run`. A runner
    may have none.
    """
    pipeline = beam.Pipeline(options=options)
    _ = pipeline | steps
    for name in ("common", "worker"):  # these loggers would also log the error that is raised below
        logging.getLogger(f"apache_beam.runners.{name}").setLevel(logging.CRITICAL)
    has_processes = options.view_as(DirectOptions).direct_running_mode == "multi_processing"
    try:  # each process would log some 100 lines, which no option of Beam limits
        with (
            open(os.devnull, "wb") as nowhere,
            redirected_errors(nowhere) if has_processes else nullcontext(),
        ):
            result = pipeline.run()
            result.wait_until_finish()
    except Exception as error:
        # If a worker raises UserError, Beam raises an error of another class. The text of Beam's
        # error contains the worker's message, followed by the end of the line or by "[while
        # running" and the name of the pipeline step.
        text = f"{type(error).__name__}: {error}"
        for kind, beginning in (("UserError", ""), (OS_ERROR, "a worker failed: ")):
            if message := re.search(rf"\b{kind}: (.+?)(?: \[while running|\\n|\n|$)", text):
                raise UserError(beginning + message[1]) from None
        if "job server jar" in str(error):  # the runner needs a download
            raise UserError(f"--beam_options: {shortened(str(error), 250)}") from None
        raise
    with contextlib.suppress(NotImplementedError):  # Beam's DaskRunner has no counters
        counters = result.metrics().query(MetricsFilter().with_namespace(__name__))["counters"]
        return {counter.key.metric.name: counter.result for counter in counters}
    return {}


@contextlib.contextmanager
def same_run(
    job: BeamJob, models: Sequence[tuple], paths: Sequence[str], batch_lines: int
) -> Iterator[None]:
    """Writes the file `decode_to_file`.settings: a hash of everything that the shards depend on.

    By this file, a resumed run recognizes its shards. It stays beside them. On a local file system,
    a lock refuses a second run in the `with` block.

    Raises UserError if shards of another run exist, or the run would overwrite one of its input
    files `paths`.
    """
    path = f"{job.decode_to_file}{SETTINGS}"
    is_local = "://" not in job.decode_to_file
    with only_writer(Path(job.decode_to_file), "--decode_to_file") if is_local else nullcontext():
        expected = fingerprint(job, models, paths, batch_lines)
        existing = shards(job.decode_to_file)
        refuse_overwriting(
            "--decode_to_file", [path, *existing], [("--decode_from_file", path) for path in paths]
        )
        cure = "delete it, or choose another --decode_to_file"
        settings = next(read_lines(path), "") if match(path) else None
        is_foreign = settings is not None and not re.fullmatch("[0-9a-f]{64}", settings)
        if is_foreign or (existing and settings != expected):
            file = path if is_foreign else existing[0]
            raise UserError(f"{file} exists already and belongs to another run; {cure}")
        if existing and not job.resume:
            raise UserError(f"{existing[0]} exists already; continue with --resume, or {cure}")
        if settings != expected:
            write(path, [expected])
        try:
            yield
        finally:
            if not shards(job.decode_to_file):
                FileSystems.delete([path])


def fingerprint(
    job: BeamJob, models: Sequence[tuple], paths: Sequence[str], batch_lines: int
) -> str:
    """Returns a hash of everything that the shards depend on. `models` has `ModelFolder.identity`
    of each model.
    """
    # batch_size and resume do not change translations, so both get fixed values. `models` stands
    # for the paths.
    search = replace(job.decode_hparams, batch_size=1)
    job = replace(
        job, output_dir="", checkpoints="", export_dir="", decode_hparams=search, resume=False
    )
    facts = (job, models, list(map(_content, paths)), batch_lines)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _content(path: str) -> str:
    """Returns a checksum of a file's content, as the file system stores it or, of a local file, by
    reading it.
    """
    if "://" in path:
        return FileSystems.checksum(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_batches(numbered_path: tuple[int, str], batch_lines: int) -> Iterator[LineBatch]:
    """Yields a file's lines in batches of `batch_lines`. (Beam's own text source provides no line
    numbers.)

    `numbered_path` is (index of the file among the input files, path of the file).
    """
    file_number, path = numbered_path
    lines = read_lines(path)
    first_line = 0
    while batch := list(itertools.islice(lines, batch_lines)):
        yield LineBatch(path, file_number, first_line, batch)
        first_line += len(batch)


def inputs_of(batch: LineBatch) -> tuple[list[str], list[str]]:
    """Returns the texts of a batch, and the required beginnings of their outputs, which only a
    .jsonl file can have.

    A line of such a file is a JSON object with the text under "source", and its beginning under
    "prefix". UserError if a line is another.
    """
    if not JSONL.search(batch.path):
        return batch.lines, []
    rows = []
    cure = 'write {"source": TEXT} or {"source": TEXT, "prefix": TEXT}'
    for number, line in enumerate(batch.lines, batch.first_line + 1):
        row = parse_json(line, f"{batch.path}:{number}", cure)
        sides = [row.get("source"), row.get("prefix", "")] if isinstance(row, dict) else []
        texts = [side.replace("\n", " ") for side in sides if isinstance(side, str)]
        if len(texts) != 2:
            raise UserError(f"{batch.path}:{number}: {cure}")
        rows.append(texts)
    sources, prefixes = map(list, zip(*rows, strict=True))
    return sources, prefixes if any(prefixes) else []


def shard_name(prefix: str, batch: LineBatch) -> str:
    """Returns the path of a batch's shard: PREFIX-FFFFF-NNNNNNNNNNNN, with the numbers of the file
    and the line.
    """
    return f"{prefix}-{batch.file_number:05d}-{batch.first_line:012d}"


def shards(prefix: str) -> list[str]:
    """Returns the sorted paths of all shards that exist; see `shard_name`."""
    end = re.compile("-[0-9]{5,}-[0-9]{12,}")
    return [path for path in match(f"{prefix}-*") if end.fullmatch(path[len(prefix) :])]


def input_files(path: str) -> list[str]:
    """Returns the sorted paths of the files that match a pattern, or `path` itself if a file has
    this name.
    """
    paths = match(path)
    return [path] if FileSystems.exists(path) else paths
