"""An Apache Beam pipeline that translates corpora of millions of lines.

The pipeline reads the input once, in order, and cuts it into batches of lines. A worker translates a batch and writes
it as a shard, whose name is the batch's position in the input. So the shards need no sorting. If a runner repeats a
batch, or gives it to two workers, they write the same file.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import logging
import re
import sys
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from t2t_repro import registry
from t2t_repro.decoding.output import finish_translations, text_line
from t2t_repro.decoding.translation import InputFile
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams
from t2t_repro.model_folder import open_folders
from t2t_repro.problem import Problem
from t2t_repro.textfile import decode_lines

COUNTERS = ("lines", "shards", "translated in segments", "truncated")
"""Names of the counters that Beam sums over all workers."""
EXISTING = "existing shards"
"""Name of the counter of shards that a resumed run skips."""


@dataclass(frozen=True)
class Job:
    """The settings of a run, which each worker receives."""

    output_dir: str
    """The model folder, or several separated by commas; see `open_folders`."""
    checkpoints: str
    """A checkpoint for each model folder, separated by commas."""
    decode_hparams: DecodeHParams
    """How to decode, and which columns to write."""
    decode_to_file: str
    """Prefix of the shards' paths."""
    long_lines: str = "split"
    """Treatment of long lines; see `Translator.translate`."""
    t2t_usr_dir: str = ""
    """Folder of the user's problems and models."""
    resume: bool = False
    """True to skip batches whose shards exist."""


@dataclass(frozen=True)
class LineBatch:
    """Consecutive lines of a file, whose translations become a shard."""

    path: str
    file_number: int
    """Index of the file among the input files, from 0."""
    first_line: int
    """Number of the first line in the file, from 0."""
    lines: list[str]


@dataclass(frozen=True)
class LoadedModel:
    """A model and its problem, loaded once per process."""

    translator: Translator
    problem: Problem


class Translate(beam.DoFn):
    """Translates a `LineBatch`, writes its shard and yields the shard's name."""

    def __init__(self, job: Job) -> None:
        self._job, self._shared = job, Shared()

    def setup(self) -> None:
        """Loads the model, unless another thread of the process has loaded it."""
        self._loaded = self._shared.acquire(lambda: load(self._job))

    def process(self, batch: LineBatch) -> Iterator[str]:
        """Translates a batch and writes its shard, unless the run is resumed and the shard exists."""
        shard = shard_name(self._job.decode_to_file, batch)
        if self._job.resume and match(shard):
            Metrics.counter(Translate, EXISTING).inc()
            yield shard
            return
        input_file = InputFile(batch.path, range(batch.first_line, batch.first_line + len(batch.lines)))
        stream = self._loaded.translator.stream(batch.lines, long_lines=self._job.long_lines, input_file=input_file)
        translations = [translation for _, translation in sorted(stream, key=lambda pair: pair[0])]
        finished, _ = finish_translations(self._loaded.problem, batch.lines, translations)
        write(shard, [text_line(translation.hypotheses, self._job.decode_hparams) for translation in finished])
        in_segments = sum(translation.segments > 1 for translation in translations)
        truncated = sum(translation.is_truncated for translation in translations)
        for name, count in zip(COUNTERS, (len(batch.lines), 1, in_segments, truncated), strict=True):
            Metrics.counter(Translate, name).inc(count)
        yield shard


def run(job: Job, paths: Sequence[str], batch_lines: int, options: Any) -> dict[str, int]:
    """Translates files, plain or .gz, into shards (see `shard_name`). Returns the counters that the runner reports.

    Args:
        paths: the input files, in order.
        batch_lines: lines per shard; the last shard of a file may have fewer.
        options: Beam's PipelineOptions.

    Raises UserError if a worker raises a UserError.
    """
    pipeline = beam.Pipeline(options=options)
    _ = (
        pipeline
        | "files" >> beam.Create(list(enumerate(paths)))
        | "read" >> beam.FlatMap(read_batches, batch_lines)
        | "spread" >> beam.Reshuffle()
        | "translate" >> beam.ParDo(Translate(job))
    )
    for name in ("common", "worker"):  # the error they would log is raised below
        logging.getLogger(f"apache_beam.runners.{name}").setLevel(logging.CRITICAL)
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:
        # A runner raises another error than the worker's. Its text contains the worker's message, either in a traceback
        # or followed by the name of the pipeline's step.
        message = re.search(r"UserError: (.+?)(?: \[while running|\\n|\n|$)", f"{type(error).__name__}: {error}")
        if message:
            raise UserError(message[1]) from None
        raise
    counts = {counter.key.metric.name: counter.result for counter in result.metrics().query()["counters"]}
    return {name: counts[name] for name in (*COUNTERS, EXISTING) if name in counts}


@contextlib.contextmanager
def unfinished(job: Job, paths: Sequence[str], batch_lines: int) -> Iterator[None]:
    """Marks the output as unfinished while the shards are written, by the file `decode_to_file`.unfinished.

    The file holds a fingerprint of everything that the shards depend on, so that a resumed run can recognize its
    shards. It is deleted when all shards exist, or when the run fails before it has written a shard.

    Raises UserError if shards of another run exist, or the file cannot be written.
    """
    path, shards = f"{job.decode_to_file}.unfinished", match(f"{job.decode_to_file}-*")
    # The fingerprint ignores batch_size and resume, which do not change translations.
    job = replace(job, decode_hparams=replace(job.decode_hparams, batch_size=1), resume=False)
    sizes = [FileSystems.match([input_path])[0].metadata_list[0].size_in_bytes for input_path in paths]
    fingerprint = hashlib.sha256(repr((job, list(paths), sizes, batch_lines)).encode()).hexdigest()
    if shards and list(read_lines(path) if match(path) else []) != [fingerprint]:
        raise UserError(
            f"{shards[0]} exists already and does not belong to an unfinished run with the same input, model and "
            "flags; delete the shards or choose another --decode_to_file"
        )
    write(path, [fingerprint])
    try:
        yield
    except BaseException:
        if not match(f"{job.decode_to_file}-*"):
            FileSystems.delete([path])
        raise
    FileSystems.delete([path])


def read_batches(numbered_path: tuple[int, str], batch_lines: int) -> Iterator[LineBatch]:
    """Yields the lines of a file, `batch_lines` at a time. (Beam's text source provides no line numbers.)

    Args:
        numbered_path: the index of the file in the input, and its path.

    Raises UserError if the file is missing, unreadable, damaged, or not UTF-8; the message names file and line.
    """
    file_number, path = numbered_path
    first_line, lines = 0, list[str]()
    for line in read_lines(path):
        lines.append(line)
        if len(lines) == batch_lines:
            yield LineBatch(path, file_number, first_line, lines)
            first_line, lines = first_line + batch_lines, []
    if lines:
        yield LineBatch(path, file_number, first_line, lines)


def read_lines(path: str) -> Iterator[str]:
    """Yields lines as `textfile.read_lines` does, from any file system that Beam can read."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
            file: Any = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw
            yield from decode_lines(file, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file ({error}); get it again") from None
    except (OSError, BeamIOError) as error:
        raise UserError(f"{path}: cannot be read ({_reason(error)})") from None


def load(job: Job) -> LoadedModel:
    """Loads a job's model and problem, after the user's modules."""
    usr_dir = Path(job.t2t_usr_dir).expanduser().resolve()
    if job.t2t_usr_dir and usr_dir.name not in sys.modules:
        registry.import_usr_dir(job.t2t_usr_dir)
    folders, checkpoints = open_folders(job.output_dir, job.checkpoints)
    decode_hparams = replace(job.decode_hparams, write_beam_scores=False)
    return LoadedModel(Translator.from_folders(folders, checkpoints, decode_hparams), folders[0].problem)


def shard_name(prefix: str, batch: LineBatch) -> str:
    """Returns the path of a batch's shard: PREFIX-FFFFF-NNNNNNNNNNNN.

    FFFFF is the index of the file, and NNNNNNNNNNNN the number of the batch's first line, both counted from 0. So
    sorted paths are in the order of the input.
    """
    return f"{prefix}-{batch.file_number:05d}-{batch.first_line:012d}"


def write(path: str, lines: Iterable[str]) -> None:
    """Writes lines to a file in any file system that Beam can write. A failure leaves no part of the file.

    Raises UserError if the file cannot be written.
    """
    folder, name = FileSystems.split(path)
    temporary = FileSystems.join(folder, f".{name}.{uuid.uuid4().hex}")
    try:
        with FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
        FileSystems.rename([temporary], [path])
    except (OSError, BeamIOError) as error:
        with contextlib.suppress(OSError, BeamIOError):
            FileSystems.delete([temporary])
        raise UserError(
            f"{path}: cannot be written ({_reason(error)}); free space or choose another --decode_to_file"
        ) from None


def match(pattern: str) -> list[str]:
    """Returns the files that match a pattern such as "x-*.en", in the order of their names."""
    try:
        (result,) = FileSystems.match([pattern])
    except BeamIOError:
        return []
    return sorted(metadata.path for metadata in result.metadata_list)


def _reason(error: Exception) -> str:
    """Returns the error's message in one line."""
    return " ".join(str(getattr(error, "strerror", None) or error).split())
