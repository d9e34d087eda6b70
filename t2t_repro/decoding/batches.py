"""Batches of texts of similar length. A batch that does not fit in memory is halved.

TensorFlow is imported inside functions, because t2t-decoder does not always need it.

In shapes, B is the number of texts, R the number of texts in a batch, and S the number of ids of
the longest text.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from t2t_repro.console.progress import say
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID, output_length
from t2t_repro.errors import memory_shortage

Item = TypeVar("Item")
Result = TypeVar("Result")

_say_once = functools.cache(say)


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns lists of token ids as one array, int32 [number of lists, longest length], padded with
    0.
    """
    array = np.full((len(rows), max(map(len, rows), default=0)), PAD_ID, np.int32)
    for array_row, row in zip(array, rows, strict=True):
        array_row[: len(row)] = row
    return array


def unpadded(ids: list[int]) -> list[int]:
    """Returns the ids up to and including the end token. Without an end token, returns the ids
    before the padding.
    """
    length = output_length(ids)
    if ids[length : length + 1] == [EOS_ID]:
        length += 1
    return ids[:length]


def batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yields batches as lists of indices of texts, the longest texts first. `lengths` are the
    texts' numbers of tokens.

    A batch has at most `batch_size` tokens, counting padding. A text with more tokens is the only
    text in its batch.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_size:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def run_in_batches(
    run: Callable[[list[Item]], list[Result]],
    items: Sequence[Item],
    lengths: Sequence[int],
    batch_size: int,
    threads: int,
) -> Iterator[tuple[int, Result]]:
    """Yields (index in `items`, result of `run`) for each item, in no particular order.

    Args:
        run: returns the results of the items of one batch, in their order.
        lengths: number of tokens of each item.
        batch_size: maximum number of tokens in a batch of several items, counting padding.
        threads: number of threads that may call `run` at the same time.
    """

    def run_batch(batch: list[int]) -> list[tuple[int, Result]]:
        try:
            results = run([items[index] for index in batch])
        except Exception as error:
            if len(batch) == 1 or not memory_shortage(error):
                raise
        else:
            return list(zip(batch, results, strict=True))
        _say_once("a batch is too large for memory and is halved; a smaller batch_size is faster")
        middle = len(batch) // 2
        return run_batch(batch[:middle]) + run_batch(batch[middle:])

    all_batches = list(batches(lengths, batch_size))
    if len(all_batches) == 1:
        # A single text is translated in less time than a thread needs to start.
        yield from run_batch(all_batches[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        for results in pool.map(run_batch, all_batches):
            yield from results


def graph_run_in_batches(
    run: Callable[..., tuple[Any, ...]], ids: Sequence[Any], results: Sequence[Any], batch_size: int
) -> tuple[Any, ...]:
    """Applies `run` to batches of texts inside a TensorFlow graph. The batches equal those that
    `batches` yields.

    Args:
        run: function that takes, for each tensor in `ids`, that tensor's rows for a batch, int32
            [R, S]. It returns tensors [R, ...].
        ids: tensors int32 [B, S], padded with 0. With several tensors, such as sources and targets,
            the length of a text is that of the text's longest row.
        results: tensors [B, ...], into which the results of `run` are written. A dimension that is
            too small for a result grows; new elements are 0.
        batch_size: maximum number of tokens in a batch of several texts, counting padding.

    Returns:
        The results of all texts, [B, ...] each, in the order of the texts.
    """
    import tensorflow as tf

    lengths_of_ids = [tf.math.count_nonzero(array, axis=1, dtype=tf.int32) for array in ids]
    lengths = tf.reduce_max(tf.stack(lengths_of_ids), axis=0)
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)

    def run_batch(start: Any, results: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        longest = tf.maximum(lengths[order[start]], 1)
        rows = order[start : start + tf.maximum(batch_size // longest, 1)]
        outputs = run(*(tf.gather(array, rows)[:, :longest] for array in ids))
        written = tuple(
            _write_rows(result, rows, output)
            for result, output in zip(results, outputs, strict=True)
        )
        return start + tf.size(rows), written

    # Without parallel_iterations=1, TensorFlow may run several batches at the same time and needs
    # memory for each.
    shapes = tuple(tf.TensorShape([None] * result.shape.rank) for result in results)
    _, all_results = tf.while_loop(
        lambda start, results: start < tf.size(order),
        run_batch,
        (tf.constant(0), tuple(results)),
        (tf.TensorShape([]), shapes),
        parallel_iterations=1,
    )
    return tuple(all_results)


def _write_rows(result: Any, rows: Any, output: Any) -> Any:
    """Returns `result` [B, ...] with `output` [R, ...] in the rows whose indices are `rows`.

    Pads `result` and `output` first, so that they agree in all dimensions but the first.
    """
    import tensorflow as tf

    shape = tf.maximum(tf.shape(result)[1:], tf.shape(output)[1:])

    def fitted(tensor: Any) -> Any:
        missing = shape - tf.shape(tensor)[1:]
        # The padding goes to the end of each dimension; the first dimension gets none.
        return tf.pad(tensor, tf.pad(missing[:, None], [[1, 0], [1, 0]]))

    return tf.tensor_scatter_nd_update(fitted(result), rows[:, None], fitted(output))
