"""Starts Python processes quickly, by forking a server process that has already imported TensorFlow.

Importing TensorFlow takes three seconds. The import starts no threads and no devices, so each forked process starts its
own.
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
    """A forked process that runs Python code. It has those methods of subprocess.Popen that the tests use.

    Args:
        script: the Python code.
        arguments: the value of sys.argv, including the program's name.
        environment: all environment variables of the process.
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
        """All text that the process has written to standard error until now."""
        return self._files[1].read_text("utf-8", errors="replace")

    def wait_for(self, text: str, timeout: float = 120) -> None:
        """Waits until the process has written `text` to standard error; fails if the process ends before."""
        deadline = time.monotonic() + timeout
        while text not in self.errors:
            assert self.poll() is None and time.monotonic() < deadline, self.errors
            time.sleep(0.01)

    def poll(self) -> int | None:
        """Returns the process's exit code, or None if the process still runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Waits until the process ends and returns its exit code, or -N if signal N ended it."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, self.errors
        return self._process.exitcode

    def result(self, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Waits until the process ends and returns its exit code, standard output and standard error."""
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
    """Starts a process that runs t2t-PROGRAM with these arguments.

    Args:
        environment: all environment variables of the process.
        before: Python code that the process runs before the program.
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
