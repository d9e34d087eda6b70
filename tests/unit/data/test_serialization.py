"""Tests of serialized examples against TensorFlow's own message class, `tf.train.Example`."""

from itertools import chain

import numpy as np
import pytest

from shards import Pairs, by_tensorflow
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


def lengths_of(pairs: Pairs) -> np.ndarray:
    return np.array([[len(ids) for ids in side] for side in zip(*pairs, strict=True)])


@pytest.mark.parametrize("ids", [[], [0], [*LIMITS, 2**31 - 1], [5] * 300])
def test_examples_are_serialized_as_by_tensorflow(ids: list[int]) -> None:
    assert serialize(ids, [7, 1]) == by_tensorflow(inputs=ids, targets=[7, 1])


@pytest.mark.parametrize("pairs", [PAIRS, PAIRS[::-1]])
def test_many_examples_are_parsed_at_once(pairs: Pairs) -> None:
    examples = [by_tensorflow(inputs=source, targets=target) for source, target in pairs]
    parsed = parse_many(examples, lengths_of(pairs))
    assert parsed is not None
    for ids, side in zip(parsed, zip(*pairs, strict=True), strict=True):
        assert ids.dtype == np.int32
        assert ids.tolist() == list(chain.from_iterable(side))


def field(tag: int, contents: bytes) -> bytes:
    """Returns a protobuf field of at most 127 bytes."""
    return bytes([tag, len(contents)]) + contents


def written_by_others() -> dict[str, tuple[bytes, list[int], list[int]]]:
    """Returns sound examples in unusual forms: serialized, the source ids and the target ids."""

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
