"""Prints messages and progress on standard error. Progress is a bar on a terminal, else a line
every few seconds.
"""

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

from t2t_repro.console.terminal import width_of, wrapped

T = TypeVar("T")

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""The characters that `visible` replaces: C0 except tab and newline, DEL, C1, lone surrogates, and
the characters that reverse the direction of text (bidirectional embeddings, overrides and
isolates).
"""

PLAIN_SECONDS = 15.0
BAR_SECONDS = 0.1
"""Seconds between two plain progress lines, and between two updates of a bar."""


def visible(text: str) -> str:
    """Returns a text with an escape sequence, e.g. "\\x1b", for each control character except tab
    and newline.

    Control characters move the cursor, hide or overwrite text, or change the terminal's settings.
    """
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def say(text: str) -> None:
    """Prints a message on standard error, above the progress bar if there is one, without control
    characters.

    They may come from a file or a server that the message quotes. A terminal gets lines that fit
    it, a log one line.
    """
    # Writing fails if Ctrl-C also ended a `tee` that reads our output, if the terminal was closed,
    # or if the disk of the log file is full. A lost message must not end the program.
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            tqdm.write(wrapped(visible(text), width_of(sys.stderr)), file=sys.stderr)
        else:
            print(visible(text), file=sys.stderr, flush=True)


class Progress:
    """Shows how many items of a task are done.

    The number of items, `total`, is None if it is unknown. `unit` says what they are, in the
    plural, e.g. "lines". `done` items were done by an earlier run, so the speed does not count
    them. The speed is measured after the first call of `advance`, because TensorFlow builds its
    graphs before that call.
    """

    def __init__(self, description: str, total: int | None, unit: str, done: int = 0) -> None:
        self._description = description
        self._total = total
        self._unit = unit
        self._initial = self._done = done
        self._start: float | None = None
        self._note = ""
        # On a narrow terminal, tqdm cuts the bar and not the text before it.
        self._bar = tqdm(
            desc=self._text(),
            total=total,
            initial=done,
            bar_format="{desc} |{bar}" if total else "{desc}",
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
        )
        self._seconds = PLAIN_SECONDS if self._bar.disable else BAR_SECONDS
        self._shown = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Counts `count` more items as done. `note` is shown in place of the speed until another
        note replaces it.
        """
        self._done += count
        now = time.monotonic()
        if self._start is None:
            self._start = now
            self._initial = self._done
        self._note = note or self._note
        if now - self._shown >= self._seconds:
            self._shown = now
            self._show()

    def close(self) -> None:
        """Ends the progress bar, if there is one."""
        if not self._bar.disable:
            self._show()
        self._bar.close()

    def _show(self) -> None:
        if self._bar.disable:
            say(self._text())
        else:
            self._bar.n = self._done
            self._bar.set_description_str(self._text())

    def _text(self) -> str:
        unit = self._unit.removesuffix("s") if (self._total or self._done) == 1 else self._unit
        total = f"/{self._total:,}" if self._total else ""
        parts = [f"{self._description}: {self._done:,}{total} {unit}"]
        seconds = 0.0 if self._start is None else time.monotonic() - self._start
        # A shorter time means little.
        speed = (self._done - self._initial) / seconds if seconds >= 1 else 0.0
        if self._note or speed:
            parts.append(self._note or f"{speed:,.1f} {self._unit}/s")
        if self._total and speed and self._done < self._total:
            parts.append(f"{tqdm.format_interval((self._total - self._done) / speed)} left")
        return ", ".join(parts)


def progress(
    items: Iterable[T],
    description: str,
    total: int | None,
    unit: str,
    size: Callable[[T], int] = lambda item: 1,
) -> Iterator[T]:
    """Yields `items` and shows the progress: the sum of `size(item)` of the finished items, out of
    `total`.
    """
    with contextlib.closing(Progress(description, total, unit)) as meter:
        for item in items:
            yield item
            meter.advance(size(item))
