"""Writes TFRecord shards, each with an index file, and reads and verifies any record.

A record holds a pair of source ids and target ids, see `serialization`. Shards of tensor2tensor
have the same format, so this module can read them. The index "<shard>.index" is a numpy array with
a row for each record: byte offset and size of the record's data, source length, target length. If
an index is missing, `read_index` rebuilds it.
"""

import contextlib
import functools
import hashlib
import io
import itertools
import operator
import os
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from t2t_repro.console.progress import say
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data.serialization import Ids, parse, parse_many, serialize
from t2t_repro.errors import UserError, shortened
from t2t_repro.files.output_files import whole_file, write_file
from t2t_repro.files.untrusted import require_regular

INDEX = np.dtype([("offset", "<i8"), ("size", "<i4"), ("source", "<i4"), ("target", "<i4")])

HEAD = 12
"""Bytes of a record before its data: the size of the data, 8 bytes, and its checksum, 4 bytes."""
TAIL = 4
"""Bytes of a record after its data: the checksum of the data."""
FRAME = HEAD + TAIL

MAX_RECORD_BYTES = 1 << 26
"""Maximum size of a record. A pair of two sentences of 10,000 tokens has less than 100 kB."""

ANY_SIZES = (1 << 31, 1 << 31)
"""Numbers of ids in vocabularies of sources and targets that allow all ids of a record."""

PARSED_TOGETHER = 1024
"""Maximum number of records that are parsed at once. Parsing more at once is not faster, and needs
more memory.
"""


def shard_path(data_dir: str | Path, problem: str, split: str, shard: int, shards: int) -> Path:
    """Returns the path of a shard. The name has tensor2tensor's form:
    `<problem>-<split>-00000-of-00100`.
    """
    return Path(data_dir) / f"{problem}-{split}-{shard:05d}-of-{shards:05d}"


def find_files(data_dir: str | Path, problem: str, split: str) -> list[Path]:
    """Returns the paths of the existing shards and index files of a split, sorted by name."""
    digits = "[0-9]" * 5
    pattern = f"{problem}-{split}-{digits}-of-{digits}"
    return sorted(
        path for suffix in ("", ".index") for path in Path(data_dir).glob(pattern + suffix)
    )


def find_shards(data_dir: str | Path, problem: str, split: str) -> list[Path]:
    """Returns the paths of all shards of a split, ordered by number, or an empty list if no shard
    exists.

    Raises UserError if some shards are missing, or shards of different runs are mixed.
    """
    shards = [path for path in find_files(data_dir, problem, split) if path.suffix != ".index"]
    total = int(shards[0].name[-5:]) if shards else 0
    expected = [shard_path(data_dir, problem, split, number, total) for number in range(total)]
    for path in sorted(set(expected) ^ set(shards)):
        reason = f"not from the run of {shards[0].name}"
        if path in expected:
            reason = "this shard is missing"
        raise UserError(
            f"{path}: {reason}; copy the shards of one run here, or run t2t-datagen again"
        )
    return shards


def record(data: bytes) -> bytes:
    """Returns a record of a TFRecord file: the length of the data, the data, and the checksums of
    both.
    """
    return _head(len(data)) + data + _masked_crc(data)


Chunk = tuple[bytes, np.ndarray]
"""Bytes of consecutive records of a shard, and their index. Offsets in the index count from the
start of the chunk.
"""


def chunk(examples: Iterable[tuple[Ids, Ids]]) -> Chunk:
    """Returns pairs of source ids and target ids as a chunk of a shard."""
    rows = []
    parts = []
    offset = 0
    for source, target in examples:
        data = serialize(source, target)
        parts.append(record(data))
        rows.append((offset + HEAD, len(data), len(source), len(target)))
        offset += len(data) + FRAME
    return b"".join(parts), np.array(rows, INDEX)


def write_chunks(path: Path, chunks: Iterable[Chunk]) -> None:
    """Writes chunks as a shard, and writes the shard's index."""
    rows = [np.empty(0, INDEX)]
    offset = 0
    with whole_file(path) as file:
        for contents, index in chunks:
            file.write(contents)
            index["offset"] += offset
            rows.append(index)
            offset += len(contents)
    _save_index(path, np.concatenate(rows))


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(TAIL, "little")


def index_path(path: Path) -> Path:
    return path.with_name(path.name + ".index")


def _save_index(path: Path, index: np.ndarray) -> None:
    contents = io.BytesIO()
    # Into a file, numpy writes by itself, with errors that do not say what went wrong.
    np.save(contents, index)
    write_file(index_path(path), contents.getvalue())


def read_index(path: Path) -> np.ndarray:
    """Returns the index of a shard. If the index is missing or does not match the shard, rebuilds
    and saves it.
    """
    require_regular(path)
    if index_path(path).exists():
        require_regular(index_path(path))
        index: Any = None
        # For damaged files, numpy raises errors of many kinds, even SyntaxError.
        with contextlib.suppress(Exception):
            index = np.load(index_path(path))
        if _fits(index, path.stat().st_size):
            return index
        say(f"{index_path(path)}: does not match its shard; rebuilding it")
    index = _build_index(path)
    # If the disk is read-only, use the index without saving it.
    with contextlib.suppress(UserError):
        _save_index(path, index)
    return index


def _fits(index: Any, shard_size: int) -> bool:
    """Returns True if `index` is valid: its records follow each other and fill a shard of
    `shard_size` bytes.

    An id needs at least one byte, so a record cannot have more ids than bytes.
    """
    if not isinstance(index, np.ndarray) or index.dtype != INDEX or index.ndim != 1:
        return False
    sizes = index["size"].astype(np.int64)
    source = index["source"].astype(np.int64)
    target = index["target"]
    ends = np.cumsum(sizes + FRAME)
    end = int(ends[-1]) if len(ends) else 0
    if end != shard_size or not np.array_equal(index["offset"], ends - sizes - TAIL):
        return False
    is_valid = (source >= 0) & (target >= 0) & (source + target <= sizes)
    return bool(is_valid.all())


def hash_of_rows(index: np.ndarray) -> str:
    """Returns the SHA-256 of rows of an index, as hex digits."""
    return hashlib.sha256(index.view(np.uint8).data).hexdigest()


def shard_lines(paths: Sequence[Path], hashes: Sequence[str]) -> bytes:
    """Returns a line for each shard, with its file name and the hash of the rows of its index."""
    lines = [f"{path.name} {rows}\n" for path, rows in zip(paths, hashes, strict=True)]
    return "".join(lines).encode()


def _build_index(path: Path) -> np.ndarray:
    """Returns a new index of a shard, made from the shard's bytes. Verifies the checksums of all
    records.
    """
    rows: list[tuple[int, int, int, int]] = []
    offset = 0
    with open(path, "rb") as file:
        while head := file.read(HEAD):
            size = int.from_bytes(head[:8], "little")
            if head != _head(size) or size > MAX_RECORD_BYTES:
                raise _damaged(path, len(rows))
            stored = head + file.read(size + TAIL)
            if not _is_intact(stored, size):
                raise _damaged(path, len(rows))
            try:
                source, target = parse(stored[HEAD:-TAIL])
            except ValueError as error:
                raise _damaged(path, len(rows), error) from None
            rows.append((offset + HEAD, size, len(source), len(target)))
            offset += size + FRAME
    return np.array(rows, INDEX)


def _is_intact(stored: bytes, size: int) -> bool:
    """Returns True if a record of `size` bytes of data is complete and has the right checksums."""
    return len(stored) == size + FRAME and stored == record(stored[HEAD:-TAIL])


@functools.lru_cache(10_000)
def _head(size: int) -> bytes:
    """Returns the bytes of a record before its data."""
    length = size.to_bytes(8, "little")
    return length + _masked_crc(length)


def _damaged(path: Path, record: int, reason: object = "its checksum differs") -> UserError:
    return UserError(
        f"{path}: record {record} is damaged ({shortened(str(reason))}); copy the file here again "
        "or run t2t-datagen again"
    )


class Records:
    """All records of a split, by number. Numbers start at 0 and continue from shard to shard, in
    the order of `paths`.

    Args:
        paths: paths of the split's shards.
        was_reversed: True to swap sources and targets.
        vocab_sizes: numbers of ids in the vocabularies of sources and targets. A record with
            another id counts as damaged, which is a UserError when it is read.
        corpora: the corpora of the split, in the order of their records; by default one that has
            all records.
        indexes: the rows to use of each shard's index, in any order; by default all.
    """

    def __init__(
        self,
        paths: list[Path],
        was_reversed: bool = False,
        vocab_sizes: tuple[int, int] = ANY_SIZES,
        corpora: tuple[StoredCorpus, ...] = (),
        indexes: Sequence[np.ndarray] = (),
    ) -> None:
        self.paths = paths
        self._reversed = was_reversed
        self._vocab_sizes = vocab_sizes
        # A mapped file that another process truncates would end this process, without a message.
        self._files = [os.open(path, os.O_RDONLY) for path in paths]
        weakref.finalize(self, list, map(os.close, self._files))
        indexes = indexes or [read_index(path) for path in paths]
        self.starts = np.cumsum([0] + [len(index) for index in indexes])
        """int64 [shards + 1], number of the first record of each shard, and the number of records.
        """
        self._index = np.concatenate([np.empty(0, INDEX), *indexes])
        self.lengths = np.stack(
            [self._index[side] for side in ("source", "target")[:: -1 if was_reversed else 1]]
        )
        """int32 [2, N], number of source (row 0) and target tokens (row 1) of each record, counting
        end tokens.
        """
        self.corpora = corpora or (StoredCorpus(stop=len(self)),)
        """The corpora of the split, in the order of their records."""

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def index_lines(self) -> bytes:
        """A line for each shard, with its file name and the SHA-256 of the rows of its index."""
        bounds = itertools.pairwise(self.starts)
        hashes = [hash_of_rows(self._index[start:stop]) for start, stop in bounds]
        return shard_lines(self.paths, hashes)

    @property
    def index_fingerprint(self) -> str:
        """Hash of the names of the shards and of the sizes and lengths of all records, as hex
        digits.
        """
        return hashlib.sha256(self.index_lines).hexdigest()

    def tokens(self, start: int, stop: int) -> list[int]:
        """Returns the numbers of source and target tokens in the records `start` to `stop` - 1."""
        return self.lengths[:, start:stop].sum(axis=1, dtype=np.int64).tolist()

    def locate(self, number: int) -> tuple[Path, int]:
        """Returns the path of the shard that holds a record, and the record's number within the
        shard, from 0.
        """
        shard = int(np.searchsorted(self.starts, number, "right")) - 1
        return self.paths[shard], number - int(self.starts[shard])

    def numbers_in_split(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the numbers that records have in their split, uint32."""
        return numbers.astype(np.uint32)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the source ids and the target ids of a record, as int32 arrays."""
        [data] = self._data(np.array([number]))
        try:
            source, target = parse(data)
        except ValueError as error:
            raise _damaged(*self.locate(number), error) from None
        sides = (target, source) if self._reversed else (source, target)
        if [len(side) for side in sides] != self.lengths[:, number].tolist():
            raise _damaged(*self.locate(number), "its index has other lengths")
        for side, size in zip(sides, self._vocab_sizes, strict=True):
            if side.max(initial=0) >= size:
                raise _damaged(*self.locate(number), f"it has an id above {size - 1}")
        return sides

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the source ids of several records, one record after another, and their target
        ids, as int32 arrays.

        This is several times faster than reading the records one by one. `lengths` says how many
        ids each record has.
        """
        pieces = [(np.empty(0, np.int32), np.empty(0, np.int32))]
        for start in range(0, len(numbers), PARSED_TOGETHER):
            part = numbers[start : start + PARSED_TOGETHER]
            lengths = self.lengths[:, part]
            parsed = parse_many(self._data(part), lengths[::-1] if self._reversed else lengths)
            if parsed and self._reversed:
                parsed = parsed[::-1]
            if parsed and all(map(operator.lt, map(np.max, parsed), self._vocab_sizes)):
                pieces.append(parsed)
            else:  # A record is damaged, or another program wrote it.
                pieces += [self[number] for number in part.tolist()]
        source, target = map(np.concatenate, zip(*pieces, strict=True))
        return source, target

    def _data(self, numbers: np.ndarray) -> list[bytes]:
        """Returns the serialized examples of several records. Raises UserError if a checksum
        differs.
        """
        shards = np.searchsorted(self.starts, numbers, "right") - 1
        rows = self._index[numbers]
        columns = np.stack([numbers, shards, rows["offset"], rows["size"]])
        data = []
        for number, shard, offset, size in columns.T.tolist():
            try:
                stored = os.pread(self._files[shard], size + FRAME, offset - HEAD)
            except OSError as error:
                raise UserError(
                    f"{self.paths[shard]}: cannot be read ({error.strerror}); check the disk"
                ) from None
            if not _is_intact(stored, size):
                raise _damaged(*self.locate(number))
            data.append(stored[HEAD:-TAIL])
        return data
