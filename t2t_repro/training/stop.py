"""Signals that stop a training run: Ctrl-C, or the SIGTERM that schedulers send before they kill."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """In its `with` block, the first SIGTERM or SIGINT sets `requested`; the second one ends the process at once."""

    def __init__(self) -> None:
        self.requested = False
        self._handlers: dict[signal.Signals, Any] = {}
        """Handlers to restore after the block."""
        self._writer: int | None = None
        self._wakeup_descriptor = -1

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # only the main thread may set handlers
            for number in (signal.SIGTERM, signal.SIGINT):
                if (handler := signal.getsignal(number)) != signal.SIG_IGN:  # nohup ignores signals
                    self._handlers[number] = handler
            # Python runs a handler between two of its own instructions, which a hanging step never reaches. A thread
            # can read the numbers of signals at any time. It starts first, so that it counts every handled signal.
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
        # Not print(): it fails if the signal interrupted another print(). The write fails if standard error is a pipe
        # to a program, such as tee, that the same Ctrl-C has ended.
        with contextlib.suppress(OSError):
            os.write(2, message.encode())


def _exit_at_second_signal(reader: int, numbers: set[signal.Signals]) -> None:
    """Reads the numbers of signals as they arrive, and exits at the second one that is in `numbers`."""
    count = 0
    while number := os.read(reader, 1):
        count += number[0] in numbers
        if count == 2:
            os._exit(128 + number[0])
    os.close(reader)
