"""Encodes pairs of texts as records, in one or more processes. Any number of processes gives the
same records.
"""

import collections
import itertools
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np

from t2t_repro.console.progress import say
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import records
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError

PORTION_PAIRS = 2000
"""Number of text pairs in a portion. The last portion of a shard may be smaller."""

Portion = list[tuple[str, str]]
"""Pairs of source and target text that a process encodes in one call."""


def portions(pairs: Iterable[Pair]) -> Iterator[Portion]:
    """Yields pairs in portions of `PORTION_PAIRS` pairs. The last portion may be smaller."""
    texts = ((pair["inputs"], pair["targets"]) for pair in pairs)
    return iter(lambda: list(itertools.islice(texts, PORTION_PAIRS)), [])


Encoded = tuple[records.Chunk, Counter[str]]
"""The records of a portion, and counts: for "text_bytes" the number of UTF-8 bytes in the text, for
"byte_pieces" that of ids that stand for one byte.
"""


def encode(
    portions: Iterable[Portion], vocabulary: Vocabulary, processes: int
) -> Generator[Encoded, None, None]:
    """Yields the encoded portions, in the order of `portions`.

    Close the generator (see `contextlib.closing`) to end the processes if you may stop before the
    last portion.

    With one process, the calling process encodes. Raises UserError if one of several processes
    died.
    """
    pool = _start_pool(vocabulary, processes) if processes > 1 else None
    if not pool:
        yield from (_encode_portion(portion, vocabulary) for portion in portions)
        return
    pending: collections.deque[Future[Encoded]] = collections.deque()
    try:
        for portion in portions:
            pending.append(_submit(pool, portion))
            # Submitting more portions would only need more memory.
            if len(pending) > 3 * processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            "a process that encoded text died, probably for lack of memory; run t2t-datagen again "
            f"with --num_concurrent_processes={max(1, processes // 2)} (in a script, call it "
            'under if __name__ == "__main__")'
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_pool(vocabulary: Vocabulary, processes: int) -> ProcessPoolExecutor | None:
    """Returns a pool of processes, or None if this machine has no semaphores, with which they
    communicate.
    """
    # Spawn the processes: forked processes do not work if the calling process has loaded
    # TensorFlow.
    context = multiprocessing.get_context("spawn")
    try:
        return ProcessPoolExecutor(processes, context, _start_process, (vocabulary,))
    except OSError as error:
        say(f"encoding in one process, because /dev/shm cannot be used ({error.strerror})")
        return None


def _submit(pool: ProcessPoolExecutor, portion: Portion) -> Future[Encoded]:
    """Submits a portion of text to the pool. A process that the pool starts in this call ignores
    Ctrl-C.

    So Ctrl-C interrupts only the calling process, which then ends the other processes.
    """
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return pool.submit(_encode_in_pool, portion)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


_vocabulary: Vocabulary
"""The vocabulary of a process of the pool."""


def _start_process(vocabulary: Vocabulary) -> None:
    global _vocabulary
    _vocabulary = vocabulary
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this encoding process when its parent ends. Otherwise it would wait forever after its
    parent is killed.
    """
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _encode_in_pool(portion: Portion) -> Encoded:
    return _encode_portion(portion, _vocabulary)


def _encode_portion(portion: Portion, vocabulary: Vocabulary) -> Encoded:
    sources, targets = zip(*portion, strict=True)
    # One thread per process: together, the processes use all cores.
    source_ids = vocabulary.encode_sources(sources, num_threads=1)
    target_ids = vocabulary.encode(targets, num_threads=1)
    byte_pieces = _byte_pieces(vocabulary.sources, source_ids)
    byte_pieces += _byte_pieces(vocabulary, target_ids)
    text_bytes = len("".join(sources + targets).encode())
    counts = Counter(text_bytes=text_bytes, byte_pieces=byte_pieces)
    return records.chunk(zip(source_ids, target_ids, strict=True)), counts


def _byte_pieces(vocabulary: Vocabulary, rows: list[list[int]]) -> int:
    """Returns the number of ids that stand for one byte."""
    ids = np.fromiter(itertools.chain.from_iterable(rows), np.int64)
    return int(vocabulary.is_byte[ids].sum())
