"""Runs a program on a pseudo-terminal, so that it behaves as in front of a user."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

ROWS, COLUMNS = 40, 140
PATIENCE = 120.0
"""Seconds that a test waits for the program's output before it fails."""


class Terminal:
    """The user's side of a program's terminal: types keys and reads the screen."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor, self.process = descriptor, process

    def type(self, text: bytes) -> None:
        """Sends `text` to the program as if a user typed it."""
        os.write(self._descriptor, text)

    def read(self, end: bytes = b"") -> bytes:
        """Returns new output of the program up to and including `end`, or all of it until the program ends."""
        output, deadline = b"", time.monotonic() + PATIENCE
        with suppress(OSError):  # reading fails when the program has closed the terminal
            while not (end and output.endswith(end)):
                assert select.select([self._descriptor], [], [], deadline - time.monotonic())[0], output
                chunk = os.read(self._descriptor, 4096)
                if not chunk:
                    break
                output += chunk
        return output


@contextmanager
def terminal(command: Sequence[str], streams: Sequence[str], **environment: str) -> Iterator[Terminal]:
    """Starts a program on a terminal; when the `with` block ends, waits for the program and asserts exit code 0.

    Args:
        command: the program and its arguments.
        streams: those of "stdin", "stdout" and "stderr" that are connected to the terminal. The others are /dev/null.
        environment: environment variables to add.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    options: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    options |= dict.fromkeys(streams, theirs)
    process = subprocess.Popen(command, env=os.environ | environment, **options)
    os.close(theirs)
    try:
        yield Terminal(ours, process)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
