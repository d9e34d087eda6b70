"""Tests that the workers in TF_CONFIG find each other, compare their flags and weights, and end together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from clusters import free_addresses, start, tf_config
from t2t_repro.errors import UserError
from t2t_repro.training import distribution
from t2t_repro.training.distribution import (
    from_all,
    from_chief,
    is_chief,
    lost,
    make_strategy,
    refuse_other_flags,
    refuse_other_weights,
    workers,
)

TWO = ["a:1", "b:2"]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "distributed.md"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("{}", 1),
        (tf_config({}), 1),
        (tf_config({"worker": ["a:1"]}), 1),
        (tf_config({"chief": ["a:1"]}, "chief"), 1),
        (tf_config({"worker": TWO}, index=1), 2),
        (tf_config({"chief": ["[::1]:2222"], "worker": TWO}, "chief"), 3),
    ],
)
def test_tf_config_decides_the_number_of_workers(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    assert workers() == count
    monkeypatch.delenv("TF_CONFIG")
    assert workers() == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{'cluster'", "it is not JSON .* column 2"),
        ("[]", 'its "cluster" is not like'),
        (tf_config(TWO), 'its "cluster" is not like'),
        (tf_config({"worker": "a:1"}), 'its "cluster" is not like'),
        (tf_config({"worker": {"0": "a:1"}}), 'its "cluster" is not like'),
        (tf_config({"worker": ["a:1", "b"]}), 'its "cluster" is not like'),
        (tf_config({"worker": ["a:1", "grpc://b:2"]}), 'its "cluster" is not like'),
        (tf_config({"worker": TWO, "ps": ["c:3"]}), "tasks of type 'ps'"),
        (tf_config({"chief": TWO}, "chief"), "two chiefs"),
        (tf_config({"chief": ["a:1"], "worker": TWO}), "the same address twice"),
        (tf_config({"worker": TWO}, index=2), 'its "task" is {"type": "worker", "index": 2}'),
        (tf_config({"worker": TWO}, index=-1), '"index": -1'),
        (tf_config({"worker": TWO}, index="0"), '"index": "0"'),
        (tf_config({"worker": TWO}, "evaluator"), '"type": "evaluator"'),
        (tf_config({"worker": TWO}, None), '"type": null'),
        (tf_config({"worker": TWO}, ["worker"]), '"task"'),
        (json.dumps({"cluster": {"worker": TWO}}), 'its "task" is null'),
        (json.dumps({"cluster": {"worker": TWO}, "task": "worker"}), 'its "task" is "worker"'),
    ],
)
def test_a_wrong_tf_config_is_named(text: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match=f"^TF_CONFIG: .*{words}.*; see docs/distributed.md") as raised:
        workers()
    assert "\n" not in str(raised.value)


def test_more_gpus_than_the_machine_has_are_refused() -> None:
    count = len(tf.config.list_physical_devices("GPU"))
    with pytest.raises(UserError, match=rf"^--worker_gpu={count + 1}: TensorFlow sees {count} GPUs here"):
        make_strategy(count + 1)


def test_a_single_process_is_the_chief() -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    assert is_chief(strategy)
    assert from_chief(strategy, 7) == 7
    assert from_all(strategy, 7) == [7]


# Error messages of TensorFlow 2.21. KILLED: a worker was killed. SILENT: a worker ended before it connected. UNEQUAL:
# one worker had two devices, and the other worker had one.
KILLED = """Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "loop.py", line 121, in train

Collective ops is aborted by: Socket closed
Additional GRPC error information from remote target /job:worker/replica:0/task:0 while calling RecvBuf:
The error could be from a previous operation. Restart your program to reset.
\t [[{{node CollectiveReduceV2}}]] [Op:__inference__run_whole_4071]"""
SILENT = """{{function_node __wrapped__CollectiveBcastSend_device_/job:worker/task:0}} Collective ops is aborted by: \
Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks are unhealthy:
/job:worker/replica:0/task:1"""
UNEQUAL = "Collective ops is aborted by: Device CPU:0 is joining a group with size4, but that group has size 2"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (KILLED, "lost the connection to the other workers (Socket closed); read "),
        (SILENT, "(Error reported from /job:worker/task:1: The following tasks are unhealthy); read "),
        ("Broken pipe\nand more", "(Broken pipe); read "),
        (UNEQUAL, "different numbers of GPUs; give each --worker_gpu=N"),
    ],
)
def test_a_lost_worker_is_one_line(message: str, line: str) -> None:
    error = str(lost(tf.errors.UnavailableError(None, None, message)))
    assert line in error
    assert "\n" not in error


MEETING = """
import json, signal, sys
import tensorflow as tf
from t2t_repro.errors import UserError
from t2t_repro.training.distribution import (
    from_all, from_chief, is_chief, leave_together, local_replicas, make_strategy, refuse_other_flags,
    refuse_other_weights
)

index = int(sys.argv[1])
strategy = make_strategy()
weights = [tf.Variable([1.0, 2.0]), tf.Variable([3.0])]

def error_of(function, *arguments, **values):
    try:
        function(strategy, *arguments, **values)
    except UserError as error:
        return str(error)

replicas = []
strategy.experimental_distribute_values_from_function(
    lambda context: replicas.append(context.replica_id_in_sync_group) or tf.constant(0)
)
results = [list(local_replicas(strategy)), replicas]
results += [is_chief(strategy), from_chief(strategy, 10 + index), from_all(strategy, (10 + index) << 33)]
results += [error_of(refuse_other_flags, train_steps=5, max_tokens_per_replica=5 + index)]
results += [error_of(refuse_other_flags, train_steps=5), error_of(refuse_other_weights, weights)]
weights[index].assign_add(tf.fill(weights[index].shape, 1e-7 + index))
results += [error_of(refuse_other_weights, weights)]
print(json.dumps(results), flush=True)
print("ready to end", file=sys.stderr, flush=True)
leave_together(strategy) if index == 0 else signal.pause()
"""


def test_a_chief_and_a_worker_exchange_values_and_refuse_differences() -> None:
    chief, worker = free_addresses(2)
    cluster = {"worker": [worker], "chief": [chief]}
    processes = [
        start(MEETING, str(index), config=tf_config(cluster, kind)) for index, kind in enumerate(("chief", "worker"))
    ]
    for process in processes:
        process.wait_for("ready to end\n")
    # The worker ends while the chief waits for it in leave_together, which must not fail. SIGTERM ends the worker,
    # because make_strategy has removed the handler that TensorFlow set.
    processes[1].send_signal(signal.SIGTERM)
    for index, process in enumerate(processes):
        result = process.result(timeout=120)
        assert result.returncode == (0, -signal.SIGTERM)[index], result.stderr
        others = "the other 1" if index == 0 else f"the chief, {chief}"
        assert f"worker {index} of 2, {(chief, worker)[index]}: waiting for {others}\n" in result.stderr
        local, replicas, *compared = json.loads(result.stdout)
        assert local == replicas == [index]
        chief_here, chief_value, values, other_flags, same_flags, same_weights, other_weights = compared
        assert (chief_here, chief_value, values) == (index == 0, 10, [10 << 33, 11 << 33])
        assert (
            other_flags == "--max_tokens_per_replica is 5 and 6 on different workers; start all with the same command"
        )
        assert same_flags is same_weights is None
        assert "different weights" in other_weights


@pytest.mark.parametrize(
    "refuse", [lambda: refuse_other_flags(None, train_steps=5), lambda: refuse_other_weights(None, [])]
)
def test_workers_that_differ_wait_for_each_other_before_they_refuse(
    refuse: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without waiting, the first worker could close its connections before the second has received the sum.
    calls: list[str] = []
    monkeypatch.setattr(distribution, "workers", lambda: 2)
    monkeypatch.setattr(distribution, "from_all", lambda strategy, value: calls.append("sum") or [value, value + 1])
    monkeypatch.setattr(distribution, "leave_together", lambda strategy: calls.append("wait"))
    with pytest.raises(UserError, match="different"):
        refuse()
    assert calls == ["sum", "wait"]


WAITING = """
from t2t_repro.errors import UserError
from t2t_repro.training.distribution import make_strategy
try:
    make_strategy()
except UserError as error:
    print(error)
"""


def test_waiting_can_be_interrupted_and_an_address_in_use_is_named() -> None:
    addresses = free_addresses(2)
    with socket.create_server(("localhost", 0)) as taken:
        refused = f"localhost:{taken.getsockname()[1]}"
        processes = [
            start(WAITING, config=tf_config({"worker": [address, addresses[1]]})) for address in (addresses[0], refused)
        ]
        result = processes[1].result(timeout=120)
    assert result.stdout.startswith(f"TF_CONFIG: cannot listen on {refused} ("), result.stderr
    processes[0].wait_for("waiting for the other 1")
    processes[0].send_signal(signal.SIGINT)
    assert processes[0].wait(timeout=60) == -signal.SIGINT


TRAINER = """#!/bin/bash
echo "$TF_CONFIG" > "$OUT/$JOB_COMPLETION_INDEX$SLURM_PROCID"
trap 'echo "asked" > "$OUT/asked"; exit 0' TERM
[ -z "$WAITS" ] || { touch "$OUT/waits"; for _ in {1..300}; do sleep 0.1; done; }
exit "$TRAINER_EXITS"
"""
SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then printf 'gpu-a\\ngpu-b\\n'; else echo "$*" > "$OUT/requeued"; fi
"""
SRUN = """#!/bin/bash
shift
for number in 0 1; do SLURM_PROCID=$number "$@" || failed=2; done
exit $failed
"""


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts fake t2t-trainer, scontrol and srun programs on the PATH; returns the folder in which they write files."""
    for name, text in (("t2t-trainer", TRAINER), ("scontrol", SCONTROL), ("srun", SRUN)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in (("OUT", str(tmp_path / "out")), ("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "gpu-[a-b]")):
        monkeypatch.setenv(name, value)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def received_addresses(out: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Returns, for each worker, the addresses in the TF_CONFIG that the worker received, its own address first."""
    received = []
    for index in range(2):
        text = (out / str(index)).read_text()
        monkeypatch.setenv("TF_CONFIG", text)
        assert workers() == 2
        addresses = json.loads(text)["cluster"]["worker"]
        index = json.loads(text)["task"]["index"]
        received.append([addresses[index], addresses[1 - index]])
    monkeypatch.delenv("TF_CONFIG")
    return received


@pytest.mark.parametrize("exits", ["0", "2"])
def test_the_slurm_script_gives_each_worker_its_index(
    exits: str, stand_ins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = DOCS.read_text("utf-8").partition("```bash\n")[2].partition("```")[0]
    monkeypatch.setenv("TRAINER_EXITS", exits)
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert result.returncode == int(exits), result.stderr
    assert received_addresses(stand_ins, monkeypatch) == [["gpu-a:2222", "gpu-b:2222"], ["gpu-b:2222", "gpu-a:2222"]]
    # If the trainer ends with 0 before the last step, the script queues the job again.
    assert (stand_ins / "requeued").exists() == (exits == "0")


def test_the_kubernetes_script_gives_each_worker_its_index(stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = DOCS.read_text("utf-8").partition("```yaml\n")[2].partition("```")[0]
    script = textwrap.dedent(manifest.partition("- |\n")[2].partition("          ports:")[0])
    monkeypatch.setenv("WAITS", "yes")
    for index in range(2):
        process = subprocess.Popen(["bash", "-c", script], env=os.environ | {"JOB_COMPLETION_INDEX": str(index)})
        deadline = time.monotonic() + 60
        while not (stand_ins / "waits").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.terminate()
        assert process.wait(timeout=30) == 1  # the script fails because the last step's checkpoint is missing
        assert (stand_ins / "asked").exists()
        for name in ("waits", "asked"):
            (stand_ins / name).unlink()
    addresses = ["transformer-0.transformer:2222", "transformer-1.transformer:2222"]
    assert received_addresses(stand_ins, monkeypatch) == [addresses, addresses[::-1]]
