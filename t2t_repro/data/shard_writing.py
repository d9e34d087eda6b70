"""Reads a problem's text a second time: writes the missing shards, and verifies that the text has not changed."""

from __future__ import annotations

import collections
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import encoding, records
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.job import Job
from t2t_repro.data.resume_state import ResumeState
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.progress import progress


class TextChangedError(UserError):
    """Raised if t2t-datagen reads the text of a split again and gets other text than before."""

    def __init__(self, job: Job, split: str) -> None:
        super().__init__(f"problem {job.name}: its {split} text changed while it was read; run t2t-datagen again")


class HashedPairs:
    """Iterable over pairs that computes a hash of all pairs that it has yielded."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = pairs
        self.hash = 0
        """Hash of all pairs yielded so far. Valid only in this process: Python's `hash` differs in other processes."""

    def __iter__(self) -> Iterator[Pair]:
        for pair in self._pairs:
            self.hash = hash((self.hash, pair["inputs"], pair["targets"]))
            yield pair


def shard_sizes(job: Job, split: str, pairs: int) -> dict[Path, int]:
    """Returns the number of pairs for each shard of a split, by path. The numbers differ by at most one."""
    shards = min(job.problem.num_train_shards, pairs) if split == "train" else 1
    ends = [pairs * shard // shards for shard in range(shards + 1)]
    return {
        records.shard_path(job.data_dir, job.name, split, shard, shards): end - start
        for shard, (start, end) in enumerate(itertools.pairwise(ends))
    }


class ShardWriter:
    """Writes the shards that are not yet finished. Use it in a `with` statement, which starts and ends its processes.

    Args:
        state: lists the finished shards. The writer saves it after each shard.
        processes: number of processes that encode.
    """

    def __init__(self, job: Job, vocabulary: Vocabulary, state: ResumeState, processes: int) -> None:
        self._job, self._state = job, state
        self._encoder = encoding.Encoder(vocabulary, processes)

    def __enter__(self) -> ShardWriter:
        self._encoder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._encoder.__exit__(kind, error, trace)

    def write(self, split: str, cleaning: Cleaning, expected_hash: int) -> None:
        """Reads the text of a split again, and writes its missing shards.

        Args:
            cleaning: selects the split's pairs. Its `first_pass` has ended.
            expected_hash: `HashedPairs.hash` of the first reading.

        Raises:
            TextChangedError: if the text is not the same as in the first reading, or as when a finished shard was
                written.
        """
        source = HashedPairs(self._job.problem.generate(split, self._job.tmp_dir))
        pairs = progress(cleaning.next_pass(source), split, cleaning.pairs_kept, "pairs")
        self._write_missing(split, pairs, shard_sizes(self._job, split, cleaning.pairs_kept))
        _exhaust(pairs)
        if source.hash != expected_hash:
            raise TextChangedError(self._job, split)

    def _write_missing(self, split: str, pairs: Iterator[Pair], sizes: dict[Path, int]) -> None:
        """Writes the missing shards of a split. Saves the state after each shard.

        Args:
            pairs: the pairs of all shards of the split, including finished shards.
            sizes: number of pairs in each shard, by path.
        """
        missing = [path for path in sizes if not self._state.has(path)]
        texts = {path: ShardText(itertools.islice(pairs, size)) for path, size in sizes.items()}

        def portions() -> Iterator[encoding.Portion]:
            for path, text in texts.items():
                if path in missing:
                    yield from encoding.portions(text)
                else:  # Skip the pairs of a finished shard.
                    _exhaust(text)
                    if self._state.shards[path.name].get("text_sha256", text.sha256) != text.sha256:
                        raise TextChangedError(self._job, split)

        # A single call encodes the portions of all shards, so that no process is idle between two shards.
        encoded = self._encoder.encode(portions())
        for path in missing:
            digest, counts = hashlib.sha256(), Counter[str]()
            shard_portions = itertools.islice(encoded, -(-sizes[path] // encoding.PORTION_PAIRS))
            index = records.write_chunks(path, _count(shard_portions, counts), digest)
            hashes = {"sha256": digest.hexdigest(), "rows_sha256": records.rows_sha256(index)}
            self._state.add(path, hashes | {"text_sha256": texts[path].sha256}, counts)
            self._state.save(self._job.state_path)
        _exhaust(encoded)


class ShardText:
    """Iterable over the pairs of one shard that computes a hash of their text."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = pairs
        self._digest = hashlib.sha256()

    def __iter__(self) -> Iterator[Pair]:
        for pair in self._pairs:
            self._digest.update(f"{pair['inputs']}\n{pair['targets']}\n".encode())
            yield pair

    @property
    def sha256(self) -> str:
        """Hash of the pairs yielded so far, as hex digits."""
        return self._digest.hexdigest()


def _count(encoded: Iterable[encoding.Encoded], counts: Counter[str]) -> Iterator[records.Chunk]:
    for portion in encoded:
        counts += portion.counts
        yield portion.chunk


def _exhaust(items: Iterable[object]) -> None:
    collections.deque(items, maxlen=0)
