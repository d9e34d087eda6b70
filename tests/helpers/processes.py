"""Starts Python processes quickly, by forking a server process that has already imported
TensorFlow.

Importing TensorFlow takes three seconds. The import starts no threads and sets up no devices, so a
forked process can use TensorFlow as if it had imported it itself.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from programs import last_flags

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tensorflow",
        "tensorflow_text",
        "keras",
        "t2t_repro.training.loop",
        "t2t_repro.decoding.translator",
    ]
)

STOP_REQUESTED = "'finishing the step' in open('/dev/stderr').read()"
"""Python expression that is true in a training process after its first signal, whose receipt it
reports.
"""


class Process:
    """A forked process that runs Python code. It has those methods of subprocess.Popen that the
    tests use.

    Args:
        script: the Python code.
        arguments: the value of sys.argv, including the program's name.
        environment: all environment variables of the process.
        files: paths, e.g. of a terminal, for some of the streams "stdin", "stdout" and "stderr". By
            default the input is empty and the output goes to temporary files.
    """

    def __init__(
        self,
        script: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] = os.environ,
        files: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        defaults = {
            name: str(Path(self._folder.name) / name) for name in ("stdin", "stdout", "stderr")
        }
        self._files = defaults | dict(files)
        for path in self._files.values():
            Path(path).touch()
        job = (script, [*arguments], dict(environment), [*self._files.values()])
        self._process = FORKS.Process(target=_run, args=job, daemon=False)
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def errors(self) -> str:
        """All text that the process has written to standard error until now."""
        return Path(self._files["stderr"]).read_text("utf-8", errors="replace")

    def wait_for(self, text: str, timeout: float = 300) -> None:
        """Waits until the process has written `text` to standard error; fails if the process ends
        before.
        """
        deadline = time.monotonic() + timeout
        while text not in self.errors:
            assert self.poll() is None and time.monotonic() < deadline, self.errors
            time.sleep(0.01)

    def poll(self) -> int | None:
        """Returns the process's exit code, or None if the process still runs."""
        return self._process.exitcode

    def wait(self, timeout: float = 300) -> int:
        """Waits until the process ends and returns its exit code, or -N if signal N ended it."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, self.errors
        return self._process.exitcode

    def result(self, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Waits until the process ends and returns its exit code, standard output and standard
        error.
        """
        code = self.wait(timeout)
        output = Path(self._files["stdout"]).read_text("utf-8", errors="replace")
        return subprocess.CompletedProcess([], code, output, self.errors)

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def start_program(
    program: str,
    *arguments: str,
    environment: Mapping[str, str] = os.environ,
    files: Mapping[str, str] = MappingProxyType({}),
    before: str = "",
) -> Process:
    """Starts t2t-PROGRAM in a forked process.

    Args:
        before: Python code that the process runs before the program.
    """
    script = f"{before}\nfrom t2t_repro.bin.t2t_{program} import run; run()"
    return Process(script, [f"t2t-{program}", *last_flags(arguments)], environment, files)


def code_that_waits(owner: str, method: str, call: int, until: str = "False") -> str:
    """Returns Python code that makes a process print "waits" to standard error and wait when it
    calls a method.

    Args:
        owner: the method's class, as "module:class".
        call: number of the method's call in which the process waits, counted from 1.
        until: Python expression; the process continues as soon as the expression is true.
    """
    return f"""
import itertools, pkgutil, sys, time

owner, calls = pkgutil.resolve_name("{owner}"), itertools.count(1)
method = owner.{method}

def wait(*arguments):
    if next(calls) == {call}:
        print("waits", file=sys.stderr, flush=True)
        while not {until}:
            time.sleep(0.01)
    return method(*arguments)

owner.{method} = wait
"""


def _run(script: str, arguments: list[str], environment: dict[str, str], files: list[str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate(files):
        os.dup2(os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOCTTY), descriptor)
    # Multiprocessing has opened /dev/null as sys.stdin.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.argv = arguments
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
