"""Writes and reads shards of records."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_repro.data.records import Records, chunk, index_path, shard_path, write_chunks
from t2t_repro.data.serialization import Ids

Pairs = list[tuple[Ids, Ids]]
"""Pairs of source ids and target ids."""


def write_shard(path: Path, examples: Iterable[tuple[Ids, Ids]]) -> np.ndarray:
    """Writes pairs of source ids and target ids as a shard and its index. Returns the index."""
    write_chunks(path, [chunk(examples)])
    return np.asarray(np.load(index_path(path)))


def write_shards(folder: Path, *shards: Pairs) -> list[Path]:
    """Writes the shards of the train split of the problem "toy". Returns their paths."""
    paths = []
    for number, pairs in enumerate(shards):
        paths.append(shard_path(folder, "toy", "train", number, len(shards)))
        write_shard(paths[-1], pairs)
    return paths


def pairs_of(records: Records) -> Pairs:
    """Returns the ids of all records."""
    pairs = [records[number] for number in range(len(records))]
    return [(source.tolist(), target.tolist()) for source, target in pairs]


def by_tensorflow(**sides: Ids) -> bytes:
    """Returns an example as TensorFlow serializes it, with the sides in alphabetical order."""
    feature = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
        for name, ids in sides.items()
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return bytes(example.SerializeToString(deterministic=True))
