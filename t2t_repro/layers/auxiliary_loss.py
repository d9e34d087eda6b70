"""Losses that layers add to the loss of a training step, such as the balancing losses of mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from t2t_repro.layers.base import Tensor

_collected: ContextVar[list[Tensor] | None] = ContextVar("auxiliary losses", default=None)
"""The list of the innermost `auxiliary_losses` of this thread; None outside."""


def add_auxiliary_loss(loss: Tensor) -> None:
    """Adds a loss, float32 [], of the model's current examples. Has no effect outside `auxiliary_losses`.

    The training step weights it by the micro-batch's share of the step's target tokens, and adds it to the
    cross-entropy per token. So a loss that is not a sum over examples depends on how a step is cut into micro-batches.
    """
    losses = _collected.get()
    if losses is not None:
        losses.append(loss)


@contextmanager
def auxiliary_losses() -> Iterator[list[Tensor]]:
    """Returns a context that yields the list of the losses that layers add inside it."""
    losses: list[Tensor] = []
    token = _collected.set(losses)
    try:
        yield losses
    finally:
        _collected.reset(token)
