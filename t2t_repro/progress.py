"""Progress for a person who waits: a bar on a terminal, a plain line now and then elsewhere; on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

PLAIN_SECONDS = 15.0
"""Seconds between two plain lines."""


def say(text: str) -> None:
    """One line on standard error, above the bar if there is one; lost where nothing takes it any more."""
    # As where Ctrl-C has ended `2>&1 | tee log` too, the terminal was closed, or the log's disk is full.
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            from tqdm import tqdm

            tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


class Progress:
    """Counts towards a total.

    Args:
        description: what is being done.
        total: how many there will be; None where that is not known.
        unit: what is counted.
        done: how many are done already, e.g. before a resume; they do not count towards the speed.
    """

    def __init__(self, description: str, total: int | None, unit: str, done: int = 0) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._first = self._done = done
        self._start = self._spoken = time.monotonic()
        self._note = ""
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(desc=description, total=total, unit=f" {unit}", initial=done, dynamic_ncols=True)

    def advance(self, count: int = 1, note: str = "") -> None:
        """Counts `count` more; `note` stands in the line until there is another."""
        self._done += count
        self._note = note or self._note
        if self._bar is not None:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(count)
        elif time.monotonic() - self._spoken >= PLAIN_SECONDS:
            self._spoken = time.monotonic()
            self._line()

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()

    def _line(self) -> None:
        speed = (self._done - self._first) / max(time.monotonic() - self._start, 1e-9)
        parts = [f"{self._description}: {self._done:,}{f' of {self._total:,}' if self._total else ''} {self._unit}"]
        parts.append(self._note or f"{speed:,.1f} {self._unit}/s")
        if self._total and speed > 0:
            left = int((self._total - self._done) / speed)
            parts.append(f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left")
        say(", ".join(parts))


def progress(items: Iterable[T], description: str, total: int | None, unit: str) -> Iterator[T]:
    """Yields `items`, counting them."""
    meter = Progress(description, total, unit)
    try:
        for item in items:
            yield item
            meter.advance()
    finally:
        meter.close()
