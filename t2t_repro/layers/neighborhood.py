"""Restricted self-attention (section 4): each position i attends only to positions from i - r // 2 to i + r // 2.

The sequence is cut into N blocks of L >= r // 2 positions. All keys that a block's queries may see are in that block
and its two neighbors. So attention needs no [T, T] tensor, and its time and memory grow with T * r.

Shapes: B batch, H heads, T positions, d channels of a head, N blocks, L positions of a block, M = 3 L keys of a block
and its two neighbors, or M = 2 L without the next block if later positions are masked.
"""

from __future__ import annotations

from keras import ops

from t2t_repro.layers.base import Tensor
from t2t_repro.layers.masks import ILLEGAL

LEAST_BLOCK = 16
"""Smallest L, because smaller matrix products are not faster. A sequence shorter than this is a single block."""


class Blocks:
    """Cuts queries, keys and values into blocks, in which the caller then computes ordinary attention.

    Args:
        length: T, the number of positions.
        r: size of a neighborhood, at least 1. It reaches r // 2 positions to each side, so an even r acts like r + 1.
        is_masked: if true, no position attends to later ones.
    """

    def __init__(self, length: Tensor, r: int, is_masked: bool) -> None:
        self.length, self.reach, self.is_masked = length, r // 2, is_masked
        self.size = ops.minimum(ops.maximum(length, 1), max(self.reach, LEAST_BLOCK))
        self.count = (length + self.size - 1) // self.size
        self.visible_blocks = 2 if is_masked else 3

    def cut(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """Cuts x into blocks and pads the last block with `fill`: [B, H, T, d] -> [B, H, N, L, d]."""
        x = ops.pad(x, ((0, 0), (0, 0), (0, self.count * self.size - self.length), (0, 0)), constant_values=fill)
        return ops.reshape(x, (*ops.shape(x)[:2], self.count, self.size, x.shape[-1]))

    def around(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """Cuts x into blocks, each together with its neighbors: [B, H, T, d] -> [B, H, N, M, d].

        The M positions are the previous block, the block itself and, unless `is_masked`, the next block.
        """
        padding = ((0, 0), (0, 0), (1, self.visible_blocks - 2), (0, 0), (0, 0))
        x = ops.pad(self.cut(x, fill), padding, constant_values=fill)
        return ops.concatenate([x[:, :, i : i + self.count] for i in range(self.visible_blocks)], axis=3)

    def bias(self, bias: Tensor | None) -> Tensor:
        """Returns a mask [B, 1, N, L, M] that hides the keys that `bias` [B, 1, 1, T] hides, and all distant keys."""
        if bias is None:
            bias = ops.zeros((1, 1, 1, self.length))
        keys = self.around(ops.swapaxes(bias, 2, 3), fill=ILLEGAL)  # [B, 1, N, M, 1]
        # [L, M], each key's position minus each query's position. The first key is L positions before the first query.
        distance = ops.arange(self.visible_blocks * self.size)[None, :] - self.size - ops.arange(self.size)[:, None]
        is_outside = (distance < -self.reach) | (distance > (0 if self.is_masked else self.reach))
        return ops.swapaxes(keys, 3, 4) + ops.cast(is_outside, "float32") * ILLEGAL

    def join(self, heads: Tensor) -> Tensor:
        """Joins the blocks and drops the padding: [B, H, N, L, d] -> [B, H, T, d]."""
        heads = ops.reshape(heads, (*ops.shape(heads)[:2], self.count * self.size, heads.shape[-1]))
        return heads[:, :, : self.length]
