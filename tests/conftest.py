"""Sets environment variables and SIGINT's handler, kills processes that failed tests left, and
offers `no_graphs`.
"""

import gc
import os
import signal
from collections.abc import Iterator

import pytest

# Switches TF32 off on NVIDIA GPUs, because tests need exact float32 products. The t2t programs do
# so themselves, but some tests build layers without a program.
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"

# Hides TensorFlow's log messages. The t2t programs set this variable before they import TensorFlow,
# but pytest imports TensorFlow before it runs the programs.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import clusters

# If a shell starts pytest in the background, pytest and its child processes ignore SIGINT. Some
# tests send SIGINT to child processes, so Python's handler is restored.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Excludes the imported modules from garbage collection, which would traverse their objects
    hundreds of times.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def no_worker_is_left() -> Iterator[None]:
    """After each test module, kills the training processes that the module's failed tests left
    running.
    """
    yield
    for process in clusters.STARTED:
        process.kill()
    clusters.STARTED.clear()


@pytest.fixture
def no_graphs() -> Iterator[None]:
    """Makes TensorFlow run functions eagerly, for tests in which tracing a graph would take longer
    than its calls.
    """
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
