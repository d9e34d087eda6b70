"""Pairs of texts to pieces of shards, in several processes; the result does not depend on how many."""

from __future__ import annotations

import collections
import itertools
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import NamedTuple

import numpy as np

from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import records
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError

PORTION_PAIRS = 2000
"""Pairs that a process takes at once."""


Portion = list[tuple[str, str]]
"""Source and target texts that a process takes at once."""


def portions(pairs: Iterable[Pair]) -> Iterator[Portion]:
    """The texts of `pairs`, `PORTION_PAIRS` at a time."""
    texts = ((pair["inputs"], pair["targets"]) for pair in pairs)
    return iter(lambda: list(itertools.islice(texts, PORTION_PAIRS)), [])


class WorkerLostError(UserError):
    """A process that tokenised is no more."""


class Encoded(NamedTuple):
    """What became of some pairs."""

    chunk: records.Chunk
    """Their records."""
    counts: Counter[str]
    """"text_bytes": bytes of the text, UTF-8. "byte_pieces": ids among the records' that are a single byte."""


class Encoder:
    """Turns text into records; a context manager, since it may hold processes.

    Args:
        words: the vocabulary.
        processes: how many take part; 1 is this one alone.
    """

    def __init__(self, words: Vocabulary, processes: int) -> None:
        self._words, self._processes = words, processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Encoder:
        if self._processes == 1:
            _start(self._words.model)
        else:
            # Not forked: a process that has loaded TensorFlow, as the trainer may have, must not be.
            self._pool = ProcessPoolExecutor(
                self._processes, multiprocessing.get_context("spawn"), _start_process, (self._words.model,)
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def encode(self, portions: Iterable[Portion]) -> Iterator[Encoded]:
        """What becomes of each portion, in order.

        Raises:
            WorkerLostError: a process died.
        """
        return map(_encode, portions) if self._pool is None else self._in_processes(self._pool, portions)

    def _in_processes(self, pool: ProcessPoolExecutor, portions: Iterable[Portion]) -> Iterator[Encoded]:
        """`_encode` of each portion; few are under way at a time, so that memory does not grow with the text."""
        under_way: collections.deque[Future[Encoded]] = collections.deque()
        try:
            for portion in portions:
                under_way.append(_submit(pool, portion))
                if len(under_way) > 3 * self._processes:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenProcessPool:
            raise WorkerLostError(
                "a process that tokenised died, most likely for lack of memory; what is done is kept: run t2t-datagen "
                f"again with --num_concurrent_processes={max(1, self._processes // 2)} (in a script of your own, "
                'call this under if __name__ == "__main__")'
            ) from None


def _submit(pool: ProcessPoolExecutor, portion: Portion) -> Future[Encoded]:
    """Hands a portion over; that may start a process, and interrupts, the parent's business, stay blocked in it."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return pool.submit(_encode, portion)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


_words: Vocabulary
_is_byte: np.ndarray


def _start(model: bytes) -> None:
    global _words, _is_byte
    _words = Vocabulary(model)
    _is_byte = _words.is_byte


def _start_process(model: bytes) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _start(model)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its children; they would wait for work for ever."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _encode(pairs: Portion) -> Encoded:
    texts = list(itertools.chain.from_iterable(pairs))
    ids = _words.encode(texts, num_threads=1)  # the processes share the cores
    byte_pieces = int(_is_byte[np.fromiter(itertools.chain.from_iterable(ids), np.int64)].sum())
    counts = Counter(text_bytes=sum(len(text.encode()) for text in texts), byte_pieces=byte_pieces)
    return Encoded(records.chunk(zip(ids[::2], ids[1::2], strict=True)), counts)
