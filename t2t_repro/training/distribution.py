"""On what devices a training runs: those of this machine, or of all that TF_CONFIG names."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro import devices
from t2t_repro.errors import UserError
from t2t_repro.progress import say

LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError, tf.errors.DeadlineExceededError,
        tf.errors.CancelledError, tf.errors.FailedPreconditionError)  # fmt: skip
"""What TensorFlow raises in the other workers where one has gone; `lost` says it in a line."""


def make_strategy(worker_gpu: int = 0) -> Any:
    """A strategy over this machine's GPUs, its CPU where it has none, or over all workers of TF_CONFIG.

    It must be made before TensorFlow has computed anything. With several workers it waits until all are there, an hour
    at most.

    Args:
        worker_gpu: GPUs to use of each machine; 0 is all.

    Raises:
        UserError: fewer GPUs than that, a TF_CONFIG that is none, an address of it that cannot be taken, or workers
            that do not come.
    """
    devices.use_exact_float32()
    addresses, own = _cluster()
    _choose_gpus(worker_gpu)
    if len(addresses) == 1:
        return tf.distribute.MirroredStrategy()
    awaited = f"the chief, {addresses[0]}" if own else f"the other {len(addresses) - 1}"
    say(f"worker {own} of {len(addresses)}, {addresses[own]}: waiting for {awaited}")
    try:
        with _signals_as_before():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.DeadlineExceededError:
        raise UserError(
            f"waited an hour for {awaited}; start all workers together, each with its own TF_CONFIG, and see that they "
            "reach each other's ports"
        ) from None
    except tf.errors.OpError as error:
        if "server" not in error.message.lower():  # "Could not start gRPC server"
            raise lost(error) from None
        raise UserError(
            f"TF_CONFIG: {addresses[own]} cannot be listened on ({_first_line(error)}); end the process that has this "
            "port, or give another"
        ) from None


def count_replicas(worker_gpu: int = 0) -> int:
    """The devices of this machine that `make_strategy` would take; no other worker is waited for.

    Raises:
        UserError: fewer GPUs than `worker_gpu`, or a TF_CONFIG that is none.
    """
    _choose_gpus(worker_gpu)
    devices = tf.config.list_logical_devices("GPU")
    return len(devices) or (len(tf.config.list_logical_devices("CPU")) if workers() == 1 else 1)


def _choose_gpus(worker_gpu: int) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if worker_gpu > len(gpus):
        raise UserError(f"--worker_gpu={worker_gpu}: TensorFlow sees {len(gpus)} GPUs here; 0 takes all there are")
    if worker_gpu:
        tf.config.set_visible_devices(gpus[:worker_gpu], "GPU")


@contextmanager
def _signals_as_before() -> Iterator[None]:
    """Lets Ctrl-C end the process while TensorFlow waits, and afterwards takes SIGTERM back from it."""
    if threading.current_thread() is not threading.main_thread():  # no other may handle signals
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if before[signal.SIGINT] == signal.default_int_handler:  # which would come to nothing before the wait is over
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def workers() -> int:
    """How many processes train together, by TF_CONFIG; 1 without it.

    Raises:
        UserError: TF_CONFIG is not what docs/distributed.md describes.
    """
    return len(_cluster()[0])


def _cluster() -> tuple[list[str], int]:
    """The addresses in TF_CONFIG, the chief's first, and which of them is this process's."""
    cure = "see docs/distributed.md, or unset it"
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    except ValueError as error:
        raise UserError(f"TF_CONFIG: it is not JSON ({error}); {cure}") from None
    cluster = config.get("cluster", {}) if isinstance(config, dict) else None
    if not isinstance(cluster, dict) or not all(map(_are_addresses, cluster.values())):
        raise UserError(f'TF_CONFIG: its "cluster" is not like {{"worker": ["host:port", "host:port"]}}; {cure}')
    chiefs, others = cluster.get("chief", []), cluster.get("worker", [])
    if kinds := sorted(cluster.keys() - {"chief", "worker"}):
        raise UserError(f"TF_CONFIG: tasks of type {kinds[0]!r}; there may be workers, and a chief; {cure}")
    if len(chiefs) > 1 or len({*chiefs, *others}) < len(chiefs + others):
        raise UserError(f"TF_CONFIG: two chiefs, or the same address twice; {cure}")
    if len(chiefs + others) <= 1:
        return [*chiefs, *others, ""][:1], 0
    task = config.get("task")
    kind, index = (task.get("type"), task.get("index")) if isinstance(task, dict) else (None, None)
    own = cluster.get(kind, []) if isinstance(kind, str) else []
    if not isinstance(index, int) or not 0 <= index < len(own):
        raise UserError(
            f'TF_CONFIG: its "task" is {json.dumps(task)}, not like {{"type": "worker", "index": 0}} with a place in '
            f'"cluster"; {cure}'
        )
    return chiefs + others, (chiefs + others).index(own[index])


def _are_addresses(found: Any) -> bool:
    return isinstance(found, list) and all(re.fullmatch(r"[^\s/]+:\d+", str(each)) for each in found)


def is_chief(strategy: Any) -> bool:
    """Whether this process is the one that writes."""
    return bool(strategy.extended.should_checkpoint)


def from_all(strategy: Any, value: int) -> list[int]:
    """The `value` of each replica's process, the chief's first, in every process; all must call it."""
    if workers() == 1:
        return [value] * strategy.num_replicas_in_sync
    places = value * np.eye(strategy.num_replicas_in_sync, dtype=np.int64)
    own = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(places[context.replica_id_in_sync_group])
    )
    return [int(found) for found in _sum_of(strategy)(own).numpy()]


@functools.cache
def _sum_of(strategy: Any) -> Any:
    # As a graph: outside of one TensorFlow makes a pool of threads, and leaves it open where another worker is lost.
    return tf.function(lambda own: strategy.reduce(tf.distribute.ReduceOp.SUM, own, axis=None), autograph=False)


def from_chief(strategy: Any, value: int) -> int:
    """The chief's `value`, in every process; all must call it."""
    return from_all(strategy, value)[0]


def refuse_other_flags(strategy: Any, **values: int) -> None:
    """Refuses flags that are not the same in all processes, in each of them; all must call it.

    Raises:
        UserError: names the flag and its values.
    """
    for name, value in values.items():
        found = sorted(set(from_all(strategy, value)))
        if len(found) > 1:
            raise UserError(
                f"--{name} is {' and '.join(map(str, found))} on different workers; start all with the same command"
            )


def refuse_other_weights(strategy: Any, variables: Sequence[Any]) -> None:
    """Refuses variables that are not the same in all processes, in each of them; all must call it.

    Raises:
        UserError: names the folders from which they may have come.
    """
    if workers() == 1:
        return
    checksum = 0
    for variable in variables:
        checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
    if len(set(from_all(strategy, checksum))) > 1:
        raise UserError(
            "the workers begin with different weights; --output_dir and --warm_start_from must be on a disk that all "
            "share"
        )


def lost(error: tf.errors.OpError) -> UserError:
    """What to say where one of `LOST` was raised and there are other workers."""
    found = re.search(r"aborted by: (?!.*aborted by: )(.+)", error.message)
    reason = found[1].rstrip(":") if found else _first_line(error)
    if "joining a group with size" in reason:
        return UserError("the machines of TF_CONFIG have different numbers of GPUs; give each --worker_gpu=N")
    return UserError(
        f"lost touch with the other workers ({reason}): see what they said last, and start all again with the same "
        "command: they go on from the last checkpoint"
    )


def _first_line(error: tf.errors.OpError) -> str:
    return str(error.message.strip().partition("\n")[0])
