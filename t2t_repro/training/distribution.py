"""Connects the devices and worker processes of a training run, and compares values between the
workers.
"""

import contextlib
import functools
import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.console.progress import say
from t2t_repro.errors import UserError, first_line, shortened

LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.InternalError,
    tf.errors.DeadlineExceededError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
)
"""Errors that TensorFlow raises in the other workers when one worker ends. `lost` turns them into
UserErrors.
"""


def make_strategy(worker_gpu: int = 0) -> Any:
    """Returns the tf.distribute strategy for training. Call this function before TensorFlow
    computes anything.

    If TF_CONFIG names several workers, the function waits up to an hour until all of them have
    started. The strategy then uses the devices of all workers. Otherwise it uses this machine's
    GPUs, or the CPU if there is no GPU. `worker_gpu` is the number of GPUs to use on each machine;
    0 uses all.

    Raises UserError if this machine has too few GPUs, TF_CONFIG is wrong, or the workers cannot
    connect.
    """
    addresses, index = _cluster()
    _choose_gpus(worker_gpu)
    if len(addresses) == 1:
        return tf.distribute.MirroredStrategy()
    others = f"the chief, {addresses[0]}" if index else f"the other {len(addresses) - 1}"
    say(f"worker {index} of {len(addresses)}, {addresses[index]}: waiting for {others}")
    try:
        with _python_signals():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.OpError as error:
        # TensorFlow cannot listen on the port of this worker, has waited an hour, or has lost
        # another worker.
        raise UserError(
            f"TF_CONFIG: {addresses[index]} cannot connect to {others} ({first_line(error)}); "
            "start all workers together, each with its own TF_CONFIG, on ports that are free and "
            "that the others reach"
        ) from None


def count_replicas(worker_gpu: int = 0) -> int:
    """Returns the number of replicas that `make_strategy` would use on this machine, without
    waiting for others.
    """
    _choose_gpus(worker_gpu)
    # Does not list the GPUs as logical devices, because TensorFlow would then allocate almost all
    # of their memory.
    gpus = tf.config.get_visible_devices("GPU")
    return len(gpus) or (len(tf.config.list_logical_devices("CPU")) if workers() == 1 else 1)


def _choose_gpus(worker_gpu: int) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if worker_gpu > len(gpus):
        raise UserError(
            f"--worker_gpu={worker_gpu}: GPUs that TensorFlow sees here: {len(gpus)}; give 0 to "
            "use all"
        )
    if worker_gpu:
        tf.config.set_visible_devices(gpus[:worker_gpu], "GPU")


@contextlib.contextmanager
def _python_signals() -> Iterator[None]:
    """Returns a context in which Ctrl-C ends the process. Its end restores the handlers that
    TensorFlow replaces.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Python calls its own Ctrl-C handler only after TensorFlow stops waiting. SIG_DFL ends the
    # process immediately.
    if handlers[signal.SIGINT] == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def workers() -> int:
    """Returns the number of worker processes that TF_CONFIG names; 1 if TF_CONFIG is not set."""
    return len(_cluster()[0])


def _cluster() -> tuple[list[str], int]:
    """Returns the addresses of all workers in TF_CONFIG, the chief's first, and this process's
    index in that list.
    """
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        cluster = config.get("cluster", {})
        task = config.get("task", {})
        chiefs = cluster.get("chief", [])
        addresses = [*chiefs, *cluster.get("worker", [])]
        # tf.distribute ignores the task of a single worker.
        index = addresses.index(cluster[task["type"]][task["index"]]) if len(addresses) > 1 else 0
        are_addresses = all(re.fullmatch(r"[^\s/]+:\d+", address) for address in addresses)
        are_distinct = len(chiefs) <= 1 and len(set(addresses)) == len(addresses)
        if are_addresses and are_distinct and cluster.keys() <= {"chief", "worker"}:
            return addresses or [""], index
    except (ValueError, AttributeError, TypeError, LookupError):
        pass
    raise UserError(
        f"TF_CONFIG={shortened(text, 200)}: not like "
        '{"cluster": {"worker": ["host:port", "host:port"]}, '
        '"task": {"type": "worker", "index": 0}}, with each '
        "address once and at most one chief; see docs/distributed.md, or unset it"
    )


def local_replicas(strategy: Any) -> range:
    """Returns the numbers of the replicas that belong to this process, among all replicas of the
    run.
    """
    count = int(strategy.num_replicas_in_sync) // workers()  # every worker has equally many
    index = _cluster()[1]
    return range(index * count, (index + 1) * count)


def from_all(strategy: Any, value: int) -> list[int]:
    """Returns one number for each replica of the run: the `value` that the replica's worker passed
    to this function.

    The chief's replicas come first. Every worker must call this function.
    """
    if workers() == 1:
        return [value] * strategy.num_replicas_in_sync
    one_hot = value * np.eye(strategy.num_replicas_in_sync, dtype=np.int64)
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(one_hot[context.replica_id_in_sync_group])
    )
    return [int(number) for number in _sum_graph(strategy)(values).numpy()]


@functools.cache
def _sum_graph(strategy: Any) -> Any:
    # If `reduce` ran outside a graph, TensorFlow would create a thread pool and not close it when a
    # worker is lost.
    return tf.function(
        lambda values: strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None),
        autograph=False,
    )


def from_chief(strategy: Any, value: int) -> int:
    """Returns the `value` with which the chief called this function. Every worker must call this
    function.
    """
    return from_all(strategy, value)[0]


def leave_together(strategy: Any) -> None:
    """Waits until all workers call this function. Every worker must call it before it ends, after
    all other sums.

    If a worker ends right after a sum, it may close its connections before another worker has
    received the sum. The sum of the other worker then fails. No worker needs the sum that this
    function computes, so it ignores a failure.
    """
    with contextlib.suppress(*LOST):
        from_all(strategy, 0)


def refuse_differences(strategy: Any, value: int, message: str) -> None:
    """Raises UserError with `message` if `value` differs between workers. Every worker must call
    this function.
    """
    if len(set(from_all(strategy, value))) > 1:
        leave_together(strategy)
        raise UserError(message)


def lost(error: tf.errors.OpError) -> UserError:
    """Returns a UserError that says why the connection to the other workers was lost; `error` is
    one of `LOST`.
    """
    cause = re.search(r"aborted by: (?!.*aborted by: )(.+)", error.message)
    reason = cause[1].rstrip(":") if cause else first_line(error)
    if "joining a group with size" in reason:
        return UserError(
            "the machines of TF_CONFIG have different numbers of GPUs; give each --worker_gpu=N"
        )
    return UserError(
        f"lost the connection to the other workers ({reason}); read their last lines, then start "
        "all again with the same command: they resume from the last checkpoint"
    )
