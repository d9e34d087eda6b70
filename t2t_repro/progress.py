"""Progress on standard error: a bar on a terminal, or a plain line every few seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

PLAIN_SECONDS = 15.0
"""Seconds between two plain lines."""


def say(text: str) -> None:
    """Prints one line on standard error, above the bar if there is one."""
    # Writing fails if Ctrl-C ended a `tee` behind us, the terminal was closed, or the log's disk is full.
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            from tqdm import tqdm

            tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


class Progress:
    """Shows how many items are done.

    Args:
        description: the task.
        total: number of items; None if it is unknown.
        unit: name of the items, in the plural.
        done: number of items that an earlier run has done; they do not count in the speed.
    """

    def __init__(self, description: str, total: int | None, unit: str, done: int = 0) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._initial = self._done = done
        self._start = self._last_line = time.monotonic()
        self._note = ""
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(desc=description, total=total, unit=f" {unit}", initial=done, dynamic_ncols=True)

    def advance(self, count: int = 1, note: str = "") -> None:
        """Adds `count` items. A `note` replaces the one shown at the end of the line."""
        self._done += count
        self._note = note or self._note
        if self._bar is not None:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(count)
        elif time.monotonic() - self._last_line >= PLAIN_SECONDS:
            self._last_line = time.monotonic()
            self._print_line()

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()

    def _print_line(self) -> None:
        speed = (self._done - self._initial) / max(time.monotonic() - self._start, 1e-9)
        parts = [f"{self._description}: {self._done:,}{f' of {self._total:,}' if self._total else ''} {self._unit}"]
        parts.append(self._note or f"{speed:,.1f} {self._unit}/s")
        if self._total and speed > 0:
            seconds = int((self._total - self._done) / speed)
            parts.append(f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d} left")
        say(", ".join(parts))


def progress(
    items: Iterable[T], description: str, total: int | None, unit: str, size: Callable[[T], int] = lambda item: 1
) -> Iterator[T]:
    """Yields `items` and shows the progress. An item counts as `size(item)` units of `total`."""
    meter = Progress(description, total, unit)
    try:
        for item in items:
            yield item
            meter.advance(size(item))
    finally:
        meter.close()
