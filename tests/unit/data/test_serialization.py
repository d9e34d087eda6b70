"""Tests of serialized examples against TensorFlow's own message class, `tf.train.Example`."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.data.serialization import parse, parse_many, serialize

LIMITS = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**28 - 1]
"""Ids at which the number of bytes of a varint changes."""
PAIRS = [
    ([5, 300, 1], [7, 1]),
    ([1], [70_000, 1]),
    (LIMITS, LIMITS[::-1]),
    ([8] * 70_000, [1]),
    ([2], [9] * 1500),
]


def by_tensorflow(**sides: list[int]) -> bytes:
    """Returns an example as TensorFlow serializes it, with the sides in alphabetical order."""
    feature = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
        for name, ids in sides.items()
    }
    return bytes(
        tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(
            deterministic=True
        )
    )


def lengths_of(pairs: list[tuple[list[int], list[int]]]) -> np.ndarray:
    return np.array([[len(ids) for ids in side] for side in zip(*pairs, strict=True)])


@pytest.mark.parametrize("ids", [[], [0], [*LIMITS, 2**31 - 1], [5] * 300])
def test_examples_are_serialized_as_by_tensorflow(ids: list[int]) -> None:
    assert serialize(ids, [7, 1]) == by_tensorflow(inputs=ids, targets=[7, 1])


@pytest.mark.parametrize("pairs", [PAIRS, PAIRS[::-1]])
def test_many_examples_are_parsed_at_once(pairs: list[tuple[list[int], list[int]]]) -> None:
    parsed = parse_many(
        [by_tensorflow(inputs=pair[0], targets=pair[1]) for pair in pairs], lengths_of(pairs)
    )
    assert parsed is not None
    for ids, side in zip(parsed, zip(*pairs, strict=True), strict=True):
        assert ids.dtype == np.int32
        assert ids.tolist() == [id_ for side_ids in side for id_ in side_ids]


def field(tag: int, contents: bytes) -> bytes:
    """Returns a protobuf field of at most 127 bytes."""
    return bytes([tag, len(contents)]) + contents


def written_by_others() -> dict[str, tuple[bytes, list[int], list[int]]]:
    """Returns {description: (serialized example, source ids, target ids)} of sound examples in
    unusual forms.
    """

    def entry(name: bytes, packed: bytes) -> bytes:
        return field(10, field(10, name) + field(18, field(26, field(10, packed))))

    source = entry(b"inputs", b"\x05\x01")
    target = entry(b"targets", b"\x07\x01")
    unpacked = field(10, field(10, b"targets") + field(18, field(26, b"\x08\x07\x08\x01")))
    return {
        "targets first": (field(10, target + source), [5, 1], [7, 1]),
        "another feature": (
            field(10, source + entry(b"weights", b"\x03") + target),
            [5, 1],
            [7, 1],
        ),
        "not packed": (field(10, source + unpacked), [5, 1], [7, 1]),
        "twice": (field(10, source + target) + field(10, source), [5, 1], [7, 1]),
        "no target": (serialize([5, 1], []), [5, 1], []),
        "no source": (serialize([], [7, 1]), [], [7, 1]),
        "an id of 29 bits": (serialize([2**28, 1], [7, 1]), [2**28, 1], [7, 1]),
    }


@pytest.mark.parametrize("name", written_by_others())
def test_examples_in_another_form_are_left_to_tensorflow(name: str) -> None:
    example, source, target = written_by_others()[name]
    assert [ids.tolist() for ids in parse(example)] == [source, target]
    usual = serialize([4, 1], [4, 1])
    lengths = np.array([[2, len(source), 2], [2, len(target), 2]])
    assert parse_many([usual, example, usual], lengths) is None
    assert parse_many([usual, usual], lengths[:, ::2]) is not None


@pytest.mark.parametrize(
    "bad", [b"\xff" * 40, b"\x01" * 39, by_tensorflow(inputs=[-1, 1], targets=[4, 1])]
)
def test_examples_with_wrong_contents_are_left_to_tensorflow(bad: bytes) -> None:
    usual = serialize([4, 1], [4, 1])
    for examples in ([bad, usual], [usual, bad]):
        assert parse_many(examples, np.full((2, 2), 2)) is None


def test_lengths_of_another_example_are_refused() -> None:
    examples = [serialize([5, 6, 1], [7, 1]), serialize([5, 1], [7, 8, 1])]
    assert parse_many(examples, np.array([[3, 2], [2, 3]])) is not None
    for lengths in (
        [[2, 3], [3, 2]],
        [[2, 2], [3, 3]],
        [[3, 2], [1, 4]],
        [[4, 1], [2, 3]],
        [[3, 2], [2, 2]],
    ):
        assert parse_many(examples, np.array(lengths)) is None
