"""Encodes pairs of texts as chunks of shards, in several processes. The result does not depend on their number."""

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
"""Number of pairs in a portion."""

Portion = list[tuple[str, str]]
"""Pairs of source and target text that a process encodes at a time."""


def portions(pairs: Iterable[Pair]) -> Iterator[Portion]:
    """Divides pairs into portions of `PORTION_PAIRS`."""
    texts = ((pair["inputs"], pair["targets"]) for pair in pairs)
    return iter(lambda: list(itertools.islice(texts, PORTION_PAIRS)), [])


class WorkerLostError(UserError):
    """A process that encoded text has died."""


class Encoded(NamedTuple):
    """The result of encoding a portion."""

    chunk: records.Chunk
    """The portion's records."""
    counts: Counter[str]
    """Under "text_bytes", UTF-8 bytes of the text; under "byte_pieces", ids in the records that are single bytes."""


class Encoder:
    """Encodes text as records. It is a context manager that ends its processes.

    Args:
        processes: number of processes; 1 uses only the calling process.
    """

    def __init__(self, vocabulary: Vocabulary, processes: int) -> None:
        self._vocabulary, self._processes = vocabulary, processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Encoder:
        if self._processes == 1:
            _load(self._vocabulary.model)
        else:
            # Spawned, not forked: the caller may have loaded TensorFlow, which does not survive a fork.
            self._pool = ProcessPoolExecutor(
                self._processes, multiprocessing.get_context("spawn"), _start_process, (self._vocabulary.model,)
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def encode(self, portions: Iterable[Portion]) -> Iterator[Encoded]:
        """Encodes portions, in order.

        Raises:
            WorkerLostError: if a process died.
        """
        return map(_encode, portions) if self._pool is None else self._in_processes(self._pool, portions)

    def _in_processes(self, pool: ProcessPoolExecutor, portions: Iterable[Portion]) -> Iterator[Encoded]:
        """Encodes portions in the pool. Only a few are submitted ahead, so that memory does not grow with the text."""
        pending: collections.deque[Future[Encoded]] = collections.deque()
        try:
            for portion in portions:
                pending.append(_submit(pool, portion))
                if len(pending) > 3 * self._processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise WorkerLostError(
                "a process that encoded text died, probably for lack of memory; finished shards are kept: run "
                f"t2t-datagen again with --num_concurrent_processes={max(1, self._processes // 2)} (in a script, "
                'call it under if __name__ == "__main__")'
            ) from None


def _submit(pool: ProcessPoolExecutor, portion: Portion) -> Future[Encoded]:
    """Submits a portion. This may start a process, in which SIGINT stays blocked: only the parent handles Ctrl-C."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return pool.submit(_encode, portion)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


_vocabulary: Vocabulary
_is_byte: np.ndarray


def _load(model: bytes) -> None:
    """Loads the vocabulary with which this process encodes."""
    global _vocabulary, _is_byte
    _vocabulary = Vocabulary(model)
    _is_byte = _vocabulary.is_byte


def _start_process(model: bytes) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _load(model)


def _end_with_parent() -> None:
    """Ends this process when its parent ends: a killed parent cannot end its children, which would wait forever."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _encode(portion: Portion) -> Encoded:
    texts = list(itertools.chain.from_iterable(portion))
    ids = _vocabulary.encode(texts, num_threads=1)  # one thread, because the processes share the cores
    byte_pieces = int(_is_byte[np.fromiter(itertools.chain.from_iterable(ids), np.int64)].sum())
    counts = Counter(text_bytes=sum(len(text.encode()) for text in texts), byte_pieces=byte_pieces)
    return Encoded(records.chunk(zip(ids[::2], ids[1::2], strict=True)), counts)
