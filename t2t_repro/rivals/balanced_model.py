"""The part that models with mixtures of experts share: their balancing losses count tokens and not padding.

Shapes: B batch, S source length, T target length, V vocabulary. Ids are 0 for padding.
"""

from __future__ import annotations

from typing import Any

from t2t_repro.layers.base import Layer, Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.rivals.experts import balanced_positions


class BalancedModel(Layer):
    """Base class of models with `Experts`. It must stand before the base class that has `encode` and `decode`."""

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Any:
        """Returns the memory of source ids [B, S]; see `DecodingModel.encode`."""
        with balanced_positions(inputs != 0):
            return super().encode(inputs, seeds)

    def decode(
        self, targets: Tensor, memory: Any, seeds: Seeds | None = None, save_weights_to: list | None = None
    ) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T]; see `DecodingModel.decode`."""
        with balanced_positions(targets != 0):
            return super().decode(targets, memory, seeds, save_weights_to)
