"""Signals that stop a training run: SIGINT (Ctrl-C), or the SIGTERM that schedulers send before they kill a process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """A context that handles SIGTERM and SIGINT.

    Inside the context, the first of these signals sets `requested`, and the second ends the process immediately.
    """

    def __init__(self) -> None:
        self.requested = False
        self._handlers: dict[signal.Signals, Any] = {}
        """The signals' earlier handlers, which are restored when the context ends."""
        self._writer: int | None = None
        self._wakeup_descriptor = -1

    def __enter__(self) -> StopSignals:
        # Python lets only the main thread set signal handlers.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                # A signal that the process ignores stays ignored. For example, programs that a shell script starts with
                # "&" ignore SIGINT.
                if (handler := signal.getsignal(number)) != signal.SIG_IGN:
                    self._handlers[number] = handler
            # Python runs a signal handler only between two Python instructions, so never while a step hangs in
            # TensorFlow. A thread can read the signal numbers from a pipe at any time. The thread starts before the
            # handlers are set, so that it counts every signal that they handle.
            reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            self._wakeup_descriptor = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            thread = threading.Thread(target=_exit_at_second_signal, args=(reader, set(self._handlers)), daemon=True)
            thread.start()
            for number in self._handlers:
                signal.signal(number, self._request)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._writer is not None:
            signal.set_wakeup_fd(self._wakeup_descriptor)
            os.close(self._writer)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for handled in self._handlers:
            signal.signal(handled, signal.SIG_DFL)
        message = f"\n{signal.Signals(number).name}: finishing the step, then saving; once more ends at once\n"
        # print() would fail if the signal interrupted another print(). os.write fails if standard error is a pipe to a
        # program, such as tee, that the same Ctrl-C has ended.
        with contextlib.suppress(OSError):
            os.write(2, message.encode())


def _exit_at_second_signal(reader: int, numbers: set[signal.Signals]) -> None:
    """Ends the process at the second signal of `numbers`. Reads their numbers from the pipe `reader`, in a thread."""
    count = 0
    while number := os.read(reader, 1):
        count += number[0] in numbers
        if count == 2:
            os._exit(128 + number[0])
    os.close(reader)
