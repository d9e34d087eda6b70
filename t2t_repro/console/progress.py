"""Prints messages and progress on standard error. Progress is a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""The characters that `visible` replaces: C0 except tab and newline, DEL, C1, lone surrogates, and the characters that
reverse the direction of text (bidirectional embeddings, overrides and isolates)."""

PLAIN_SECONDS = 15.0
"""Seconds between two plain progress lines."""


def visible(text: str) -> str:
    """Returns a text with an escape sequence, e.g. "\\x1b", for each control character except tab and newline.

    Control characters move the cursor, hide or overwrite text, or change the terminal's settings.
    """
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def say(text: str) -> None:
    """Prints one line on standard error, above the progress bar if there is one, without control characters.

    They may come from a file or a server that the line quotes.
    """
    # Writing fails if Ctrl-C also ended a `tee` that reads our output, if the terminal was closed, or if the disk of
    # the log file is full. A lost message must not end the program.
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            tqdm.write(visible(text), file=sys.stderr)
        else:
            print(visible(text), file=sys.stderr, flush=True)


class Progress:
    """Shows how many items of a task are done.

    Args:
        description: name of the task.
        total: number of items; None if it is unknown.
        unit: what the items are, in the plural, e.g. "lines".
        done: number of items that an earlier run has done. The speed does not count these items.

    Plain lines measure the speed after the first call of `advance`, because TensorFlow builds its graphs before that
    call.
    """

    def __init__(self, description: str, total: int | None, unit: str, done: int = 0) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._initial = self._done = done
        self._start: float | None = None
        self._last_line = time.monotonic()
        self._note = ""
        is_hidden = not sys.stderr.isatty()
        self._bar = tqdm(
            desc=description, total=total, unit=f" {unit}", initial=done, dynamic_ncols=True, disable=is_hidden
        )

    def advance(self, count: int = 1, note: str = "") -> None:
        """Counts `count` more items as done. `note` is shown behind the counts until another note replaces it."""
        self._done += count
        now = time.monotonic()
        if self._start is None:
            self._start, self._initial = now, self._done
        self._note = note or self._note
        self._bar.set_postfix_str(self._note, refresh=False)
        self._bar.update(count)
        if self._bar.disable and now - self._last_line >= PLAIN_SECONDS:
            self._last_line = now
            self._print_line(now - self._start)

    def close(self) -> None:
        """Ends the progress bar, if there is one."""
        self._bar.close()

    def _print_line(self, seconds: float) -> None:
        speed = (self._done - self._initial) / max(seconds, 1e-9)
        parts = [f"{self._description}: {self._done:,}{f' of {self._total:,}' if self._total else ''} {self._unit}"]
        if self._note or speed:
            parts.append(self._note or f"{speed:,.1f} {self._unit}/s")
        if self._total and speed:
            parts.append(f"{timedelta(seconds=int((self._total - self._done) / speed))} left")
        say(", ".join(parts))


def progress(
    items: Iterable[T], description: str, total: int | None, unit: str, size: Callable[[T], int] = lambda item: 1
) -> Iterator[T]:
    """Yields `items` and shows the progress: the sum of `size(item)` of the finished items, out of `total`."""
    with contextlib.closing(Progress(description, total, unit)) as meter:
        for item in items:
            yield item
            meter.advance(size(item))
