"""Tests that the workers in TF_CONFIG find each other, compare their flags and weights, and end
together.
"""

import json
import socket

import pytest
import tensorflow as tf

from clusters import free_addresses, start, tf_config
from t2t_repro.training.distribution import lost, make_strategy, workers
from user_errors import user_error

TWO = ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        (tf_config({"worker": ["a:1"]}), 1),
        (tf_config({"worker": TWO}, index=1), 2),
        (tf_config({"chief": ["[::1]:2222"], "worker": TWO}, "chief"), 3),
    ],
)
def test_tf_config_decides_the_number_of_workers(
    text: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    assert workers() == count
    monkeypatch.delenv("TF_CONFIG")
    assert workers() == 1


@pytest.mark.parametrize(
    "text",
    [
        "{'cluster'",
        tf_config({"worker": {"0": "a:1"}}),
        tf_config({"worker": ["a:1", "grpc://b:2"]}),
        tf_config({"worker": TWO, "ps": ["c:3"]}),
        tf_config({"chief": TWO}, "chief"),
        tf_config({"chief": ["a:1"], "worker": TWO}),
        tf_config({"worker": TWO}, index=2),
        tf_config({"worker": TWO}, "evaluator"),
        json.dumps({"cluster": {"worker": TWO}}),
    ],
)
def test_a_wrong_tf_config_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    assert user_error(workers).startswith(f"TF_CONFIG={text}: not like ")


def test_more_gpus_than_the_machine_has_are_refused() -> None:
    count = len(tf.config.list_physical_devices("GPU"))
    message = user_error(make_strategy, count + 1)
    assert message.startswith(f"--worker_gpu={count + 1}: GPUs that TensorFlow sees here: {count};")


# Error messages of TensorFlow 2.21. KILLED: a worker was killed. UNEQUAL: the workers had 2 devices
# and 1 device.
KILLED = """Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "loop.py", line 121, in train

Collective ops is aborted by: Collective ops is aborted by: Socket closed
The error could be from a previous operation. Restart your program to reset.
\t [[{{node CollectiveReduceV2}}]] [Op:__inference__run_whole_4071]"""
UNEQUAL = (
    "Collective ops is aborted by: Device CPU:0 is joining a group with size4, but that group has "
    "size 2"
)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (KILLED, "lost the connection to the other workers (Socket closed); read "),
        ("Broken pipe\nand more", "(Broken pipe); read "),
        (UNEQUAL, "different numbers of GPUs; give each --worker_gpu=N"),
    ],
)
def test_a_lost_worker_is_one_line(message: str, line: str) -> None:
    error = str(lost(tf.errors.UnavailableError(None, None, message)))
    assert line in error and "\n" not in error


MEETING = """
import json, signal, sys
import tensorflow as tf
from t2t_repro.errors import UserError
from t2t_repro.training.distribution import (
    from_all, from_chief, leave_together, local_replicas, make_strategy, refuse_differences
)

index = int(sys.argv[1])
strategy = make_strategy()
replicas = []
strategy.experimental_distribute_values_from_function(
    lambda context: replicas.append(context.replica_id_in_sync_group) or tf.constant(0)
)
results = [list(local_replicas(strategy)), replicas]
results += [from_chief(strategy, 10 + index), from_all(strategy, (10 + index) << 33)]
refuse_differences(strategy, 2**32 - 1, "nothing differs")
try:
    refuse_differences(strategy, 5 + index, "they differ")
except UserError as error:
    results += [str(error)]
results += [signal.getsignal(signal.SIGTERM) == signal.SIG_DFL]  # TensorFlow's handler is gone
print(json.dumps(results), flush=True)
leave_together(strategy)
"""


def test_a_chief_and_a_worker_exchange_values_and_an_address_in_use_is_named() -> None:
    chief, worker = free_addresses(2)
    cluster = {"worker": [worker], "chief": [chief]}
    processes = [
        start(MEETING, str(index), config=tf_config(cluster, kind))
        for index, kind in enumerate(("chief", "worker"))
    ]
    with socket.create_server(("localhost", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        refused = start(MEETING, "0", config=tf_config({"worker": [address, worker]})).result(
            timeout=120
        )
    assert f"UserError: TF_CONFIG: {address} cannot connect to the other 1 (" in refused.stderr
    for index, process in enumerate(processes):
        result = process.result(timeout=120)
        assert result.returncode == 0, result.stderr
        others = "the other 1" if index == 0 else f"the chief, {chief}"
        assert (
            f"worker {index} of 2, {(chief, worker)[index]}: waiting for {others}\n"
            in result.stderr
        )
        local, replicas, *compared = json.loads(result.stdout)
        assert local == replicas == [index]
        assert compared == [10, [10 << 33, 11 << 33], "they differ", True]
