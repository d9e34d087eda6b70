"""What all tests need."""

import os
import signal
from collections.abc import Iterator

import pytest

import clusters

# Programs switch TF32 off when they set up devices. Tests that build layers themselves need exact float32 on GPUs too.
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"

# Where a shell starts the tests in the background, SIGINT is ignored, here and in all programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def no_worker_is_left() -> Iterator[None]:
    """Ends the workers that a module's tests left waiting for others."""
    yield
    for process in clusters.STARTED:
        process.kill()
