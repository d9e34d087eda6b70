"""From a problem's text to what training reads: a vocabulary, shards of ids, and a description of both.

The description, `<problem>.json`, is written last. A folder without it holds no data, whatever else lies there. A run
that was killed goes on after its last whole shard: `.<problem>.unfinished` says which those are.
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
from dataclasses import dataclass
from pathlib import Path

from t2t_repro import registry
from t2t_repro.data import encoding, records, summary, vocabulary
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import from_json, to_json
from t2t_repro.problem import Pair, Problem
from t2t_repro.progress import progress, say
from t2t_repro.textfile import read_lines, whole_file

SPLITS = ("train", "dev")
FEW_PAIRS = 50_000
"""Fewer than these are tokenised before other processes have started."""


@dataclass(frozen=True)
class Description:
    """What a data_dir holds of one problem."""

    problem: str
    """The problem's name, unreversed."""
    settings: dict
    """Its settings."""
    vocabulary: str
    """The vocabulary's file name."""
    vocabulary_fingerprint: str
    """Twelve hex digits of the vocabulary."""
    fingerprint: str
    """Twelve hex digits of all records and the vocabulary."""
    pairs: dict
    """Pairs in each split."""
    dropped: dict
    """Pairs left out of each split, by reason."""


def description_path(data_dir: str | Path, problem: str) -> Path:
    """Where the description of a problem's data lies."""
    return Path(data_dir) / f"{problem}.json"


def load_description(data_dir: str | Path, problem: Problem) -> Description:
    """What `data_dir` holds of `problem`.

    Raises:
        UserError: nothing; the message says what else is there.
    """
    path = description_path(data_dir, problem.base_name)
    if path.is_file():
        return from_json(Description, "\n".join(read_lines(str(path))), str(path))
    others = sorted(other.stem for other in Path(data_dir).glob("*.json") if other.name != summary.FILE_NAME)
    there = f" (it holds {', '.join(others)})" if others else ""
    needed = [
        f"--{field.name}={value if value != '' else '...'}"
        for field in dataclasses.fields(problem.settings)
        if (value := getattr(problem.settings, field.name)) == "" or value != field.default
    ]
    flags = " ".join([f"--problem={problem.base_name}", *needed, f"--data_dir={data_dir}"])
    raise UserError(f"{data_dir}: no data of problem {problem.base_name!r} there{there}; run t2t-datagen {flags}")


def load_problem(data_dir: str | Path, name: str) -> tuple[Problem, Vocabulary, Description]:
    """The problem `name` with the settings that its data in `data_dir` was made with, its vocabulary, its description.

    Raises:
        UserError: no such problem, no data, or a vocabulary that is not the one the data was made with.
    """
    description = load_description(data_dir, registry.problem(name))
    path = Path(data_dir) / description.vocabulary
    words = Vocabulary.load(path)
    if words.fingerprint != description.vocabulary_fingerprint:
        raise UserError(
            f"{path}: fingerprint {words.fingerprint}, but the data was made with "
            f"{description.vocabulary_fingerprint}; put the right vocabulary back or run t2t-datagen again"
        )
    return registry.problem(name, description.settings), words, description


@dataclass
class Unfinished:
    """What a run has done so far, so that the next one can go on from there."""

    fingerprint: str
    """Differs for other text and other settings."""
    vocabulary_fingerprint: str
    """Of the vocabulary that was learned."""
    shards: dict
    """Of each shard that is whole: sha256 of its bytes, bytes of its text, ids that are bytes."""


def generate_data(problem: Problem, data_dir: str | Path, tmp_dir: str, processes: int = 0) -> Description:
    """Makes vocabulary, shards, description and summary of a problem. The bytes do not depend on `processes`.

    Args:
        data_dir: where they go.
        tmp_dir: folder of downloads and raw sources.
        processes: how many tokenise; 0 is one for each core.

    Raises:
        UserError: a source is missing or damaged, a split is empty, or the disk is full; then nothing new is left.
    """
    problem.check()
    name, settings = problem.base_name, problem.settings
    # The first pass reads everything once, so that a mistake in the last line is met before anything is written.
    chosen = {
        "train": Cleaning(settings.clean_max_words, settings.clean_max_ratio, settings.clean_duplicates),
        "dev": Cleaning(),
    }
    for _ in chosen["dev"].first_pass(problem.generate("dev", tmp_dir)):
        pass
    train_text = progress(chosen["train"].first_pass(problem.generate("train", tmp_dir)), "reading", None, "pairs")
    texts = vocabulary.sample(text for pair in train_text for text in (pair["inputs"], pair["targets"]))
    for split, choice in chosen.items():
        if not choice.kept:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in choice.dropped.items())
            raise UserError(
                f"problem {name}: no pair is left in its {split} split, of {choice.read:,} read"
                f"{f' ({reasons})' if reasons else ''}; check the source"
            )

    path, unfinished_path = description_path(data_dir, name), Path(data_dir) / f".{name}.unfinished"
    vocabulary_path = Path(data_dir) / f"vocab.{name}.{settings.vocab_size}.model"
    own = (dataclasses.asdict(settings), problem.symbols, problem.num_train_shards)
    given = [str(own), *(choice.fingerprint for choice in chosen.values())]
    fingerprint = hashlib.sha256("\n".join(given).encode()).hexdigest()
    try:
        path.unlink(missing_ok=True)
        words, state = _resume(unfinished_path, vocabulary_path, fingerprint)
        _remove(data_dir, name, whole=words is None)
        if words is None:
            say(f"learning a vocabulary from {len(texts):,} texts")
            words = vocabulary.train(texts, settings.vocab_size, problem.symbols)
            words.save(vocabulary_path)
            state = Unfinished(fingerprint, words.fingerprint, {})
            _save(state, unfinished_path)
        del texts
        if not processes:
            few = sum(choice.kept for choice in chosen.values()) < FEW_PAIRS
            processes = 1 if few else len(os.sched_getaffinity(0))
        with encoding.Encoder(words, processes) as encoder:
            for split, choice in chosen.items():
                pairs = progress(choice.next_pass(problem.generate(split, tmp_dir)), split, choice.kept, "pairs")
                shards = min(problem.num_train_shards, choice.kept) if split == "train" else 1
                cuts = [choice.kept * shard // shards for shard in range(shards + 1)]
                sizes = {
                    records.shard_path(data_dir, name, split, shard, shards): stop - start
                    for shard, (start, stop) in enumerate(itertools.pairwise(cuts))
                }
                if not _write_shards(pairs, sizes, encoder, state, unfinished_path):
                    raise UserError(
                        f"problem {name}: its {split} text changed while it was read; run t2t-datagen again"
                    )
        for test_set in problem.test_sets or ("dev",):
            for old in _test_set_paths(problem, data_dir, test_set):
                old.unlink(missing_ok=True)
        if problem.test_sets:
            write_test_sets(problem, data_dir, tmp_dir)

        digest, counts = hashlib.sha256(words.model), Counter[str]()
        for figures in state.shards.values():
            digest.update(bytes.fromhex(figures.pop("sha256")))
            counts.update(figures)
        found = summary.summarize(data_dir, name, chosen, counts, words)
        description = Description(
            problem=name,
            settings=dataclasses.asdict(settings),
            vocabulary=vocabulary_path.name,
            vocabulary_fingerprint=words.fingerprint,
            fingerprint=digest.hexdigest()[:12],
            pairs={split: choice.kept for split, choice in chosen.items()},
            dropped={split: dict(choice.dropped) for split, choice in chosen.items()},
        )
        with whole_file(path, "w") as file:
            file.write(to_json(description))
        summary.save(data_dir, name, found)
        unfinished_path.unlink()
    except encoding.WorkerLostError:
        raise  # as after a KeyboardInterrupt, the next run goes on from here
    except Exception:
        _remove(data_dir, name, whole=True)
        test_sets = (side for test_set in problem.test_sets for side in _test_set_paths(problem, data_dir, test_set))
        for written in (vocabulary_path, unfinished_path, path, *test_sets):
            written.unlink(missing_ok=True)
        raise
    for line in (*summary.lines(found), f"data: {data_dir}"):
        say(line)
    return description


def _resume(path: Path, vocabulary_path: Path, fingerprint: str) -> tuple[Vocabulary | None, Unfinished]:
    """The vocabulary and the state of a run over the same text with the same settings; None where there was none."""
    with contextlib.suppress(UserError):
        if path.is_file():
            state = from_json(Unfinished, "\n".join(read_lines(str(path))), str(path))
            words = Vocabulary.load(vocabulary_path)
            if (state.fingerprint, state.vocabulary_fingerprint) == (fingerprint, words.fingerprint):
                say(f"going on after the {len(state.shards):,} shards that are there")
                return words, state
    return None, Unfinished(fingerprint, "", {})


def _save(state: Unfinished, path: Path) -> None:
    with whole_file(path, "w") as file:
        file.write(to_json(state))


def _remove(data_dir: str | Path, name: str, whole: bool) -> None:
    """Removes what a killed process was writing, and the problem's whole shards as well if so asked."""
    for place in (f"{name}[-.]*", f".{name}.unfinished", f"vocab.{name}.*", summary.FILE_NAME):
        for half_written in Path(data_dir).glob(f".{place}.{'?' * 8}"):  # as `whole_file` names them
            half_written.unlink(missing_ok=True)
    for split in SPLITS if whole else ():
        for old in records.find_files(data_dir, name, split):
            old.unlink()


def _write_shards(
    pairs: Iterator[Pair], sizes: dict[Path, int], encoder: encoding.Encoder, state: Unfinished, state_path: Path
) -> bool:
    """Writes the shards that `state` does not have or that are not whole; whether there were as many pairs as expected.

    Args:
        pairs: of all shards.
        sizes: pairs of each shard.
    """
    missing = [path for path in sizes if not _is_whole(path, state.shards.get(path.name, {}).get("sha256"))]

    def portions() -> Iterator[encoding.Portion]:
        for path, size in sizes.items():
            own = itertools.islice(pairs, size)
            if path in missing:
                yield from encoding.portions(own)
            else:
                collections.deque(own, maxlen=0)

    encoded = encoder.encode(portions())  # of all shards, so that the processes need not wait at a shard's end
    for path in missing:
        digest, counts = hashlib.sha256(), Counter[str]()
        own = itertools.islice(encoded, -(-sizes[path] // encoding.TOGETHER))
        index = records.write_blocks(path, _counted(own, counts), digest)
        state.shards[path.name] = {"sha256": digest.hexdigest(), **counts}
        _save(state, state_path)
        if len(index) != sizes[path]:
            return False
    return next(encoded, None) is None and next(pairs, None) is None  # which also lets the progress bar close


def _counted(encoded: Iterable[encoding.Encoded], counts: Counter[str]) -> Iterator[records.Block]:
    for each in encoded:
        counts += each.counts
        yield each.block


def _is_whole(path: Path, sha256: str | None) -> bool:
    """Whether a shard and its index are there, the shard with the bytes that were written."""
    if sha256 is None or not (path.is_file() and records.index_path(path).is_file()):
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def write_test_sets(
    problem: Problem, data_dir: str | Path, tmp_dir: str, again: bool = True
) -> dict[str, tuple[Path, Path]]:
    """Writes each test set as two text files, for t2t-decoder and t2t-bleu; says where one is not at hand.

    Args:
        again: whether to write files anew that are there.

    Returns:
        By test set, the files of sources and of references. A reversed problem's change places; a problem without test
        sets has its dev split for one.

    Raises:
        UserError: the disk is full.
    """
    written = {}
    for name in problem.test_sets or ("dev",):
        paths = _test_set_paths(problem, data_dir, name)
        if again or not all(path.is_file() for path in paths):
            try:
                pairs = list(problem.test_set(name, tmp_dir) if problem.test_sets else problem.generate(name, tmp_dir))
            except UserError as error:
                say(f"test set {name} is not written: {error}")
                continue
            for side, path in zip(("inputs", "targets"), paths, strict=True):
                with whole_file(path, "w") as file:
                    file.writelines(pair[side] + "\n" for pair in pairs)
            say(f"test set {name}: {len(pairs):,} pairs in {paths[0]} and {paths[1]}")
        source, target = paths[::-1] if problem.was_reversed else paths
        written[name] = (source, target)
    return written


def _test_set_paths(problem: Problem, data_dir: str | Path, name: str) -> list[Path]:
    """Where the sources and the targets of a test set lie."""
    stem = f"{problem.base_name}.{name.replace('/', '_')}"
    return [Path(data_dir) / f"{stem}.{suffix}" for suffix in problem.file_suffixes]
