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
from typing import Any

from t2t_repro import registry
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import encoding, records, summary, vocabulary
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import from_json, to_json
from t2t_repro.problem import Problem
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
    """Its settings; vocab_size is the vocabulary's own where it was given."""
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
    vocabulary_given: bool = False
    """Whether the vocabulary was not learned from the text but taken from a file."""


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
    """Of the vocabulary that was learned or given."""
    shards: dict
    """Of each shard that is whole: sha256 of its bytes and of its index's, bytes of its text, ids that are bytes."""
    vocabulary_given: bool = False
    """As in `Description`."""


class Reading:
    """One pass over the pairs of a split."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = pairs
        self.hash = 0
        """Of the text so far. Python's own, which costs next to nothing; another process has another."""

    def __iter__(self) -> Iterator[Pair]:
        for pair in self._pairs:
            self.hash = hash((self.hash, pair["inputs"], pair["targets"]))
            yield pair


def generate_data(
    problem: Problem, data_dir: str | Path, tmp_dir: str, processes: int = 0, vocab_file: str | Path = ""
) -> Description:
    """Makes vocabulary, shards, description and summary of a problem. The bytes do not depend on `processes`.

    Args:
        data_dir: where they go.
        tmp_dir: folder of downloads and raw sources.
        processes: how many tokenise; 0 is one for each core.
        vocab_file: a vocabulary to take as it is, in place of one learned from the text; it decides vocab_size.

    Raises:
        UserError: a source is missing or damaged, a split is empty, the disk is full, `vocab_file` does not suit, or
            there is none where the data in `data_dir` was made with one; then nothing new is left.
    """
    problem.check()
    name, settings = problem.base_name, problem.settings
    path, unfinished_path = description_path(data_dir, name), Path(data_dir) / f".{name}.unfinished"
    given = _given_vocabulary(problem, vocab_file) if vocab_file else None
    if given:
        settings = dataclasses.replace(settings, vocab_size=given.size)
    elif _was_given(path, Description) or _was_given(unfinished_path, Unfinished):
        raise UserError(
            f"{data_dir}: the vocabulary of {name} there was given by --vocab_file; give it to t2t-datagen again to "
            "keep it, or another --data_dir to learn one"
        )
    vocabulary_path = Path(data_dir) / f"vocab.{name}.{settings.vocab_size}.model"
    # The first pass reads everything once, so that a mistake in the last line is met before anything is written.
    chosen = {
        "train": Cleaning(settings.clean_max_words, settings.clean_max_ratio, settings.clean_duplicates),
        "dev": Cleaning(),
    }
    first = {split: Reading(problem.generate(split, tmp_dir)) for split in chosen}
    _exhaust(chosen["dev"].first_pass(first["dev"]))
    train_text = progress(chosen["train"].first_pass(first["train"]), "reading", None, "pairs")
    texts: list[str] = []
    if given:
        _exhaust(train_text)
    else:
        texts = vocabulary.sample(text for pair in train_text for text in (pair["inputs"], pair["targets"]))
    for split, choice in chosen.items():
        if not choice.kept:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in choice.dropped.items())
            raise UserError(
                f"problem {name}: no pair is left in its {split} split, of {choice.read:,} read"
                f"{f' ({reasons})' if reasons else ''}; check the source"
            )

    own = (dataclasses.asdict(settings), problem.symbols, problem.num_train_shards)
    decisive = [str(own), *(choice.fingerprint for choice in chosen.values()), *([given.fingerprint] if given else [])]
    fingerprint = hashlib.sha256("\n".join(decisive).encode()).hexdigest()
    try:
        path.unlink(missing_ok=True)
        words, state = _resume(unfinished_path, vocabulary_path, fingerprint)
        _remove(data_dir, name, whole=words is None)
        if words is None:
            if given:
                words = given
            else:
                say(f"learning a vocabulary from {len(texts):,} texts")
                words = vocabulary.train(texts, settings.vocab_size, problem.symbols)
            words.save(vocabulary_path)
            state = Unfinished(fingerprint, words.fingerprint, {}, vocabulary_given=given is not None)
            _save(state, unfinished_path)
        del texts
        if not processes:
            few = sum(choice.kept for choice in chosen.values()) < FEW_PAIRS
            processes = 1 if few else len(os.sched_getaffinity(0))
        with encoding.Encoder(words, processes) as encoder:
            for split, choice in chosen.items():
                second = Reading(problem.generate(split, tmp_dir))
                pairs = progress(choice.next_pass(second), split, choice.kept, "pairs")
                shards = min(problem.num_train_shards, choice.kept) if split == "train" else 1
                cuts = [choice.kept * shard // shards for shard in range(shards + 1)]
                sizes = {
                    records.shard_path(data_dir, name, split, shard, shards): stop - start
                    for shard, (start, stop) in enumerate(itertools.pairwise(cuts))
                }
                _write_shards(pairs, sizes, encoder, state, unfinished_path)
                _exhaust(pairs)
                if second.hash != first[split].hash:
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
            del figures["index_sha256"]
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
            vocabulary_given=given is not None,
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
            if not (given and written.resolve() == Path(vocab_file).resolve()):  # that one is the user's
                written.unlink(missing_ok=True)
        raise
    for line in (*summary.lines(found), f"data: {data_dir}"):
        say(line)
    return description


def _given_vocabulary(problem: Problem, vocab_file: str | Path) -> Vocabulary:
    words = Vocabulary.load(vocab_file)
    if lacking := words.lacking(problem.symbols):
        raise UserError(
            f"--vocab_file={vocab_file}: lacks {len(lacking)} of the {len(problem.symbols)} symbols of problem "
            f"{problem.name}, {lacking[0]} for one; take a vocabulary that was learned for such a problem"
        )
    return words


def _was_given(path: Path, kind: type[Description] | type[Unfinished]) -> bool:
    """Whether what lies at `path`, if anything, says that its vocabulary was given."""
    with contextlib.suppress(UserError):
        return path.is_file() and from_json(kind, "\n".join(read_lines(str(path))), str(path)).vocabulary_given
    return False


def _exhaust(items: Iterable[Any]) -> None:
    collections.deque(items, maxlen=0)


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
) -> None:
    """Writes the shards that `state` does not have or that are not whole.

    Args:
        pairs: of all shards.
        sizes: pairs of each shard.
    """
    missing = [path for path in sizes if not _is_whole(path, state.shards.get(path.name, {}))]

    def portions() -> Iterator[encoding.Portion]:
        for path, size in sizes.items():
            own = itertools.islice(pairs, size)
            if path in missing:
                yield from encoding.portions(own)
            else:
                _exhaust(own)

    encoded = encoder.encode(portions())  # of all shards, so that the processes need not wait at a shard's end
    for path in missing:
        digest, counts = hashlib.sha256(), Counter[str]()
        own = itertools.islice(encoded, -(-sizes[path] // encoding.TOGETHER))
        records.write_blocks(path, _counted(own, counts), digest)
        index_sha256 = _sha256(records.index_path(path))
        state.shards[path.name] = {"sha256": digest.hexdigest(), "index_sha256": index_sha256, **counts}
        _save(state, state_path)


def _counted(encoded: Iterable[encoding.Encoded], counts: Counter[str]) -> Iterator[records.Block]:
    for each in encoded:
        counts += each.counts
        yield each.block


def _is_whole(path: Path, figures: dict[str, Any]) -> bool:
    """Whether a shard and its index are there, with the bytes that were written."""
    files = {"sha256": path, "index_sha256": records.index_path(path)}
    return all(file.is_file() and _sha256(file) == figures.get(name) for name, file in files.items())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def test_sets_at_hand(problem: Problem, data_dir: str | Path, tmp_dir: str) -> dict[str, tuple[Path, Path]]:
    """`write_test_sets` of those that are not there yet.

    Raises:
        UserError: there is none at all; one is empty or its two files differ in length; or the disk is full.
    """
    found = write_test_sets(problem, data_dir, tmp_dir, again=False)
    if not found:
        raise UserError(f"{data_dir}: no test set of problem {problem.base_name} there; see docs/data.md")
    for paths in found.values():
        sources, targets = (sum(1 for _ in read_lines(str(path))) for path in paths)
        if sources != targets or not sources:
            raise UserError(
                f"{paths[0]} has {sources:,} lines and {paths[1].name} {targets:,}; each line needs its translation; "
                "delete both, and they are written again"
            )
    return found


def _test_set_paths(problem: Problem, data_dir: str | Path, name: str) -> list[Path]:
    """Where the sources and the targets of a test set lie."""
    stem = f"{problem.base_name}.{name.replace('/', '_')}"
    return [Path(data_dir) / f"{stem}.{suffix}" for suffix in problem.file_suffixes]
