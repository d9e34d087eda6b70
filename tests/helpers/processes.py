"""Processes that start in no time: they are forked from one that has imported TensorFlow, which takes three seconds.

TensorFlow itself starts in each of them, because importing it starts nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["tensorflow", "tensorflow_text", "keras", "t2t_repro.training.loop", "t2t_repro.decoding.translator"]
)


class Process:
    """A Python script in a process of its own, with the methods of subprocess.Popen that the tests use.

    Args:
        script: Python code.
        arguments: sys.argv, with the program's name.
        environment: all environment variables.
    """

    def __init__(self, script: str, arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._files = [Path(self._folder.name) / name for name in ("stdout", "stderr")]
        for file in self._files:
            file.touch()
        streams = [str(file) for file in self._files]
        self._process = FORKS.Process(
            target=_run, args=(script, [*arguments], dict(environment), streams), daemon=False
        )
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def errors(self) -> str:
        """Standard error so far."""
        return self._files[1].read_text("utf-8", errors="replace")

    def wait_for(self, text: str, timeout: float = 120) -> None:
        """Waits until standard error contains a text."""
        deadline = time.monotonic() + timeout
        while text not in self.errors:
            assert self.poll() is None and time.monotonic() < deadline, self.errors
            time.sleep(0.01)

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Waits for the end and returns the exit code, -N after signal N."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, self.errors
        return self._process.exitcode

    def result(self, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Waits for the end and returns the exit code and the output."""
        code = self.wait(timeout)
        output = self._files[0].read_text("utf-8", errors="replace")
        return subprocess.CompletedProcess([], code, output, self.errors)

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def start_program(
    program: str, *arguments: str, environment: Mapping[str, str] = os.environ, before: str = ""
) -> Process:
    """Starts t2t-PROGRAM.

    Args:
        before: Python code to run first.
    """
    script = f"{before}\nfrom t2t_repro.bin.t2t_{program} import run; run()"
    return Process(script, [f"t2t-{program}", *arguments], environment)


def _run(script: str, arguments: list[str], environment: dict[str, str], streams: list[str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    sys.argv = arguments
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
