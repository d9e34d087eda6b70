"""Prepares a train split with Apache Beam: the engine of t2t-datagen --beam_options.

Three pipelines run one after another. The first one reads and cleans the parts of the corpora. The
second one finds repeated pairs, if they are dropped. The third one encodes the shards. Pairs never
pass through Beam, only the names of files do. The files are in a folder that all workers share,
NAME.beam/HASH in the data directory. HASH is that of everything on which they depend, so late
workers of a killed run cannot write into the folder of another run:

dev                 the pairs of the dev split
CC-PPPPP.txt        the kept pairs of a part, a newline after each source and each target
CC-PPPPP.npz        lengths of these texts, and the keys by which repeats are found
CC-PPPPP.json       the counts of the part; written last
CC-PPPPP.repeats    positions of repeated pairs among those of the part
VOCABULARY-CC-NNNNN finished shards, each with its index and .json, its counts

After a kill, the next run with the same settings uses the finished files. The main program reads
all text once more, for the hash in the description and for the texts from which the vocabulary is
learned.
"""

import array
import dataclasses
import hashlib
import itertools
import json
import mmap
import os
import pickle
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import sentencepiece as sentencepiece_library

import t2t_repro
from t2t_repro import registry
from t2t_repro.beam import files, pipeline
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import encoding, records
from t2t_repro.data.cleaning import CleanCorpus, Cleaning, pair_key, pair_text, valid_pairs
from t2t_repro.data.job import Job, source_files
from t2t_repro.data.shards import chunks, exhaust, shard_sizes
from t2t_repro.data.text_check import TextCheck
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.tags import split_tag
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import whole_file, write_file
from t2t_repro.problem import Problem

BUCKET_PAIRS = 2_000_000
"""Approximate number of pairs that a worker compares at once to find repeats."""
VERSIONS = t2t_repro.__version__, sentencepiece_library.__version__


@dataclass(frozen=True)
class Task:
    """Facts that a worker needs to read and encode any part."""

    folder: str
    usr_dir: str
    problem: str
    settings: dict
    tmp_dir: str
    versions: tuple[str, ...] = VERSIONS
    code: str = ""
    """Hash of the modules in `usr_dir`."""

    def path(self, name: str) -> Path:
        return Path(self.folder, name)

    def load_problem(self) -> Problem:
        """Returns the problem.

        Raises UserError if this worker has other versions than the main program, or does not see
        its folder.
        """
        if self.versions != VERSIONS:
            raise UserError(
                f"a worker has t2t_repro {VERSIONS[0]} and sentencepiece {VERSIONS[1]}, but this "
                f"program {self.versions[0]} and {self.versions[1]}; install the same on all "
                "machines"
            )
        if not self.path("dev").exists():
            raise UserError(
                f"{self.folder}: a worker does not see it; give a --data_dir that all workers mount"
            )
        if self.usr_dir:
            pipeline.import_usr_dir(self.usr_dir)
            user_module = vars(sys.modules[Path(self.usr_dir).name])
            # A process imports the modules once, for its first task.
            if user_module.setdefault("__code_of_task__", self.code) != self.code:
                raise UserError(
                    f"{self.usr_dir}: changed since a worker imported it; restart the workers"
                )
        return registry.problem(self.problem, self.settings)


class TextPart(NamedTuple):
    """A part of a corpus, which a worker reads and cleans."""

    name: str
    corpus: int
    part: Any
    """A part of `Problem.parts`."""


def read_counts(task: Task, name: str) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(task.path(f"{name}.json").read_text())
    return counts


def read_part(part: TextPart, task: Task) -> None:
    """Reads and cleans a part, and writes its files, unless they exist."""
    problem = task.load_problem()
    if task.path(f"{part.name}.json").exists():
        return
    rules = problem.settings
    language = problem.corpora("train")[part.corpus].target_language
    cleaning = Cleaning(rules.clean_max_words, rules.clean_max_ratio, False, language)
    dev = set(task.path("dev").read_bytes().split(b"\0"))
    examples = dict[bytes, Pair]()
    lengths = array.array("i")
    keys = array.array("Q")
    pairs = problem.read_part(part.part, "train", part.corpus, task.tmp_dir)
    with whole_file(task.path(f"{part.name}.txt")) as file:
        for pair in cleaning.first_pass(valid_pairs(task.problem, pairs)):
            contents = pair_text(pair)
            file.write(contents)
            source = split_tag(pair["inputs"])[1] if language else pair["inputs"]
            untagged = {"inputs": source, "targets": pair["targets"]}
            texts = (pair["inputs"], pair["targets"], source)
            lengths.extend(len(text.encode()) for text in texts)
            if rules.clean_duplicates:
                keys.append(pair_key(contents))
            plain = pair_text(untagged)
            if plain in dev or source != pair["targets"]:
                examples[plain if plain in dev else b""] = untagged
    lengths_of_pairs = np.array(lengths, np.int32).reshape(-1, 3)
    with whole_file(task.path(f"{part.name}.npz")) as file:
        np.savez(file, lengths=lengths_of_pairs, keys=np.array(keys, np.uint64))
    counts = {
        "read": cleaning.pairs_read,
        "dropped": cleaning.dropped,
        "kept": cleaning.pairs_kept,
        "examples": list(examples.values()),
    }
    write_file(task.path(f"{part.name}.json"), json.dumps(counts))


KEY = np.dtype([("key", "<u8"), ("part", "<i4"), ("position", "<i4")])
"""The key of a pair, the number of its part, and its position there."""


def keys_of(
    numbered: tuple[int, str], task: Task, buckets: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the numbers of buckets of keys, each with the rows, of dtype `KEY`, of a part's pairs
    in the bucket.
    """
    number, name = numbered
    with np.load(task.path(f"{name}.npz")) as stored:
        keys = stored["keys"]
    rows = np.empty(len(keys), KEY)
    rows["key"] = keys
    rows["part"] = number
    rows["position"] = np.arange(len(keys))
    bucket_of_row = keys % np.uint64(buckets)
    order = np.argsort(bucket_of_row, kind="stable")
    bounds = np.searchsorted(bucket_of_row[order], np.arange(buckets + 1, dtype=np.uint64))
    for bucket, (start, stop) in enumerate(itertools.pairwise(bounds.tolist())):
        if start < stop:
            yield bucket, rows[order[start:stop]]


def repeats_of(bucket: tuple[int, Any]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the numbers of parts, with the positions of the pairs that repeat an earlier pair."""
    _, rows_of_parts = bucket
    rows = np.concatenate(sorted(rows_of_parts, key=lambda part_rows: part_rows["part"][0]))
    _, first_rows = np.unique(rows["key"], return_index=True)
    repeats = np.delete(rows, first_rows)
    for number in np.unique(repeats["part"]).tolist():
        yield number, np.compress(repeats["part"] == number, repeats["position"])


def save_repeats(row: tuple[int, Any], task: Task, names: Sequence[str]) -> None:
    """Writes the positions of the repeated pairs of a part."""
    number, positions = row
    with whole_file(task.path(f"{names[number]}.repeats")) as file:
        np.save(file, np.sort(np.concatenate(list(positions))))


def encode_shard(
    shard: tuple[str, int, int],
    task: Task,
    parts: Sequence[tuple[str, int]],
    vocabulary: Vocabulary,
) -> None:
    """Encodes a shard, and writes it and its counts, unless they exist.

    Args:
        shard: its name, and the range of its pairs among those of its corpus that are not dropped.
        parts: the names of the corpus's parts, each with its number of such pairs.
    """
    task.load_problem()  # refuses another version
    name, start, stop = shard
    if not task.path(f"{name}.json").exists():
        counts = Counter[str]()
        pairs = kept_pairs(task, parts, start, stop)
        encoded = encoding.encode(encoding.portions(pairs), vocabulary, 1)
        records.write_chunks(task.path(name), chunks(encoded, counts))
        write_file(task.path(f"{name}.json"), json.dumps(counts))


def kept_pairs(
    task: Task, parts: Sequence[tuple[str, int]], start: int, stop: int
) -> Iterator[Pair]:
    """Yields the pairs `start` to `stop` - 1 of a corpus, counted without dropped pairs; see
    `encode_shard`.
    """
    for name, kept in parts:
        if start < kept and stop > 0:
            yield from pairs_of_part(task, name, max(start, 0), stop)
        start -= kept
        stop -= kept


def pairs_of_part(task: Task, name: str, start: int, stop: int) -> Iterator[Pair]:
    """Yields the pairs `start` to `stop` - 1 of a part, counted without repeats."""
    lengths = lengths_in(task, name)[:, :2]
    numbers = np.delete(np.arange(len(lengths)), repeats_in(task, name))[start:stop]
    first, last = numbers[[0, -1]].tolist()
    is_kept = np.zeros(last + 1 - first, np.bool_)
    is_kept[numbers - first] = True
    with open(task.path(f"{name}.txt"), "rb") as file:
        file.seek(int(lengths[:first].sum(dtype=np.int64)) + 2 * first)
        # A text may have newlines, so lines would not separate the texts.
        sizes = lengths[first : last + 1].tolist()
        for (source_size, target_size), keeps in zip(sizes, is_kept, strict=True):
            source = file.read(source_size + 1)[:-1]
            target = file.read(target_size + 1)[:-1]
            if keeps:
                yield {"inputs": source.decode(), "targets": target.decode()}


def repeats_in(task: Task, name: str) -> np.ndarray:
    """Returns the positions of the repeated pairs of a part."""
    path = task.path(f"{name}.repeats")
    return np.load(path) if path.exists() else np.empty(0, np.int32)


class BeamEngine:
    """The engine; see `shards.Engine`. `options` are Beam's PipelineOptions."""

    def __init__(self, options: Any, usr_dir: str) -> None:
        self._options = options
        self._usr_dir = usr_dir
        self._kept: dict[int, list[tuple[str, int]]] = {}
        """The names of the parts of each corpus, with their numbers of pairs without repeats."""

    def first_pass(self, job: Job, corpora: Sequence[CleanCorpus], check: TextCheck) -> list[str]:
        task, parts = self._begin(job, corpora, check)
        names = [part.name for part in parts]
        self._run(parts, read_part, task)
        counts = {name: read_counts(task, name) for name in names}
        if job.settings.clean_duplicates:
            self._find_repeats(task, names, sum(part["kept"] for part in counts.values()))
        if self._source_state(job) != self._state:
            raise UserError(
                f"problem {job.name}: its train text changed while it was read; run t2t-datagen "
                "again"
            )
        for corpus in corpora:
            cleaning = corpus.cleaning
            cleaning.pairs_read = 0
            kept = self._kept[corpus.number] = []
            duplicates = 0
            for name in (part.name for part in parts if part.corpus == corpus.number):
                repeats = len(repeats_in(task, name))
                duplicates += repeats
                cleaning.pairs_read += counts[name]["read"]
                cleaning.dropped.update(counts[name]["dropped"])
                kept.append((name, counts[name]["kept"] - repeats))
            cleaning.dropped += Counter(duplicate=duplicates)
        for name in names:
            exhaust(check.train(counts[name]["examples"]))
        return self._read_again(job, task, corpora, counts)

    def write_shards(self, job: Job, corpus: CleanCorpus, vocabulary: Vocabulary) -> list[Path]:
        bounds = itertools.pairwise(itertools.accumulate(shard_sizes(job, corpus), initial=0))
        name = f"{vocabulary.fingerprint}-{corpus.number:02d}"
        shards = [
            (f"{name}-{number:05d}", start, stop) for number, (start, stop) in enumerate(bounds)
        ]
        self._run(shards, encode_shard, self._task, self._kept[corpus.number], vocabulary)
        for shard in shards:
            corpus.counts.update(read_counts(self._task, shard[0]))
        return [self._task.path(name) for name, _, _ in shards]

    def finish(self) -> None:
        shutil.rmtree(Path(self._task.folder).parent, ignore_errors=True)

    def _begin(
        self, job: Job, corpora: Sequence[CleanCorpus], check: TextCheck
    ) -> tuple[Task, list[TextPart]]:
        """Makes the folder of the workers' files. Deletes the folders of other tasks or another
        text.
        """
        parent = (job.data_dir / f"{job.name}.beam").absolute()
        parts = list[TextPart]()
        task = Task(
            str(parent),
            self._usr_dir,
            job.problem.name,
            dataclasses.asdict(job.problem.settings),
            os.path.abspath(job.tmp_dir) if job.tmp_dir else "",
            code=files.code_hash(self._usr_dir),
        )
        # Before the parts, so that a change after them is found.
        self._state = self._source_state(job)
        for number in range(len(corpora)):
            for index, part in enumerate(job.problem.parts("train", number, job.tmp_dir)):
                parts.append(TextPart(f"{number:02d}-{index:05d}", number, part))
        dev = b"\0".join(sorted(map(pair_text, check.dev)))
        hashed = pickle.dumps((task, parts, self._state, job.data_settings, dev))
        folder = parent / hashlib.sha256(hashed).hexdigest()
        folders = list(parent.iterdir()) if parent.exists() else []
        if any(not re.fullmatch("[0-9a-f]{64}", path.name) for path in folders):
            raise UserError(
                f"{parent}: t2t-datagen did not write this folder; move it, or give another "
                "--data_dir"
            )
        for path in folders:
            if path != folder:
                shutil.rmtree(path, ignore_errors=True)
        write_file(folder / "dev", dev)
        self._task = dataclasses.replace(task, folder=str(folder))
        return self._task, parts

    def _source_state(self, job: Job) -> list[tuple[Any, ...]]:
        """Returns the sizes and times of change of the files from which the problem reads, or their
        checksums.
        """
        urls = {path for _, path in job.problem.source_files() if "://" in path}
        local = {os.path.abspath(str(path)) for _, path in source_files(job.problem)}
        return files.states(sorted(urls | local))

    def _run(self, elements: Sequence[Any], function: Any, *arguments: Any) -> None:
        """Lets the workers call function(element, *arguments) for each element."""
        steps = beam.Create(list(elements)) | beam.Reshuffle() | beam.Map(function, *arguments)
        pipeline.run_pipeline(steps, self._options)

    def _find_repeats(self, task: Task, names: Sequence[str], pairs: int) -> None:
        buckets = max(-(-pairs // BUCKET_PAIRS), 1)
        keys = beam.Create(list(enumerate(names))) | beam.FlatMap(keys_of, task, buckets)
        repeats = keys | "by key" >> beam.GroupByKey() | beam.FlatMap(repeats_of)
        steps = repeats | "by part" >> beam.GroupByKey() | beam.Map(save_repeats, task, list(names))
        pipeline.run_pipeline(steps, self._options)

    def _read_again(
        self,
        job: Job,
        task: Task,
        corpora: Sequence[CleanCorpus],
        counts: dict[str, dict[str, Any]],
    ) -> list[str]:
        """Sets the hashes of corpora. Returns the texts from which a vocabulary is learned."""
        firsts = itertools.accumulate((2 * part["kept"] for part in counts.values()), initial=0)
        first_texts = dict(zip(counts, firsts, strict=False))
        texts = list[str]()
        stride = 0 if job.user_vocabulary else self._stride(task, first_texts)
        for corpus in corpora:
            digest = hashlib.sha256()
            position = 0
            # A map cannot be empty.
            names = [name for name, _ in self._kept[corpus.number] if counts[name]["kept"]]
            for name in names:
                with open(task.path(f"{name}.txt"), "rb") as file:
                    contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                digest.update(contents)
                if stride:
                    texts += sampled(contents, lengths_in(task, name), first_texts[name], stride)
            corpus.cleaning.fingerprint = digest.hexdigest()
            for name in names:
                digest.update((repeats_in(task, name).astype(np.int64) + position).tobytes())
                position += counts[name]["kept"]
            corpus.cleaning.kept_fingerprint = digest.hexdigest()
        return texts

    def _stride(self, task: Task, first_texts: dict[str, int]) -> int:
        """Returns the smallest power of 3 for which the texts whose numbers are multiples of it
        have at most `MAX_TRAINING_BYTES`, as `sentencepiece.sample` chooses them.
        """
        strides = 3 ** np.arange(20)
        sizes = np.zeros(len(strides), np.int64)
        for name, first in first_texts.items():
            texts = lengths_in(task, name)[:, [2, 1]].ravel()
            sizes += [int(texts[-first % stride :: stride].sum()) for stride in strides.tolist()]
        small_enough = np.flatnonzero(sizes <= sentencepiece.MAX_TRAINING_BYTES)
        return int(strides[small_enough[0]])


def lengths_in(task: Task, name: str) -> np.ndarray:
    """Returns the bytes of each source, target, and source without its tag of a part, int32 [N,
    3].
    """
    with np.load(task.path(f"{name}.npz")) as stored:
        return np.asarray(stored["lengths"])


def sampled(contents: mmap.mmap, lengths: np.ndarray, first: int, stride: int) -> list[str]:
    """Returns the texts of a part whose number is a multiple of `stride`. The first text has the
    number `first`.
    """
    ends = np.cumsum(lengths[:, :2].ravel() + 1, dtype=np.int64) - 1
    starts = ends - lengths[:, [2, 1]].ravel()  # without tags
    chosen = slice(-first % stride, None, stride)
    bounds = zip(starts[chosen], ends[chosen], strict=True)
    return [contents[start:stop].decode() for start, stop in bounds]
