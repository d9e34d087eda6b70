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

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            for number in (signal.SIGTERM, signal.SIGINT):
                if signal.getsignal(number) != signal.SIG_IGN:  # as it is under nohup
                    self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        said = f"\n{signal.Signals(number).name}: finishing the step, then saving; once more ends at once\n"
        # Not print: the signal may have come in the middle of one. Whoever read what we say, such as tee, may have been
        # ended by the same Ctrl-C.
        with contextlib.suppress(OSError):
            os.write(2, said.encode())
