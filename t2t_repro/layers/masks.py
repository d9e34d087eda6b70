"""Masks: numbers added to attention logits, 0 for a legal connection and ILLEGAL for any other (section 3.2.3).

Shapes: B batch, T queries, S keys.
"""

from __future__ import annotations

from keras import ops

from t2t_repro.layers.base import Tensor

ILLEGAL = -1e9
"""The softmax of a logit with this bias is 0."""


def padding_bias(ids: Tensor) -> Tensor:
    """Returns [B, 1, 1, S]: ILLEGAL at the padding (0) of ids [B, S]."""
    return ops.cast(ids == 0, "float32")[:, None, None, :] * ILLEGAL


def causal_bias(length: Tensor) -> Tensor:
    """Returns [1, 1, T, T]: ILLEGAL from each position to all later ones."""
    positions = ops.arange(length, dtype="float32")
    return ops.cast(positions[None, :] > positions[:, None], "float32")[None, None] * ILLEGAL
