"""Starts processes that train one model together. The variable TF_CONFIG tells each process the
addresses of all.
"""

import json
import os
import socket
from contextlib import ExitStack
from typing import Any

from processes import Process, start_program

STARTED: list[Process] = []
"""All processes that this module started. tests/conftest.py kills them after each test module,
because after a failed test a worker may wait for the other workers for an hour.
"""


def tf_config(cluster: Any, kind: Any = "worker", index: Any = 0) -> str:
    """Returns the value of TF_CONFIG for one process of a cluster.

    Args:
        cluster: the addresses of all processes as {kind of process: [host:port, ...]}.
        kind: the kind of the process, e.g. "worker".
        index: the process's index in the list of its kind.
    """
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def free_addresses(count: int) -> list[str]:
    """Returns `count` different addresses localhost:PORT on which no process listens."""
    with ExitStack() as stack:  # all sockets are open at the same time, so the ports differ
        servers = [
            stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)
        ]
        return [f"localhost:{server.getsockname()[1]}" for server in servers]


def environment(config: str = "") -> dict[str, str]:
    """Returns the environment variables of a process that sees no GPU. A non-empty `config` becomes
    its TF_CONFIG.
    """
    variables = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return variables | {"CUDA_VISIBLE_DEVICES": ""} | ({"TF_CONFIG": config} if config else {})


def start(script: str, *arguments: str, config: str = "") -> Process:
    """Starts a process that runs the Python code `script`, sees no GPU and has `config` as its
    TF_CONFIG.
    """
    STARTED.append(Process(script, ["script", *arguments], environment(config)))
    return STARTED[-1]


def start_trainer(*flags: str, config: str = "") -> Process:
    """Starts t2t-trainer in a process that sees no GPU and has `config` as its TF_CONFIG."""
    STARTED.append(start_program("trainer", *flags, environment=environment(config)))
    return STARTED[-1]
