"""The Transformer with a mixture of experts in the middle layer of each stack, like tensor2tensor's transformer_moe.

Shapes: B batch, S source length, T target length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.experts import Experts, balanced_positions
from t2t_repro.models.model import Memory
from t2t_repro.models.transformer import Transformer


class TransformerMoe(Transformer):
    """A `Transformer` in which `Experts` replace the feed-forward network of the middle layer of each stack."""

    def feed_forward_classes(self, layers: int) -> list[Callable[[HParams, str], Any]]:
        """Returns a stack's classes of feed-forward sub-layers. Of two middle layers, the upper has experts."""
        classes = super().feed_forward_classes(layers)
        classes[layers // 2] = Experts
        return classes

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S]; see `Transformer.encode`."""
        with balanced_positions(inputs != 0):
            return super().encode(inputs, seeds)

    def decode(
        self, targets: Tensor, memory: Memory, seeds: Seeds | None = None, save_weights_to: list | None = None
    ) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T]; see `Transformer.decode`."""
        with balanced_positions(targets != 0):
            return super().decode(targets, memory, seeds, save_weights_to)
