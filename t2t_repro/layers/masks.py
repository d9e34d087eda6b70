"""Masks, which are added to attention logits: 0 for a key that a query may see, ILLEGAL for other
keys (section 3.2.3).

Shapes: B batch, T queries, S keys.
"""

from keras import ops

from t2t_repro.layers.base import Tensor

ILLEGAL = -1e9
"""Mask value of a key that a query may not see. Added to the logit, the value makes the attention
weight 0.
"""


def padding_bias(ids: Tensor) -> Tensor:
    """Returns a mask [B, 1, 1, S] that hides the padding (id 0) of ids [B, S]."""
    return ops.where(ops.equal(ids, 0), ILLEGAL, 0.0)[:, None, None, :]


def causal_bias(length: Tensor) -> Tensor:
    """Returns a mask [1, 1, T, T] that hides all later positions from each position."""
    positions = ops.cast(ops.arange(length), "float32")
    return ops.cast(positions[None, :] > positions[:, None], "float32")[None, None] * ILLEGAL
