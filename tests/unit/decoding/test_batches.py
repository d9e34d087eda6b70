"""Tests that batches join texts of similar length, and that padding is removed from rows of ids."""

import random
import threading
from contextlib import nullcontext

import pytest
import tensorflow as tf

from t2t_repro.decoding.batches import (
    batches,
    graph_run_in_batches,
    padded,
    run_in_batches,
    unpadded,
)
from t2t_repro.decoding.tensorflow_engine import TensorFlowEngine


def test_batches_contain_each_index_once_and_start_with_the_longest() -> None:
    lengths = [3, 9, 4, 4, 50, 2]
    index_batches = list(batches(lengths, 12))
    assert sorted(index for batch in index_batches for index in batch) == list(range(len(lengths)))
    order = [lengths[index] for batch in index_batches for index in batch]
    assert order == sorted(order, reverse=True)
    assert all(len(batch) * lengths[batch[0]] <= 12 or len(batch) == 1 for batch in index_batches)
    assert list(batches([], 12)) == []


@pytest.mark.parametrize("batch_size", [1, 12, 1000])
def test_graphs_have_the_same_batches(batch_size: int) -> None:
    draw = random.Random(batch_size)
    lengths = [draw.randint(1, 9) for _ in range(20)]
    rows = padded([[10 * row + 1] * length for row, length in enumerate(lengths)])

    def run(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shape = tf.shape(ids)
        return ids, tf.fill([shape[0]], shape[0] * 100 + shape[1])

    results = [tf.zeros([20, 0], tf.int32), tf.zeros([20], tf.int32)]
    graph = tf.function(lambda ids: graph_run_in_batches(run, [ids], results, batch_size))
    ids, shapes = graph(rows)
    assert ids.numpy().tolist() == rows.tolist()
    expected = {
        row: len(batch) * 100 + lengths[batch[0]]
        for batch in batches(lengths, batch_size)
        for row in batch
    }
    assert dict(enumerate(shapes.numpy().tolist())) == expected


def test_rows_lose_their_padding_and_what_follows_the_end() -> None:
    rows = [[5, 6, 1], [5, 6, 7, 8], [1], [7]]
    assert padded(rows).tolist() == [[5, 6, 1, 0], [5, 6, 7, 8], [1, 0, 0, 0], [7, 0, 0, 0]]
    assert [unpadded(row) for row in padded(rows).tolist()] == rows
    assert unpadded([5, 1, 6, 1]) == [5, 1]
    assert padded([]).shape == (0, 0)


def test_batches_run_at_the_same_time_if_operations_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config.threading, "get_inter_op_parallelism_threads", lambda: 3)
    threads = TensorFlowEngine(None, lambda _: None).threads
    three_batches = threading.Barrier(3)

    def run(items: list[int]) -> list[int]:
        three_batches.wait(timeout=60)
        return [10 * item for item in items]

    results = dict(run_in_batches(run, range(12), [4] * 12, 8, threads))  # six batches of two items
    assert results == {number: 10 * number for number in range(12)}


@pytest.mark.parametrize(
    ("message", "capacity", "sizes"),
    [
        ("Dst tensor is not initialized.", 2, [9, 4, 2, 2, 5, 2, 3, 1, 2]),
        ("Dst tensor is not initialized.", 0, [9, 4, 2, 1]),
        ("Connection reset by peer", 0, [9]),
    ],
)
def test_only_a_batch_that_is_too_large_for_memory_is_halved(
    message: str, capacity: int, sizes: list[int]
) -> None:
    tried = []

    def run(items: list[int]) -> list[int]:
        tried.append(len(items))
        if len(items) > capacity:
            raise tf.errors.InternalError(None, None, message)
        return [10 * item for item in items]

    with nullcontext() if capacity else pytest.raises(tf.errors.InternalError):
        results = dict(run_in_batches(run, range(9), range(9), 100, threads=1))
        assert results == {number: 10 * number for number in range(9)}
    assert tried == sizes
