"""Prepares a train split with Apache Beam: the engine of t2t-datagen --beam_options.

Three pipelines run one after another. The first one reads and cleans the parts of the corpora. The second one finds
repeated pairs, if they are dropped. The third one encodes the shards. Pairs never pass through Beam, only the names of
files do. The files are in a folder that all workers share, NAME.beam/HASH in the data directory. HASH is that of
everything on which they depend, so late workers of a killed run cannot write into the folder of another run:

dev                 the pairs of the dev split
CC-PPPPP.txt        the kept pairs of a part, a newline after each source and each target
CC-PPPPP.npz        lengths of these texts, and the keys by which repeats are found
CC-PPPPP.json       the counts of the part; written last
CC-PPPPP.repeats    positions of repeated pairs among those of the part
VOCABULARY          a folder with the vocabulary
VOCABULARY-CC-NNNNN finished shards, each with its index and .json, its counts

After a kill, the next run with the same settings uses the finished files. The main program reads all text once more,
for the hash in the description and for the texts from which the vocabulary is learned.
"""

import array
import dataclasses
import functools
import hashlib
import itertools
import json
import mmap
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import sentencepiece as sentencepiece_library

import t2t_repro
from t2t_repro import registry
from t2t_repro.beam import files, pipeline
from t2t_repro.corpora.parallel import Pair
from t2t_repro.corpora.parts import LineRange
from t2t_repro.data import encoding, records
from t2t_repro.data.cleaning import CleanCorpus, Cleaning, pair_key, pair_text, valid_pairs
from t2t_repro.data.job import Job, source_files
from t2t_repro.data.shards import chunks, shard_sizes
from t2t_repro.data.text_check import TextCheck
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabularies
from t2t_repro.data.vocabularies.tags import split_tag
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import whole_file, write_file
from t2t_repro.problem import Problem

BUCKET_PAIRS = 2_000_000
"""Approximate number of pairs that a worker compares at once to find repeats."""
URL = re.compile(r"[a-z][a-z0-9+.-]*://[^,;\s]+?(?=$|[,;\s]|:[0-9.]+(?:$|;))")
VERSIONS = t2t_repro.__version__, sentencepiece_library.__version__


@dataclass(frozen=True)
class Task:
    """Facts that a worker needs to read and encode any part."""

    folder: str
    usr_dir: str
    problem: str
    settings: dict
    tmp_dir: str
    rules: tuple[int, float, bool]
    """`max_words`, `max_ratio` and `drops_duplicates` of `Cleaning`."""
    versions: tuple[str, ...] = VERSIONS
    code: str = ""
    """Hash of the modules in `usr_dir`."""

    def path(self, name: str) -> Path:
        return Path(self.folder, name)

    def load_problem(self) -> Problem:
        """Returns the problem.

        Raises UserError if this worker has other versions than the main program, or does not see its folder.
        """
        if self.versions != VERSIONS:
            raise UserError(
                f"a worker has t2t_repro {VERSIONS[0]} and sentencepiece {VERSIONS[1]}, but this program "
                f"{self.versions[0]} and {self.versions[1]}; install the same on all machines"
            )
        if not self.path("dev").exists():
            raise UserError(f"{self.folder}: a worker does not see it; give a --data_dir that all workers mount")
        if self.usr_dir:
            name = Path(self.usr_dir).resolve().name
            if name not in sys.modules:
                registry.import_usr_dir(self.usr_dir)
            if vars(sys.modules[name]).setdefault("__code_of_task__", self.code) != self.code:
                raise UserError(f"{self.usr_dir}: changed since a worker imported it; restart the workers")
        return registry.problem(self.problem, self.settings)


class TextPart(NamedTuple):
    """A part of a corpus, which a worker reads and cleans."""

    corpus: int
    number: int
    language: str
    """Target language whose tag precedes each source, "" for none."""
    part: Any
    """A part of `Problem.parts`."""

    @property
    def name(self) -> str:
        return f"{self.corpus:02d}-{self.number:05d}"


def read_counts(task: Task, name: str) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(task.path(f"{name}.json").read_text())
    return counts


def read_part(part: TextPart, task: Task) -> None:
    """Reads and cleans a part, and writes its files, unless they exist."""
    problem = task.load_problem()
    if task.path(f"{part.name}.json").exists():
        return
    max_words, max_ratio, drops_duplicates = task.rules
    cleaning = Cleaning(max_words, max_ratio, False, part.language)
    unseen = set(task.path("dev").read_bytes().split(b"\0"))
    lengths, keys, examples, has_different_sides = array.array("i"), array.array("Q"), list[Pair](), False
    pairs = problem.read_part(part.part, "train", part.corpus, task.tmp_dir)
    with whole_file(task.path(f"{part.name}.txt")) as file:
        for pair in cleaning.first_pass(valid_pairs(task.problem, pairs)):
            text = pair_text(pair)
            file.write(text)
            source = split_tag(pair["inputs"])[1] if part.language else pair["inputs"]
            untagged = {"inputs": source, "targets": pair["targets"]}
            lengths.extend((len(pair["inputs"].encode()), len(pair["targets"].encode()), len(source.encode())))
            if drops_duplicates:
                keys.append(pair_key(text))
            plain, is_different = pair_text(untagged), source != pair["targets"]
            if plain in unseen or (is_different and not has_different_sides):
                examples.append(untagged)
                unseen.discard(plain)
                has_different_sides |= is_different
    with whole_file(task.path(f"{part.name}.npz")) as file:
        np.savez(file, lengths=np.array(lengths, np.int32).reshape(-1, 3), keys=np.array(keys, np.uint64))
    kept = cleaning.pairs_kept
    counts = {"read": cleaning.pairs_read, "dropped": cleaning.dropped, "kept": kept, "examples": examples}
    write_file(task.path(f"{part.name}.json"), json.dumps(counts))


def keys_of(numbered: tuple[int, str], task: Task, buckets: int) -> Iterator[tuple[int, Any]]:
    """Yields for each bucket of keys the number of a part, the part's keys in this bucket, and their positions."""
    number, name = numbered
    with np.load(task.path(f"{name}.npz")) as stored:
        keys = stored["keys"]
    bucket_of_key = keys % np.uint64(buckets)
    order = np.argsort(bucket_of_key, kind="stable")
    bounds = np.searchsorted(bucket_of_key[order], np.arange(buckets + 1, dtype=np.uint64))
    for bucket, (start, stop) in enumerate(itertools.pairwise(bounds.tolist())):
        if start < stop:
            yield bucket, (number, keys[order[start:stop]], order[start:stop].astype(np.int32))


def repeats_of(bucket: tuple[int, Any]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the numbers of parts, with the positions of the pairs that repeat an earlier pair."""
    rows = sorted(bucket[1], key=lambda row: row[0])
    keys = np.concatenate([keys for _, keys, _ in rows])
    numbers = np.concatenate([np.full(len(keys), number, np.int32) for number, keys, _ in rows])
    positions = np.concatenate([positions for _, _, positions in rows])
    is_repeat = np.ones(len(keys), np.bool_)
    is_repeat[np.unique(keys, return_index=True)[1]] = False
    for number in np.unique(numbers[is_repeat]).tolist():
        yield number, positions[is_repeat & (numbers == number)]


def save_repeats(row: tuple[int, Any], task: Task, names: Sequence[str]) -> None:
    """Writes the positions of the repeated pairs of a part."""
    number, positions = row
    with whole_file(task.path(f"{names[number]}.repeats")) as file:
        np.save(file, np.sort(np.concatenate(list(positions))))


class Shard(NamedTuple):
    """A shard, which a worker encodes."""

    name: str
    pieces: list[tuple[str, int, int]]
    """Names of parts, with the first and the last pair of each that belong to the shard, among those not dropped."""


def encode_shard(shard: Shard, task: Task, vocabularies: tuple[str, str, str]) -> None:
    """Encodes a shard, and writes it and its counts, unless they exist.

    `vocabularies` are a folder and the names of the vocabularies' files.
    """
    task.load_problem()  # refuses another version
    if not task.path(f"{shard.name}.json").exists():
        vocabulary, counts = load_vocabulary(*vocabularies), Counter[str]()
        pairs = itertools.chain.from_iterable(kept_pairs(task, *piece) for piece in shard.pieces)
        encoded = encoding.encode(encoding.portions(pairs), vocabulary, 1)
        records.write_chunks(task.path(shard.name), chunks(encoded, counts))
        write_file(task.path(f"{shard.name}.json"), json.dumps(counts))


load_vocabulary = functools.cache(lambda folder, targets, sources: load_vocabularies(Path(folder), targets, sources))


def kept_pairs(task: Task, name: str, start: int, stop: int) -> Iterator[Pair]:
    """Yields the pairs `start` to `stop` - 1 of a part, counted without repeats."""
    lengths = lengths_in(task, name)[:, :2]
    numbers = np.delete(np.arange(len(lengths)), repeats_in(task, name))[start:stop]
    first, last = numbers[[0, -1]].tolist()
    is_kept = np.zeros(last + 1 - first, np.bool_)
    is_kept[numbers - first] = True
    with open(task.path(f"{name}.txt"), "rb") as file:
        file.seek(int(lengths[:first].sum(dtype=np.int64)) + 2 * first)
        sizes = lengths[first : last + 1].tolist()  # A text may have newlines, so lines would not separate the texts.
        pairs = ([file.read(size + 1)[:-1].decode() for size in row] for row in sizes)
        for source, target in itertools.compress(pairs, is_kept):
            yield {"inputs": source, "targets": target}


def repeats_in(task: Task, name: str) -> np.ndarray:
    """Returns the positions of the repeated pairs of a part."""
    path = task.path(f"{name}.repeats")
    return np.load(path) if path.exists() else np.empty(0, np.int32)


@dataclass
class CleanedParts(Cleaning):
    """The cleaning of a corpus whose parts have been read."""

    hashes: tuple[str, str] = ("", "")
    """`fingerprint` and `kept_fingerprint`."""
    kept: list[tuple[str, int]] = field(default_factory=list)
    """The name of each part, with its number of pairs without repeats."""

    @property
    def fingerprint(self) -> str:
        return self.hashes[0]

    @property
    def kept_fingerprint(self) -> str:
        return self.hashes[1]


class BeamEngine:
    """The engine; see `shards.Engine`. `options` are Beam's PipelineOptions."""

    def __init__(self, options: Any, usr_dir: str) -> None:
        self._options, self._usr_dir = options, usr_dir
        self._cleanings: list[CleanedParts] = []

    def first_pass(self, job: Job, corpora: Sequence[CleanCorpus], check: TextCheck) -> list[str]:
        task, parts = self._begin(job, corpora, check)
        names = [part.name for part in parts]
        self._run(parts, read_part, task)
        counts = {name: read_counts(task, name) for name in names}
        if task.rules[2]:
            self._find_repeats(task, names, sum(part["kept"] for part in counts.values()))
        if self._source_state(job, parts) != self._state:
            raise UserError(f"problem {job.name}: its train text changed while it was read; run t2t-datagen again")
        for corpus in corpora:
            own_parts = [name for part, name in zip(parts, names, strict=True) if part.corpus == corpus.number]
            dropped = sum((Counter(counts[name]["dropped"]) for name in own_parts), Counter[str]())
            repeats = {name: len(repeats_in(task, name)) for name in own_parts}
            dropped += Counter(duplicate=sum(repeats.values()))
            cleaning = CleanedParts(
                *task.rules,
                corpus.corpus.target_language,
                pairs_read=sum(counts[name]["read"] for name in own_parts),
                dropped=dropped,
                kept=[(name, counts[name]["kept"] - repeats[name]) for name in own_parts],
            )
            corpus.cleaning = cleaning
            self._cleanings.append(cleaning)
        for name in names:
            for _ in check.train(counts[name]["examples"]):
                pass
        return self._read_again(job, task, counts)

    def write_shards(self, job: Job, corpus: CleanCorpus, vocabulary: Vocabulary) -> list[Path]:
        task, folder = self._task, self._task.path(vocabulary.fingerprint)
        folder.mkdir(exist_ok=True)
        vocabulary.save(folder / job.vocabulary_name)
        if job.source_vocabulary_name:
            vocabulary.sources.save(folder / job.source_vocabulary_name)
        names = str(folder), job.vocabulary_name, job.source_vocabulary_name
        assert isinstance(corpus.cleaning, CleanedParts)
        ends = np.cumsum([0, *(kept for _, kept in corpus.cleaning.kept)]).tolist()
        starts = np.cumsum([0, *shard_sizes(job, corpus)]).tolist()
        shards = []
        for number, (start, stop) in enumerate(itertools.pairwise(starts)):
            pieces = [
                (name, max(start, begin) - begin, min(stop, end) - begin)
                for (name, _), begin, end in zip(corpus.cleaning.kept, ends, ends[1:], strict=False)
                if max(start, begin) < min(stop, end)
            ]
            shards.append(Shard(f"{vocabulary.fingerprint}-{corpus.number:02d}-{number:05d}", pieces))
        self._run(shards, encode_shard, task, names)
        for shard in shards:
            corpus.counts.update(read_counts(task, shard.name))
        return [task.path(shard.name) for shard in shards]

    def finish(self) -> None:
        shutil.rmtree(Path(self._task.folder).parent, ignore_errors=True)

    def _begin(self, job: Job, corpora: Sequence[CleanCorpus], check: TextCheck) -> tuple[Task, list[TextPart]]:
        """Makes the folder of the workers' files. Deletes the folders of other tasks or another text."""
        settings, rules, parts = dataclasses.asdict(job.problem.settings), job.settings, list[TextPart]()
        parent = (job.data_dir / f"{job.name}.beam").absolute()
        task = Task(
            str(parent),
            self._usr_dir,
            job.problem.name,
            settings,
            os.path.abspath(job.tmp_dir) if job.tmp_dir else "",
            (rules.clean_max_words, rules.clean_max_ratio, rules.clean_duplicates),
            code=files.code_hash(self._usr_dir),
        )
        state = self._source_state(job, [])  # before the parts, so that a change after them is found
        for corpus in corpora:
            own_parts = enumerate(job.problem.parts("train", corpus.number, job.tmp_dir))
            parts += [
                TextPart(corpus.number, number, corpus.corpus.target_language, part) for number, part in own_parts
            ]
        self._state = self._source_state(job, parts)
        dev = b"\0".join(sorted(map(pair_text, check.dev)))
        hashed = repr((task, parts, state, self._state, job.data_settings, hashlib.sha256(dev).hexdigest()))
        folder = parent / hashlib.sha256(hashed.encode()).hexdigest()
        folders = list(parent.iterdir()) if parent.exists() else []
        if any(not re.fullmatch("[0-9a-f]{64}", path.name) for path in folders):
            raise UserError(f"{parent}: t2t-datagen did not write this folder; move it, or give another --data_dir")
        for path in folders:
            if path != folder:
                shutil.rmtree(path, ignore_errors=True)
        write_file(folder / "dev", dev)
        self._task = dataclasses.replace(task, folder=str(folder))
        return self._task, parts

    def _source_state(self, job: Job, parts: Sequence[TextPart]) -> list[tuple[Any, ...]]:
        """Returns the sizes and times of change of the files from which the problem reads, or their checksums."""
        paths = [str(path) for _, path in source_files(job.problem)]
        for value in vars(job.problem.settings).values():
            paths += URL.findall(value) if isinstance(value, str) else []
        for part in parts:
            paths += paths_in(part.part)
        return files.states(sorted({path if "://" in path else os.path.abspath(path) for path in paths}))

    def _run(self, elements: Sequence[Any], function: Any, *arguments: Any) -> None:
        """Lets the workers call function(element, *arguments) for each element."""

        def build(source: Any) -> None:
            _ = source | beam.Create(list(elements)) | beam.Reshuffle() | beam.Map(function, *arguments)

        pipeline.run_pipeline(build, self._options)

    def _find_repeats(self, task: Task, names: Sequence[str], pairs: int) -> None:
        buckets = -(-pairs // BUCKET_PAIRS)

        def build(source: Any) -> None:
            keys = source | beam.Create(list(enumerate(names))) | beam.FlatMap(keys_of, task, max(buckets, 1))
            repeats = keys | "by key" >> beam.GroupByKey() | beam.FlatMap(repeats_of)
            _ = repeats | "by part" >> beam.GroupByKey() | beam.Map(save_repeats, task, list(names))

        pipeline.run_pipeline(build, self._options)

    def _read_again(self, job: Job, task: Task, counts: dict[str, dict[str, Any]]) -> list[str]:
        """Sets the hashes of corpora. Returns the texts from which a vocabulary is learned."""
        names = [name for cleaning in self._cleanings for name, _ in cleaning.kept]
        firsts = np.cumsum([0, *(2 * counts[name]["kept"] for name in names)]).tolist()
        first_texts, texts = dict(zip(names, firsts, strict=False)), list[str]()
        stride = 0 if job.user_vocabulary else self._stride(task, first_texts)
        for cleaning in self._cleanings:
            digest, position = hashlib.sha256(), 0
            names = [name for name, _ in cleaning.kept if counts[name]["kept"]]  # an empty file cannot be mapped
            for name in names:
                with open(task.path(f"{name}.txt"), "rb") as file:
                    contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                digest.update(contents)
                if stride:
                    texts += sampled(contents, lengths_in(task, name), first_texts[name], stride)
            kept_digest = digest.copy()
            for name in names:
                kept_digest.update((repeats_in(task, name).astype(np.int64) + position).tobytes())
                position += counts[name]["kept"]
            cleaning.hashes = digest.hexdigest(), kept_digest.hexdigest()
        return texts

    def _stride(self, task: Task, first_texts: dict[str, int]) -> int:
        """Returns the smallest power of 3 for which each text with a multiple of it as number is in the sample."""
        strides = 3 ** np.arange(20)
        sizes = np.zeros(len(strides), np.int64)
        for name, first in first_texts.items():
            texts = lengths_in(task, name)[:, [2, 1]].ravel()
            sizes += [int(texts[-first % stride :: stride].sum()) for stride in strides.tolist()]
        return int(strides[np.flatnonzero(sizes <= sentencepiece.MAX_TRAINING_BYTES)[0]])


def lengths_in(task: Task, name: str) -> np.ndarray:
    """Returns the bytes of each source, target, and source without its tag of a part, int32 [N, 3]."""
    with np.load(task.path(f"{name}.npz")) as stored:
        return np.asarray(stored["lengths"])


def paths_in(part: Any) -> Iterator[str]:
    """Yields the paths of the files that a part of a corpus names."""
    if isinstance(part, str) and os.path.isfile(part):
        yield part
    elif isinstance(part, LineRange):
        yield from part.paths
    elif isinstance(part, tuple | list):
        yield from itertools.chain.from_iterable(map(paths_in, part))


def sampled(contents: mmap.mmap, lengths: np.ndarray, first: int, stride: int) -> list[str]:
    """Returns the texts of a part whose number is a multiple of `stride`. The first text has the number `first`."""
    ends = np.cumsum(lengths[:, :2].ravel() + 1, dtype=np.int64) - 1
    sizes = lengths[:, [2, 1]].ravel()
    chosen = range(-first % stride, len(ends), stride)
    return [contents[ends[number] - sizes[number] : ends[number]].decode() for number in chosen]
