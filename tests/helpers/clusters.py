"""Processes that train together, as TF_CONFIG describes them."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack
from typing import Any

from processes import Process, start_program

STARTED: list[Process] = []
"""tests/conftest.py ends them: if a test fails, a worker may wait for the others for an hour."""


def tf_config(cluster: Any, kind: Any = "worker", index: Any = 0) -> str:
    """Returns the TF_CONFIG of one task of a cluster."""
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def free_addresses(count: int) -> list[str]:
    """Returns addresses of this machine on which no process listens."""
    with ExitStack() as stack:  # open together, so that they differ
        servers = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{server.getsockname()[1]}" for server in servers]


def environment(config: str = "") -> dict[str, str]:
    """Returns the environment variables of a process on the CPU with this TF_CONFIG."""
    variables = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return variables | {"CUDA_VISIBLE_DEVICES": ""} | ({"TF_CONFIG": config} if config else {})


def start(script: str, *arguments: str, config: str = "") -> Process:
    """Starts a Python script on the CPU with this TF_CONFIG."""
    STARTED.append(Process(script, ["script", *arguments], environment(config)))
    return STARTED[-1]


def start_trainer(*flags: str, config: str = "", before: str = "") -> Process:
    """Starts t2t-trainer on the CPU with this TF_CONFIG, after the Python code `before`."""
    STARTED.append(start_program("trainer", *flags, environment=environment(config), before=before))
    return STARTED[-1]
