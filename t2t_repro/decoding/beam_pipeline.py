"""Corpora of millions of lines: an Apache Beam pipeline in which each file of output is a run of lines of the input.

The input is read once, in order, and cut into batches. Whichever worker gets a batch translates it and writes the
shard that is named by the batch's place. So nothing has to be sorted, and a batch that a runner tries twice, or gives
to two workers, ends as the same file.
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
from t2t_repro.decoding.output import finished, text_line
from t2t_repro.decoding.translator import Translation, Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams
from t2t_repro.model_folder import open_folders
from t2t_repro.problem import Problem
from t2t_repro.textfile import decode_lines

COUNTERS = ("lines", "shards", "translated in pieces", "truncated")
"""What is counted over all workers."""
KEPT = "shards that were there"
"""The same, where a run goes on."""


@dataclass(frozen=True)
class Job:
    """All that a worker has to know."""

    output_dir: str
    """The model folder, or several; see `open_folders`."""
    checkpoints: str
    """A checkpoint of each."""
    decode_hparams: DecodeHParams
    """How to search, and what to write."""
    decode_to_file: str
    """What shards' names begin with."""
    long_lines: str = "split"
    """See `Translator.translate`."""
    t2t_usr_dir: str = ""
    """Folder of the user's own problems and models."""
    resume: bool = False
    """Whether shards that are there stay as they are."""


@dataclass(frozen=True)
class Batch:
    """Lines that follow each other in a file."""

    path: str
    """The file."""
    file: int
    """Which of the files it is, from 0."""
    first: int
    """Number of the first line in the file, from 0."""
    lines: list[str]
    """One or more."""


@dataclass(frozen=True)
class Loaded:
    """A model, ready, once in each process."""

    translator: Translator
    problem: Problem


class Translate(beam.DoFn):
    """Batch -> the name of the shard that it has become."""

    def __init__(self, job: Job) -> None:
        self._job, self._shared = job, Shared()

    def setup(self) -> None:
        """Loads the model, unless another thread of the process has it."""
        self._loaded = self._shared.acquire(lambda: load(self._job))

    def process(self, batch: Batch) -> Iterator[str]:
        """Translates and writes a batch."""
        shard = shard_name(self._job.decode_to_file, batch)
        if self._job.resume and match(shard):
            Metrics.counter(Translate, KEPT).inc()
            yield shard
            return
        translations = translate(self._loaded.translator, batch, self._job.long_lines)
        write(shard, output_lines(self._loaded.problem, batch, translations, self._job.decode_hparams))
        in_pieces = sum(each.pieces > 1 for each in translations)
        truncated = sum(each.is_truncated for each in translations)
        for name, count in zip(COUNTERS, (len(batch.lines), 1, in_pieces, truncated), strict=True):
            Metrics.counter(Translate, name).inc(count)
        yield shard


def run(job: Job, paths: Sequence[str], batch_lines: int, options: Any) -> dict[str, int]:
    """Translates files into shards DECODE_TO_FILE-FFFFF-NNNNNNNNNNNN: file F from line N on, both counted from 0.

    Args:
        paths: the files, plain or .gz, in their order.
        batch_lines: how many lines a shard has; the last of a file has the rest.
        options: apache_beam's PipelineOptions.

    Returns:
        The counters, as far as the runner keeps them.

    Raises:
        UserError: whatever a worker has met that the user can mend.
    """
    pipeline = beam.Pipeline(options=options)
    _ = (
        pipeline
        | "files" >> beam.Create(list(enumerate(paths)))
        | "read" >> beam.FlatMap(read_batches, batch_lines)
        | "spread" >> beam.Reshuffle()
        | "translate" >> beam.ParDo(Translate(job))
    )
    for name in ("common", "worker"):  # what fails in a worker comes here too, with its traceback
        logging.getLogger(f"apache_beam.runners.{name}").setLevel(logging.CRITICAL)
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:
        # A worker's error comes as the text of its traceback, or with the step's name behind it.
        found = re.search(r"UserError: (.+?)(?: \[while running|\\n|\n|$)", f"{type(error).__name__}: {error}")
        if found:
            raise UserError(found[1]) from None
        raise
    counts = {each.key.metric.name: each.result for each in result.metrics().query()["counters"]}
    return {name: counts[name] for name in (*COUNTERS, KEPT) if name in counts}


@contextlib.contextmanager
def unfinished(job: Job, paths: Sequence[str], batch_lines: int) -> Iterator[None]:
    """Keeps a file beside the shards, until all are there, that says what they depend on.

    Raises:
        UserError: shards are there, and it is no resume, or they are of another run; or it cannot be written.
    """
    place, old = f"{job.decode_to_file}.unfinished", match(f"{job.decode_to_file}-*")
    search = replace(job.decode_hparams, batch_size=1)  # which changes no translation
    job = replace(job, decode_hparams=search, resume=False)
    sizes = [FileSystems.match([path])[0].metadata_list[0].size_in_bytes for path in paths]
    settings = hashlib.sha256(repr((job, list(paths), sizes, batch_lines)).encode()).hexdigest()
    if old and list(read_lines(place) if match(place) else []) != [settings]:
        raise UserError(
            f"{old[0]}: is there already, and not of an unfinished run of the same input, model and flags; delete the "
            "shards, or choose another --decode_to_file"
        )
    write(place, [settings])
    try:
        yield
    except BaseException:
        if not match(f"{job.decode_to_file}-*"):
            FileSystems.delete([place])
        raise
    FileSystems.delete([place])


def read_batches(file_and_path: tuple[int, str], batch_lines: int) -> Iterator[Batch]:
    """The lines of a file, `batch_lines` at a time.

    Beam's own reading of text does not say which line of its file a line is.

    Args:
        file_and_path: which of the files it is, from 0, and the file.

    Raises:
        UserError: the file is missing, unreadable, damaged, or not UTF-8; the message names file and line.
    """
    file, path = file_and_path
    first, lines = 0, list[str]()
    for line in read_lines(path):
        lines.append(line)
        if len(lines) == batch_lines:
            yield Batch(path, file, first, lines)
            first, lines = first + batch_lines, []
    if lines:
        yield Batch(path, file, first, lines)


def read_lines(path: str) -> Iterator[str]:
    """As `textfile.read_lines`, from any place that Beam can read."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
            file: Any = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw
            yield from decode_lines(file, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file ({error}); get it again") from None
    except (OSError, BeamIOError) as error:
        raise UserError(f"{path}: cannot be read ({_reason(error)})") from None


def load(job: Job) -> Loaded:
    """The model of a job."""
    usr_dir = Path(job.t2t_usr_dir).expanduser().resolve()
    if job.t2t_usr_dir and usr_dir.name not in sys.modules:
        registry.import_usr_dir(job.t2t_usr_dir)
    folders, checkpoints = open_folders(job.output_dir, job.checkpoints)
    search = replace(job.decode_hparams, write_beam_scores=False)
    return Loaded(Translator.from_folders(folders, checkpoints, search), folders[0].problem)


def translate(translator: Translator, batch: Batch, long_lines: str) -> list[Translation]:
    """The translation of each line; what is drawn depends on the line's number in its file alone."""
    numbers = range(batch.first, batch.first + len(batch.lines))
    found = dict(translator.stream(batch.lines, long_lines=long_lines, numbers=numbers, source=batch.path))
    return [found[place] for place in range(len(batch.lines))]


def output_lines(
    problem: Problem, batch: Batch, translations: Sequence[Translation], params: DecodeHParams
) -> list[str]:
    """What is written for each line: the same as t2t-decoder writes."""
    done, _ = finished(problem, batch.lines, translations)
    return [text_line(each.hypotheses, params) for each in done]


def shard_name(prefix: str, batch: Batch) -> str:
    """The file that a batch becomes; in the order of their names shards are in the order of the input."""
    return f"{prefix}-{batch.file:05d}-{batch.first:012d}"


def write(path: str, lines: Iterable[str]) -> None:
    """Writes a file that appears whole or not at all, wherever Beam can write.

    Raises:
        UserError: it cannot be written.
    """
    folder, name = FileSystems.split(path)
    beside = FileSystems.join(folder, f".{name}.{uuid.uuid4().hex}")
    try:
        with FileSystems.create(beside, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
        FileSystems.rename([beside], [path])
    except (OSError, BeamIOError) as error:
        with contextlib.suppress(OSError, BeamIOError):
            FileSystems.delete([beside])
        raise UserError(
            f"{path}: cannot be written ({_reason(error)}); free space or choose another --decode_to_file"
        ) from None


def match(pattern: str) -> list[str]:
    """The files that a pattern such as "x-*.en" names, in the order of their names; none where there are none."""
    try:
        (found,) = FileSystems.match([pattern])
    except BeamIOError:
        return []
    return sorted(each.path for each in found.metadata_list)


def _reason(error: Exception) -> str:
    """One line."""
    return " ".join(str(getattr(error, "strerror", None) or error).split())
