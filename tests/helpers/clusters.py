"""Several processes that train together, as TF_CONFIG names them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

STARTED: list[subprocess.Popen[str]] = []
"""Ended by tests/conftest.py where a failed test leaves them: a worker would wait for the others for an hour."""


def tf_config(cluster: Any, kind: Any = "worker", index: Any = 0) -> str:
    """The TF_CONFIG of one task of a cluster."""
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine that nothing listens on."""
    with ExitStack() as stack:  # all open at once, or one might be given twice
        servers = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{server.getsockname()[1]}" for server in servers]


def start(script: str, *arguments: str, config: str = "") -> subprocess.Popen[str]:
    """Starts a Python script with this TF_CONFIG, or none."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""} | ({"TF_CONFIG": config} if config else {})
    command = [sys.executable, "-c", script, *arguments]
    STARTED.append(
        subprocess.Popen(command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    )
    return STARTED[-1]
