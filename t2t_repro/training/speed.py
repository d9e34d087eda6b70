"""Training speed: tokens a second, and the share of padding."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from t2t_repro.data.batching import padding_share
from t2t_repro.data.pipeline import Batch


class Speed:
    """Measures tokens a second and padding since it was created, or since the last `restart`."""

    def __init__(self) -> None:
        self._start: float | None = None
        """None before the first step of a process. That step is not counted, because it builds the graph."""
        self._source = self._target = self._positions = self._filled = 0

    def restart(self) -> None:
        """Starts a new measurement."""
        self._start = time.monotonic()
        self._source = self._target = self._positions = self._filled = 0

    def count(self, batch: Batch) -> None:
        """Counts the tokens of a step."""
        self._positions += sum(inputs.size + targets.size for inputs, targets in batch.micro_batches)
        self._filled += batch.source_tokens + batch.target_tokens
        if self._start is None:
            self._start = time.monotonic()
        else:
            self._source += batch.source_tokens
            self._target += batch.target_tokens

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time inside the block."""
        pause = time.monotonic()
        yield
        if self._start is not None:
            self._start += time.monotonic() - pause

    def __str__(self) -> str:
        return f"{self.figures()['target_tokens_per_second']:,.0f} target tokens/s"

    def figures(self) -> dict[str, float]:
        """Returns source and target tokens a second, and the share of padding in all positions, 0 .. 1."""
        seconds = max(time.monotonic() - (self._start or 0.0), 1e-9)
        return {
            "source_tokens_per_second": round(self._source / seconds, 1),
            "target_tokens_per_second": round(self._target / seconds, 1),
            "padding": round(padding_share(self._filled, self._positions), 5),
        }
