"""Imports TensorFlow and Keras without their log messages, and in less time."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

MESSAGE = re.compile(
    rb"WARNING: All log messages before absl::|To enable the following instructions|"
    rb"[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] |\d{4}-\d\d-\d\d [\d:.]+: [IWE] |"
    rb"\S+\.cc\(\d+\) LOG\(INFO\) "
)
"""Matches the beginning of a line of TensorFlow's or SentencePiece's log, unless the line reports a
fatal error.
"""


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Hides the lines of TensorFlow's log that a `with` block writes to standard error.

    TF_CPP_MIN_LOG_LEVEL hides only the lines that TensorFlow logs after it has been loaded. Other
    lines that the block writes are printed at its end. If the block raises an exception, all lines
    are printed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    hides = True
    # In memory, because there may be no folder for temporary files.
    with os.fdopen(os.memfd_create("log"), "w+b") as captured:
        try:
            with redirected_errors(captured):
                yield
        except Exception:
            hides = False
            raise
        finally:
            captured.seek(0)
            for line in captured:
                if not (hides and MESSAGE.match(line)):
                    os.write(2, line)


@contextmanager
def redirected_errors(file: IO[bytes]) -> Iterator[None]:
    """Sends to `file` what a `with` block writes to standard error, also from C++ and in processes
    that it starts.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Imports TensorFlow and Keras faster inside a `with` block: in 1.9 instead of 3.5 CPU seconds.

    Only programs use this function, because it changes the whole process: Python's garbage
    collector pauses, later ignores the objects that exist at the end of the block, and Keras does
    not import matplotlib.
    """
    is_hidden = "matplotlib" not in sys.modules
    sys.modules.setdefault("matplotlib", None)  # type: ignore[arg-type]  # Python then refuses to import the module
    gc.disable()
    try:
        yield
    finally:
        if is_hidden:
            del sys.modules["matplotlib"]
        gc.freeze()
        gc.enable()
