"""Signals that stop a training run: SIGINT (Ctrl-C), SIGTERM (of schedulers) and SIGHUP (of a
terminal that closes).
"""

import os
import signal
import threading
from typing import Any, Self

from t2t_repro.console.progress import say


class StopSignals:
    """A context that handles SIGTERM, SIGINT and SIGHUP.

    Inside the context, the first of these signals sets `requested`. The second ends the process
    immediately, with exit code 128 + its number.
    """

    def __init__(self) -> None:
        self.requested = False
        self._handlers: dict[int, Any] = {}
        """The signals' earlier handlers, which are restored when the context ends."""
        self._writer = self._wakeup_descriptor = -1

    def __enter__(self) -> Self:
        # Python lets only the main thread set signal handlers.
        if threading.current_thread() is threading.main_thread():
            # Python runs a signal handler only between two Python instructions, so never while a
            # step hangs in TensorFlow. A thread can read the signal numbers from a pipe at any
            # time.
            reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            self._wakeup_descriptor = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                # A signal that the process ignores stays ignored. For example, programs that a
                # shell script starts with "&" ignore SIGINT.
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, lambda *arguments: None)
            threading.Thread(
                target=self._watch, args=(reader, set(self._handlers)), daemon=True
            ).start()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._writer >= 0:
            signal.set_wakeup_fd(self._wakeup_descriptor)
            os.close(self._writer)

    def _watch(self, reader: int, numbers: set[int]) -> None:
        """Reads the numbers of all signals from the pipe `reader`, and acts on those in `numbers`.
        Runs in a thread.
        """
        while number := os.read(reader, 1):
            if number[0] not in numbers:
                continue
            if self.requested:
                os._exit(128 + number[0])
            self.requested = True
            say(
                f"\n{signal.Signals(number[0]).name}: finishing the step, then saving; once more "
                "ends at once"
            )
        os.close(reader)
