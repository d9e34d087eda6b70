"""Pseudo-terminals, on which programs and functions behave as in front of a user."""

import os
import pty
import select
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from processes import start_program

ROWS = 40
COLUMNS = 140
PATIENCE = 120.0
"""Seconds that a test waits for the program's next output, or for its end, before the test fails.
"""


class Terminal:
    """A program's terminal, used as a person would: the methods type keys and read the screen."""

    def __init__(self, descriptor: int, programs_side: int) -> None:
        self._descriptor = descriptor
        self._programs_side = programs_side

    def type(self, text: bytes) -> None:
        """Sends `text` to the program as if a user typed it."""
        os.write(self._descriptor, text)

    def read(self, end: bytes = b"") -> bytes:
        """Returns the program's next output up to and including `end`, or all output if `end` is
        empty.
        """
        output = b""
        deadline = time.monotonic() + PATIENCE
        with suppress(OSError):  # reading fails when the program has closed the terminal
            while not (end and output.endswith(end)):
                assert select.select([self._descriptor], [], [], deadline - time.monotonic())[0], (
                    output
                )
                chunk = os.read(self._descriptor, 4096)
                if not chunk:
                    break
                output += chunk
                self._close_programs_side()
        return output

    def _close_programs_side(self) -> None:
        """Closes our copy of the program's descriptor. While it is open, `read` cannot notice the
        program's exit.
        """
        if self._programs_side >= 0:
            os.close(self._programs_side)
            self._programs_side = -1


@contextmanager
def screen(columns: int = COLUMNS) -> Iterator[tuple[IO[str], Callable[[], str]]]:
    """Yields a stream to a pseudo-terminal, and a function that returns the text on the
    terminal.
    """
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # otherwise the terminal would write "\\r\\n" for "\\n"
    termios.tcsetwinsize(theirs, (ROWS, columns))
    with open(theirs, "w", encoding="utf-8") as stream:

        def shown() -> str:
            stream.flush()
            text = b""
            # The terminal may pass on the text in pieces.
            while select.select([ours], [], [], 0.1)[0]:
                text += os.read(ours, 10_000)
            return text.decode()

        yield stream, shown
    os.close(ours)


@contextmanager
def terminal(
    program: str, *arguments: str, streams: Sequence[str], **variables: str
) -> Iterator[Terminal]:
    """Starts t2t-PROGRAM on a pseudo-terminal and yields the terminal. The program must then exit
    with code 0.

    Args:
        streams: those of "stdin", "stdout" and "stderr" that are connected to the terminal.
        variables: environment variables to set.
    """
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    files = dict.fromkeys(streams, os.ttyname(theirs))
    process = start_program(program, *arguments, environment=os.environ | variables, files=files)
    try:
        yield Terminal(ours, theirs)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        os.close(ours)
