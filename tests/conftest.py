"""Signals, environment and processes of all tests."""

import os
import signal
from collections.abc import Iterator

import pytest

# Programs switch TF32 off when they set up devices. Tests that build layers themselves need exact float32 on GPUs too.
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"

# The programs set this before they import TensorFlow, but the tests have imported it when a program starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import clusters

# A shell that starts the tests in the background ignores SIGINT in them and in all programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def no_worker_is_left() -> Iterator[None]:
    """Ends the workers that a module's failed tests left."""
    yield
    for process in clusters.STARTED:
        process.kill()
    clusters.STARTED.clear()
