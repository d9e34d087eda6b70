"""Writes shards of records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from t2t_repro.data.records import chunk, write_chunks
from t2t_repro.data.serialization import Ids


def write_shard(path: Path, examples: Iterable[tuple[Ids, Ids]]) -> np.ndarray:
    """Writes pairs of source ids and target ids as a shard and its index. Returns the index."""
    return write_chunks(path, [chunk(examples)])
