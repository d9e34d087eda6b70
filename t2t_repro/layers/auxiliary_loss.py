"""Losses that layers add to the loss of a training step, such as the balancing losses of mixtures of experts."""

from __future__ import annotations

from t2t_repro.layers.base import Collector, Tensor

auxiliary_losses = Collector("auxiliary losses")
"""Collects the losses that layers add."""


def add_auxiliary_loss(loss: Tensor) -> None:
    """Adds a loss, float32 [], of the model's current examples. Has no effect outside `auxiliary_losses`.

    The training step weights it by the micro-batch's share of the step's target tokens, and adds it to the
    cross-entropy per token. So a loss that is not a sum over examples depends on how a step is cut into micro-batches.
    """
    auxiliary_losses.add(loss)
