"""Sets environment variables and signal handlers for all tests, and ends processes that tests leave running."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest

# The t2t programs switch TF32 off when they set up devices. Tests that build layers without a program also need exact
# float32 products on GPUs.
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"

# The t2t programs set this variable before they import TensorFlow. The tests run programs in a process that has already
# imported TensorFlow, so the variable must be set here.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import clusters

# If a shell starts pytest in the background, pytest and its child processes ignore SIGINT. Some tests send SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Excludes the imported modules from garbage collection, which would traverse their objects hundreds of times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def no_worker_is_left() -> Iterator[None]:
    """After each test module, kills the training processes that its failed tests left running."""
    yield
    for process in clusters.STARTED:
        process.kill()
    clusters.STARTED.clear()
