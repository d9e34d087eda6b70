"""A pseudo-terminal on which a program runs."""

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
"""Seconds to wait for output."""


class Terminal:
    """The keyboard and screen of a program's terminal."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor, self.process = descriptor, process

    def type(self, text: bytes) -> None:
        """Types `text`."""
        os.write(self._descriptor, text)

    def read(self, end: bytes = b"") -> bytes:
        """Returns the output through `end`, or through the end of the program."""
        output, deadline = b"", time.monotonic() + PATIENCE
        with suppress(OSError):  # the program has closed the terminal
            while not (end and output.endswith(end)):
                assert select.select([self._descriptor], [], [], deadline - time.monotonic())[0], output
                chunk = os.read(self._descriptor, 4096)
                if not chunk:
                    break
                output += chunk
        return output


@contextmanager
def terminal(command: Sequence[str], streams: Sequence[str], **environment: str) -> Iterator[Terminal]:
    """Starts a program on a terminal.

    Args:
        streams: which of "stdin", "stdout" and "stderr" are the terminal's; the others are discarded.
        environment: variables to set.
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
