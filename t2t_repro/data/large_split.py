"""A split with more pairs than one plan should hold: its records are opened shard by shard, when a
plan needs them.

The file `<problem>-<split>.counts` has the numbers of pairs and tokens of each shard, by the length
of the longer side. So the number of steps of an epoch is known without reading the index of any
shard.
"""

import contextlib
import hashlib
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data.records import (
    ANY_SIZES,
    Records,
    hash_of_rows,
    index_path,
    read_index,
    shard_lines,
)
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import write_file

LARGE = 50_000_000
"""Maximum number of pairs of a split that is not large. WMT EN-FR has 41 million."""
COUNTS = np.dtype(
    [("shard", "<i4"), ("length", "<i4"), ("pairs", "<i8"), ("source", "<i8"), ("target", "<i8")]
)
"""For a shard and a length, counted in tokens: the pairs whose longer side has this length, and
their tokens.
"""


def open_records(pairs: int, paths: list[Path], *options: Any) -> Records:
    """Returns the records of a split of `pairs` pairs. `options` are passed on to `Records` or
    `LargeSplit`.
    """
    kind = LargeSplit if pairs > LARGE else Records
    return kind(paths, *options)


class LargeSplit(Records):
    """The records of a large split. It takes the arguments of `Records`. A `Part` reads records."""

    def __init__(
        self,
        paths: list[Path],
        was_reversed: bool = False,
        vocab_sizes: tuple[int, int] = ANY_SIZES,
        corpora: tuple[StoredCorpus, ...] = (),
    ) -> None:
        self.paths = paths
        self.options = (was_reversed, vocab_sizes)
        self._hashes, self._counts = _shard_counts(paths)
        self._sides = ("source", "target")[:: -1 if was_reversed else 1]
        self.starts = np.concatenate([[0], np.cumsum(self.totals("pairs"))])
        self.corpora = corpora or (StoredCorpus(stop=len(self), shards=len(paths)),)

    @property
    def index_lines(self) -> bytes:
        return shard_lines(self.paths, self._hashes)

    def totals(self, field: str, max_length: int | None = None) -> np.ndarray:
        """Returns the sum of a field of `COUNTS` in each shard, int64 [shards], for sides of at
        most `max_length`.
        """
        rows = self._counts
        if max_length is not None:
            rows = np.compress(rows["length"] <= max_length, rows)
        sums = np.zeros(len(self.paths), np.int64)
        np.add.at(sums, rows["shard"], rows[field])
        return sums

    def tokens(self, start: int, stop: int) -> list[int]:
        """Returns the numbers of source and target tokens of the shards that hold the records
        `start` to `stop` - 1.
        """
        shards = slice(*np.searchsorted(self.starts, (start, stop)))
        return [int(self.totals(side)[shards].sum()) for side in self._sides]

    def target_tokens(self, max_length: int) -> np.ndarray:
        """Returns the number of target tokens of each shard, int64 [shards], in pairs of at most
        `max_length`.
        """
        return self.totals(self._sides[1], max_length)

    def index(self, shard: int) -> np.ndarray:
        """Returns the index of a shard. Raises UserError if it has changed."""
        index = read_index(self.paths[shard])
        if hash_of_rows(index) != self._hashes[shard]:
            raise UserError(
                f"{self.paths[shard]}: has changed since this program began; run it again"
            )
        return index

    def lengths_in(self, index: np.ndarray) -> np.ndarray:
        """Returns the lengths of the records of an index, int32 [2, N]; see `Records.lengths`."""
        return np.stack([index[side] for side in self._sides])


class Part(Records):
    """Some records of a large split, given their rows of the index of each shard, and their numbers
    in the split.
    """

    def __init__(
        self,
        split: LargeSplit,
        shards: Sequence[int],
        indexes: Sequence[np.ndarray],
        numbers: np.ndarray,
    ) -> None:
        super().__init__([split.paths[shard] for shard in shards], *split.options, indexes=indexes)
        self._split = split
        self._numbers = numbers

    def locate(self, number: int) -> tuple[Path, int]:
        return self._split.locate(int(self._numbers[number]))

    def numbers_in_split(self, numbers: np.ndarray) -> np.ndarray:
        return self._numbers[numbers]


def counts_path(shard: Path) -> Path:
    """Returns the path of the file of counts of a shard's split."""
    return shard.with_name(f"{shard.name[: -len('-00000-of-00001')]}.counts")


def _shard_counts(paths: list[Path]) -> tuple[list[str], np.ndarray]:
    """Returns the hash of each shard's index, and the counts of all shards, [rows] of dtype
    `COUNTS`.

    They are stored in a file, and computed again if the shards have changed since.
    """
    path = counts_path(paths[0])
    files = [
        (file.name, file.stat())
        for shard in paths
        for file in (shard, index_path(shard))
        if file.exists()
    ]
    key = hashlib.sha256(
        repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]).encode()
    ).hexdigest()
    with contextlib.suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        stored = np.load(io.BytesIO(path.read_bytes()))
        if str(stored["key"]) == key and stored["counts"].dtype == COUNTS:
            return stored["hashes"].tolist(), stored["counts"]
    hashes = []
    counts = []
    for shard, shard_file in enumerate(paths):
        index = read_index(shard_file)
        hashes.append(hash_of_rows(index))
        longest = np.maximum(index["source"], index["target"])
        lengths, rows = np.unique(longest, return_inverse=True)
        shard_counts = np.zeros(len(lengths), COUNTS)
        shard_counts["shard"] = shard
        shard_counts["length"] = lengths
        shard_counts["pairs"] = np.bincount(rows, minlength=len(lengths))
        for side in ("source", "target"):
            shard_counts[side] = np.bincount(rows, index[side], len(lengths))  # exact below 2^53
        counts.append(shard_counts)
    contents = io.BytesIO()
    all_counts = np.concatenate(counts)
    np.savez(contents, key=key, hashes=hashes, counts=all_counts)
    # If the disk is read-only, use the counts without saving them.
    with contextlib.suppress(UserError):
        write_file(path, contents.getvalue())
    return hashes, all_counts
