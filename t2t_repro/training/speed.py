"""Measures training speed: tokens per second, and the share of padding."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from t2t_repro.data.batching import padding_share
from t2t_repro.data.pipeline import Batch


class Speed:
    """Tokens per second and share of padding, measured since this object was created or `restart` was called."""

    def __init__(self) -> None:
        self.restart()
        self._is_first_step = True

    def restart(self) -> None:
        """Starts a new measurement, with no steps counted."""
        self._start, self._is_first_step = time.monotonic(), False
        self._source = self._target = self._positions = self._filled = 0

    def count(self, batch: Batch) -> None:
        """Adds a step's tokens and positions to the measurement."""
        self._positions += batch.positions
        self._filled += batch.source_tokens + batch.target_tokens
        if self._is_first_step:  # its tokens do not count, because TensorFlow builds the graph during this step
            self._start, self._is_first_step = time.monotonic(), False
        else:
            self._source += batch.source_tokens
            self._target += batch.target_tokens

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Returns a context whose duration does not count as training time."""
        pause = time.monotonic()
        yield
        self._start += time.monotonic() - pause

    def __str__(self) -> str:
        speed = self.figures().get("target_tokens_per_second")
        return "" if speed is None else f"{speed:,.0f} target tokens/s"

    def figures(self) -> dict[str, float]:
        """Returns the measured values by their names in metrics.jsonl; no speeds if only the first step was counted."""
        figures = {"padding": round(padding_share(self._filled, self._positions), 5)}
        if self._target:
            seconds = max(time.monotonic() - self._start, 1e-9)
            figures["source_tokens_per_second"] = round(self._source / seconds, 1)
            figures["target_tokens_per_second"] = round(self._target / seconds, 1)
        return figures
