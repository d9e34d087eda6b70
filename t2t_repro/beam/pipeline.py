"""An Apache Beam pipeline that translates corpora of millions of lines.

The pipeline reads the input once, in order, and cuts it into batches of lines. A worker translates a batch and writes
the translations to a file, the batch's shard. The shard's name contains the number of the batch's first line, so shards
sorted by name are in the order of the input. If Beam processes a batch twice, both shards have the same name.
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
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from t2t_repro import devices, registry
from t2t_repro.checkpoints.model_folder import open_folders, split_paths, written_times
from t2t_repro.decoding.output import finish_translations, text_line
from t2t_repro.decoding.translation import InputFile
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import UNFINISHED, only_writer, refuse_overwriting
from t2t_repro.files.textfile import decode_lines
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import Problem

COUNTERS = ("lines", "shards", "translated in segments", "truncated")
"""Names of the counters that Beam sums over all workers."""
EXISTING = "existing shards"
"""Name of the counter of batches that a resumed run skips because their shards exist."""


@dataclass(frozen=True)
class BeamJob:
    """The settings of a pipeline run, which Beam sends to each worker."""

    output_dir: str
    """Path of the model folder. Several paths, separated by commas, make an ensemble."""
    checkpoints: str
    """Path of a checkpoint for each model folder, separated by commas."""
    decode_hparams: DecodeHParams
    """Settings of the search. `n` and `write_beam_scores` also decide which columns a shard has."""
    decode_to_file: str
    """Beginning of the shards' paths; see `shard_name`."""
    long_lines: str = "split"
    """Treatment of lines that are too long for the model: "split", "truncate" or "error"."""
    t2t_usr_dir: str = ""
    """Folder with Python modules that define the user's problems and models; empty for none."""
    resume: bool = False
    """True to skip batches whose shards an earlier run has written."""
    precision: str = "float32"
    """Dtype of weights and matrix products: "float32" or "bfloat16"."""


@dataclass(frozen=True)
class LineBatch:
    """Consecutive lines of an input file, whose translations are written to one shard."""

    path: str
    file_number: int
    """Index of the file among the input files, from 0."""
    first_line: int
    """Line number of the batch's first line in the file, from 0."""
    lines: list[str]


@dataclass(frozen=True)
class LoadedModel:
    """A model and its problem, loaded once per process. (Beam shares it by a weak reference, which tuples lack.)"""

    translator: Translator
    problem: Problem


class Translate(beam.DoFn):
    """The pipeline step that translates a `LineBatch`, writes its shard and yields the shard's path."""

    def __init__(self, job: BeamJob) -> None:
        self._job, self._shared = job, Shared()

    def setup(self) -> None:
        """Loads the model, unless another thread of this process has already loaded it."""
        self._loaded = self._shared.acquire(lambda: load(self._job))

    def process(self, batch: LineBatch) -> Iterator[str]:
        """Translates a batch, writes its shard and yields the shard's path. A resumed run keeps existing shards."""
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


def run(job: BeamJob, paths: Sequence[str], batch_lines: int, options: Any) -> dict[str, int]:
    """Translates plain or .gz files and writes shards (see `shard_name`). Returns the values of the counters by name.

    Args:
        paths: the input files, in order.
        batch_lines: lines per shard; the last shard of a file may have fewer.
        options: Beam's PipelineOptions.

    Raises UserError if a worker raises one, for example because an input file is damaged.
    """
    pipeline = beam.Pipeline(options=options)
    _ = (
        pipeline
        | "files" >> beam.Create(list(enumerate(paths)))
        | "read" >> beam.FlatMap(read_batches, batch_lines)
        | "spread" >> beam.Reshuffle()
        | "translate" >> beam.ParDo(Translate(job))
    )
    for name in ("common", "worker"):  # these loggers would also log the error that is raised below
        logging.getLogger(f"apache_beam.runners.{name}").setLevel(logging.CRITICAL)
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:
        # If a worker raises UserError, Beam raises an error of another class. The text of Beam's error contains the
        # worker's message, followed by the end of the line or by "[while running" and the name of the pipeline step.
        message = re.search(r"UserError: (.+?)(?: \[while running|\\n|\n|$)", f"{type(error).__name__}: {error}")
        if message:
            raise UserError(message[1]) from None
        raise
    counts = {counter.key.metric.name: counter.result for counter in result.metrics().query()["counters"]}
    return {name: counts[name] for name in (*COUNTERS, EXISTING) if name in counts}


def refuse_overlap(job: BeamJob, pattern: str, paths: Sequence[str]) -> None:
    """Raises UserError if the run would overwrite one of its input files `paths`, or if `pattern` matches an output."""
    outputs = [f"{job.decode_to_file}{UNFINISHED}", *shards(job.decode_to_file)]
    refuse_overwriting("--decode_to_file", outputs, [("--decode_from_file", path) for path in paths])
    for output in (outputs[0], shard_name(job.decode_to_file, LineBatch("", 0, 0, []))):
        if re.fullmatch(FileSystem.translate_pattern(pattern), output):
            raise UserError(
                f"--decode_from_file={pattern} also matches the output {output}; choose another --decode_to_file"
            )


@contextlib.contextmanager
def unfinished(job: BeamJob, paths: Sequence[str], batch_lines: int) -> Iterator[None]:
    """Writes the file `decode_to_file`.unfinished, and deletes it when the `with` block has written all shards.

    The file holds a hash of everything that the shards depend on, so that a resumed run can recognize its shards. If
    the block fails after it has written a shard, the file remains. If `decode_to_file` is on a local file system, a
    lock prevents other runs with the same `decode_to_file` during the block.

    Raises UserError if shards of another run exist, another run is writing them, or the file cannot be written.
    """
    path, is_local = f"{job.decode_to_file}{UNFINISHED}", "://" not in job.decode_to_file
    with only_writer(Path(job.decode_to_file), "--decode_to_file") if is_local else contextlib.nullcontext():
        run_fingerprint = fingerprint(job, paths, batch_lines)
        refuse_other_shards(path, job, run_fingerprint)
        write(path, [run_fingerprint])
        try:
            yield
        except BaseException:
            if not shards(job.decode_to_file):
                FileSystems.delete([path])
            raise
        FileSystems.delete([path])


def refuse_other_shards(path: str, job: BeamJob, expected: str) -> None:
    """Raises UserError if shards exist that the run with the fingerprint `expected` did not write.

    Args:
        path: the file with the fingerprint of an interrupted run, if it exists.
    """
    old_lines = list(read_lines(path)) if match(path) else []
    if old_lines and not re.fullmatch("[0-9a-f]{64}", old_lines[0]):  # such as a journal of t2t-decoder
        raise UserError(f"{path}: not a file of t2t-translate-beam; move it away or choose another --decode_to_file")
    if existing := shards(job.decode_to_file):
        cure = "delete the shards or choose another --decode_to_file"
        if old_lines != [expected]:
            raise UserError(f"{existing[0]} exists already and does not belong to an unfinished run like this; {cure}")
        if not job.resume:
            raise UserError(f"{existing[0]} exists already; continue with --resume, or {cure}")


def fingerprint(job: BeamJob, paths: Sequence[str], batch_lines: int) -> str:
    """Returns a hash of everything that the shards depend on."""
    # batch_size and resume do not change translations, so both get fixed values.
    job = replace(job, decode_hparams=replace(job.decode_hparams, batch_size=1), resume=False)
    sizes = [FileSystems.get_filesystem(input_path).size(input_path) for input_path in paths]
    written = written_times(split_paths(job.checkpoints))
    return hashlib.sha256(repr((job, list(paths), sizes, batch_lines, written)).encode()).hexdigest()


def read_batches(numbered_path: tuple[int, str], batch_lines: int) -> Iterator[LineBatch]:
    """Yields a file's lines in batches of `batch_lines`. (Beam's own text source provides no line numbers.)

    Args:
        numbered_path: (index of the file among the input files, path of the file).

    Raises UserError if the file is missing, unreadable, damaged, or not UTF-8; the message names the file.
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
    """Yields the lines of a plain or .gz file, without line ends, from any file system that Beam can read."""
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw:
            file: Any = gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw
            yield from decode_lines(file, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cut off or damaged gzip file ({error}); get it again") from None
    except (OSError, BeamIOError) as error:
        raise UserError(f"{path}: cannot be read ({_reason(error)})") from None


def load(job: BeamJob) -> LoadedModel:
    """Imports the user's modules, which may define the model and the problem, and returns the model and the problem."""
    usr_dir = Path(job.t2t_usr_dir).expanduser().resolve()
    if job.t2t_usr_dir and usr_dir.name not in sys.modules:
        registry.import_usr_dir(job.t2t_usr_dir)
    folders, checkpoints = open_folders(job.output_dir, job.checkpoints)
    devices.use_one_gpu()
    devices.require_precision(job.precision)
    translator = Translator.from_folders(folders, checkpoints, job.decode_hparams, job.precision)
    return LoadedModel(translator, folders[0].problem)


def shard_name(prefix: str, batch: LineBatch) -> str:
    """Returns the path of a batch's shard: PREFIX-FFFFF-NNNNNNNNNNNN.

    FFFFF is the index of the input file, and NNNNNNNNNNNN the number of the batch's first line, both counted from 0. So
    sorted paths are in the order of the input.
    """
    return f"{prefix}-{batch.file_number:05d}-{batch.first_line:012d}"


def shards(prefix: str) -> list[str]:
    """Returns the sorted paths of all shards that exist; see `shard_name`."""
    return [path for path in match(f"{prefix}-*") if re.fullmatch(r"-[0-9]{5,}-[0-9]{12,}", path[len(prefix) :])]


def write(path: str, lines: Iterable[str]) -> None:
    """Writes lines to a file in any file system that Beam can write. If this fails, no partial file remains.

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


def input_files(path: str) -> list[str]:
    """Returns the sorted paths of the files that match a pattern, or `path` itself if a file has this name."""
    paths = match(path)
    return [path] if FileSystems.exists(path) else paths


def match(pattern: str) -> list[str]:
    """Returns the sorted paths of the files that match a pattern such as "x-*.en".

    Raises UserError if Beam knows no file system for the pattern, e.g. for gs:// without the package apache-beam[gcp].
    """
    try:
        (result,) = FileSystems.match([pattern])
    except BeamIOError:
        return []
    except ValueError as error:
        raise UserError(f"{pattern}: {_reason(error)}") from None
    return sorted(metadata.path for metadata in result.metadata_list)


def _reason(error: Exception) -> str:
    """Returns the error's message in one line."""
    return " ".join(str(getattr(error, "strerror", None) or error).split())
