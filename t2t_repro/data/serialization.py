"""Serializes pairs of source ids and target ids as `tf.train.Example`s, and parses them, one by one
or many at once.

An example has the int64 lists "inputs" and "targets", like the examples of tensor2tensor.
"""

import functools
import sys
from collections.abc import Sequence

import numpy as np

from t2t_repro.console.quiet import quiet_tensorflow

Ids = list[int]


def serialize(source: Ids, target: Ids) -> bytes:
    """Returns a serialized `tf.train.Example` with the int64 lists "inputs" and "targets".

    This module writes the protobuf fields itself: TensorFlow's message class would take seconds to
    import in each process that encodes text.
    """
    features = _feature(b"inputs", source) + _feature(b"targets", target)
    return _field(1, features)


def _feature(name: bytes, ids: Ids) -> bytes:
    """Returns a map entry of a `tf.train.Example` as protobuf bytes: the name, and a Feature with
    the ids.

    Protobuf field numbers: 1 for the entry, the name and the packed ids, 2 for the Feature, and 3
    for the int64_list.
    """
    packed_ids = b"".join(map(_varint, ids))
    int64_list = _field(1, packed_ids) if ids else b""
    return _field(1, _field(1, name) + _field(2, _field(3, int64_list)))


def _field(number: int, contents: bytes) -> bytes:
    return bytes([_tag(number)]) + _varint(len(contents)) + contents


def _tag(number: int) -> int:
    """Returns the byte before a field with a length: the field's number, and the wire type 2."""
    return number << 3 | 2


@functools.cache
def _varint(number: int) -> bytes:
    """Returns an unsigned number as protobuf's varint: seven bits per byte, lowest bits first."""
    low = number & 0x7F
    high = number >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])


def parse(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Returns the source ids and the target ids of a serialized `tf.train.Example`, as int32
    arrays.

    Raises ValueError if the bytes are not a `tf.train.Example`, or an id is negative or has more
    than 31 bits.
    """
    if "tensorflow" not in sys.modules:
        with quiet_tensorflow():
            import tensorflow  # noqa: F401
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        feature = tf.train.Example.FromString(data).features.feature
        source, target = (
            np.array(feature[name].int64_list.value, np.int32) for name in ("inputs", "targets")
        )
    except (DecodeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if min(source.min(initial=0), target.min(initial=0)) < 0:
        raise ValueError("an id is negative")
    return source, target


SIZE = -1
"""Stands in `HEADS` for the size of what follows, which differs from example to example."""


def _feature_head(name: bytes) -> list[int]:
    """Returns what `_feature` writes before the ids."""
    entry = [_tag(1), SIZE, _tag(1), len(name), *name]
    return [*entry, _tag(2), SIZE, _tag(3), SIZE, _tag(1), SIZE]


HEADS = (
    np.array([_tag(1), SIZE, *_feature_head(b"inputs")]),
    np.array(_feature_head(b"targets")),
)
"""The varints of an example before its source ids, and those between its source ids and its target
ids.
"""


def parse_many(
    examples: Sequence[bytes], lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Parses N examples at once if each has ids on both sides, in the form in which `serialize`
    writes them.

    Such an example is a sequence of varints, because each tag and each letter of a name is a varint
    of one byte too. So numpy can decode all examples together.

    Args:
        examples: the serialized examples, at least one, whose checksums are right.
        lengths: int [2, N], number of source ids (row 0) and target ids (row 1) of each example.

    Returns:
        The source ids of all examples, one example after another, and the target ids, as int32
        arrays. None if an example has other lengths, an id with more than 28 bits or another form,
        e.g. tensor2tensor's; use `parse` then.
    """
    if not lengths.all():
        return None
    values = _varints(np.frombuffer(b"".join(examples), np.uint8))
    counts = lengths + [[len(head)] for head in HEADS]
    if len(values) != counts.sum():
        return None
    # [2, N], for each side, the index in `values` after the last id. An example's target follows
    # its source, so the sum runs over both sides of an example before the next example.
    ends = np.cumsum(counts.T).reshape(-1, 2).T
    sides = []
    for head, side_ends, side_lengths in zip(HEADS, ends, lengths, strict=True):
        starts = side_ends - side_lengths
        heads = values[starts[:, None] + np.arange(-len(head), 0)]
        if not ((heads == head) | (head == SIZE)).all():
            return None
        # The ids of an example are as far from their places in the result as its first id is.
        first_places = np.cumsum(side_lengths) - side_lengths
        distances = np.repeat(starts - first_places, side_lengths)
        sides.append(values[distances + np.arange(len(distances))])
    source, target = sides
    return source, target


def _varints(contents: np.ndarray) -> np.ndarray:
    """Decodes bytes as a sequence of varints, int32. A byte of a varint is 128 or more, except the
    last one.

    Returns no values if one has more than 28 bits, or the last varint is cut off.
    """
    last = np.flatnonzero(contents < 128)
    values = contents[last].astype(np.int32)
    # Indices of the varints that have a byte at `places`, before the bytes that were read.
    longer = np.flatnonzero(contents[last - 1] >= 128)
    places = last[longer] - 1
    for _ in range(3):
        values[longer] = values[longer] << 7 | contents[places] & 127
        still_longer = np.flatnonzero(contents[places - 1] >= 128)
        longer = longer[still_longer]
        places = places[still_longer] - 1
    return values if contents[-1] < 128 and not len(longer) else values[:0]
