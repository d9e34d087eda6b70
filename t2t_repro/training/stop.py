"""A training that is asked to stop: by Ctrl-C, or by the SIGTERM that schedulers send before they kill."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """While it is entered, the first SIGTERM or SIGINT sets `requested`; a second one ends the process at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}
        self._writer: int | None = None
        self._wakeup_before = -1

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            for number in (signal.SIGTERM, signal.SIGINT):
                if signal.getsignal(number) != signal.SIG_IGN:  # as it is under nohup
                    self._before[number] = signal.signal(number, self._request)
            # Python runs a handler between two instructions of its own, to which a hanging step never comes.
            reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            threading.Thread(target=_end_at_the_second, args=(reader, set(self._before)), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._writer is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._writer)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        said = f"\n{signal.Signals(number).name}: finishing the step, then saving; once more ends at once\n"
        # Not print: the signal may have come in the middle of one. Whoever read what we say, such as tee, may have been
        # ended by the same Ctrl-C.
        with contextlib.suppress(OSError):
            os.write(2, said.encode())


def _end_at_the_second(reader: int, numbers: set[signal.Signals]) -> None:
    """Reads the numbers of signals as they come, and ends the process at the second of those given."""
    came = 0
    while number := os.read(reader, 1):
        came += number[0] in numbers
        if came == 2:
            os._exit(128 + number[0])
    os.close(reader)
