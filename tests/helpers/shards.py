"""Writes shards of records."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from t2t_repro.data.records import chunk, index_path, write_chunks
from t2t_repro.data.serialization import Ids


def write_shard(path: Path, examples: Iterable[tuple[Ids, Ids]]) -> np.ndarray:
    """Writes pairs of source ids and target ids as a shard and its index. Returns the index."""
    write_chunks(path, [chunk(examples)])
    return np.asarray(np.load(index_path(path)))
