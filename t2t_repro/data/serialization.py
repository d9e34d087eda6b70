"""Serializes pairs of source ids and target ids as `tf.train.Example`s, and parses them, one by one or many at once.

An example has the int64 lists "inputs" and "targets", like the examples of tensor2tensor.
"""

import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_repro.console.quiet import quiet_tensorflow

Ids = list[int]


def serialize(source: Ids, target: Ids) -> bytes:
    """Returns a serialized `tf.train.Example` with the int64 lists "inputs" and "targets".

    This module writes the protobuf fields itself: TensorFlow's message class would take seconds to import in each
    process that encodes text.
    """
    return _field(1, b"".join(_feature(name, ids) for name, ids in ((b"inputs", source), (b"targets", target))))


def _feature(name: bytes, ids: Ids) -> bytes:
    """Returns a map entry of a `tf.train.Example` as protobuf bytes: the name, and a Feature with the ids.

    Protobuf field numbers: 1 for the entry, the name and the packed ids, 2 for the Feature, and 3 for the int64_list.
    """
    packed = b"".join(map(_varint, ids))
    return _field(1, _field(1, name) + _field(2, _field(3, _field(1, packed) if ids else b"")))


def _field(number: int, contents: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(contents)) + contents


@functools.cache
def _varint(number: int) -> bytes:
    """Returns an unsigned number as protobuf's varint: seven bits per byte, lowest bits first."""
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])


def parse(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Returns the source ids and the target ids of a serialized `tf.train.Example`, as int32 arrays.

    Raises ValueError if the bytes are not a `tf.train.Example`, or an id is negative or has more than 31 bits.
    """
    from google.protobuf.message import DecodeError

    try:
        feature = _tensorflow().train.Example.FromString(data).features.feature
        source, target = (np.array(feature[name].int64_list.value, np.int32) for name in ("inputs", "targets"))
    except (DecodeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if min(source.min(initial=0), target.min(initial=0)) < 0:
        raise ValueError("an id is negative")
    return source, target


def parse_many(examples: Sequence[bytes], lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Parses N serialized examples at once, which takes a fraction of the time of `parse`.

    `lengths`, int [2, N], has the numbers of source ids (row 0) and target ids (row 1) of each example.

    Returns the source ids of all examples, one example after another, and the target ids, as int32 arrays. Returns None
    if an example is damaged or has other lengths.
    """
    tf = _tensorflow()
    names, lists = ("inputs", "targets"), tf.io.RaggedFeature(tf.int64)
    try:
        with tf.device("cpu"):
            parsed = tf.io.parse_example(tf.constant(examples, tf.string), dict.fromkeys(names, lists))
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # TensorFlow's message quotes the bytes
        return None
    source, target = (parsed[name].values.numpy() for name in names)
    parsed_lengths = [parsed[name].row_lengths().numpy() for name in names]
    if not np.array_equal(parsed_lengths, lengths) or (source >> 31).any() or (target >> 31).any():
        return None
    return source.astype(np.int32), target.astype(np.int32)


def _tensorflow() -> Any:
    if "tensorflow" not in sys.modules:
        with quiet_tensorflow():
            import tensorflow  # noqa: F401
    import tensorflow as tf

    return tf
