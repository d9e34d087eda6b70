"""From a problem's text to what training reads: a vocabulary, shards of ids, and a description of both.

The description, `<problem>.json`, is written last. A folder without it holds no data, whatever else lies there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from t2t_repro import registry
from t2t_repro.data import records, vocabulary
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import from_json, to_json
from t2t_repro.problem import Pair, Problem
from t2t_repro.progress import progress, say
from t2t_repro.textfile import read_lines, whole_file

SPLITS = ("train", "dev")
ENCODE_TOGETHER = 2000
"""Pairs that are tokenised in one call."""


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
    empty: dict
    """Pairs left out of each split since a side was empty."""


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
    others = sorted(other.stem for other in Path(data_dir).glob("*.json"))
    there = f" (it holds {', '.join(others)})" if others else ""
    needed = [f"--{name}=..." for name, value in vars(problem.settings).items() if value == ""]
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


def generate_data(problem: Problem, data_dir: str | Path, tmp_dir: str) -> Description:
    """Makes vocabulary, shards and description of a problem.

    Raises:
        UserError: a source is missing or damaged, a split is empty, or the disk is full; then nothing new is left.
    """
    problem.check()
    name = problem.base_name
    counts = {split: Counts() for split in SPLITS}
    # The first pass reads everything once, so that a mistake in the last line is met before anything is written.
    train_text = progress(counts["train"].kept(problem.generate("train", tmp_dir)), "reading", None, "pairs")
    texts = vocabulary.sample(text for pair in train_text for text in (pair["inputs"], pair["targets"]))
    for _ in counts["dev"].kept(problem.generate("dev", tmp_dir)):
        pass
    for split, count in counts.items():
        if not count.pairs:
            raise UserError(f"problem {name}: its {split} split has no pair with text on both sides; check the source")
    say(f"learning a vocabulary from {len(texts):,} texts")
    words = vocabulary.train(texts, problem.settings.vocab_size)
    del texts

    path = description_path(data_dir, name)
    path.unlink(missing_ok=True)
    vocabulary_name = f"vocab.{name}.{problem.settings.vocab_size}.model"
    written = [Path(data_dir) / vocabulary_name]
    try:
        words.save(written[0])
        digest = hashlib.sha256(words.model)
        for split in SPLITS:
            for old in records.find_files(data_dir, name, split):
                old.unlink()
            total = counts[split].pairs
            shards = min(problem.num_train_shards, total) if split == "train" else 1
            pairs = progress(Counts().kept(problem.generate(split, tmp_dir)), split, total, "pairs")
            encoded = encode(pairs, words)
            changed = UserError(f"problem {name}: its {split} text changed while it was read; run t2t-datagen again")
            for shard in range(shards):
                size = total * (shard + 1) // shards - total * shard // shards
                target = records.shard_path(data_dir, name, split, shard, shards)
                written += [target, records.index_path(target)]
                index = records.write_shard(target, itertools.islice(encoded, size), digest)
                if len(index) != size:
                    raise changed
            if next(encoded, None) is not None:  # which also lets the progress bar close
                raise changed
        description = Description(
            problem=name,
            settings=dataclasses.asdict(problem.settings),
            vocabulary=vocabulary_name,
            vocabulary_fingerprint=words.fingerprint,
            fingerprint=digest.hexdigest()[:12],
            pairs={split: count.pairs for split, count in counts.items()},
            empty={split: count.empty for split, count in counts.items()},
        )
        with whole_file(path, "w") as file:
            file.write(to_json(description))
    except BaseException:
        for unfinished in written:
            unfinished.unlink(missing_ok=True)
        raise
    for split, count in counts.items():
        left_out = f", {count.empty:,} left out for an empty side" if count.empty else ""
        say(f"{split}: {count.pairs:,} pairs{left_out}")
    say(f"vocabulary: {words.size:,} subwords; data: {data_dir}")
    return description


class Counts:
    """Counts the pairs that go by."""

    def __init__(self) -> None:
        self.pairs = self.empty = 0

    def kept(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs with text on both sides."""
        for pair in pairs:
            if pair["inputs"].strip() and pair["targets"].strip():
                self.pairs += 1
                yield pair
            else:
                self.empty += 1


def encode(pairs: Iterable[Pair], words: Vocabulary) -> Iterator[tuple[list[int], list[int]]]:
    """Pairs of texts to pairs of ids."""
    remaining = iter(pairs)
    while block := list(itertools.islice(remaining, ENCODE_TOGETHER)):
        sources, targets = (words.encode([pair[side] for pair in block]) for side in ("inputs", "targets"))
        yield from zip(sources, targets, strict=True)
