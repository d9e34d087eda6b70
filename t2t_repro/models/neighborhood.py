"""Restricted self-attention (section 4): each position i attends only to positions from i - r // 2
to i + r // 2.

The sequence is cut into N blocks of L >= r // 2 positions. All keys that a block's queries may see
are in this block and its two neighbors. So attention needs no [T, T] tensor, and its time and
memory grow with T * r.

Shapes: B batch, H heads, T positions, d channels of a head, N blocks, L positions of a block, M = 3
L keys of a block and its two neighbors, or M = 2 L without the next block if later positions are
masked.
"""

from keras import ops

from t2t_repro.layers.base import Tensor
from t2t_repro.models.transformer import MASKED

MIN_BLOCK = 16
"""Smallest block, in positions: smaller matrix products are not faster. A shorter sequence is a
single block.
"""
NONE = (0, 0)
"""No padding of a dimension."""


class Blocks:
    """The division of a sequence of T positions into blocks. The caller computes ordinary attention
    within each block.

    An even r acts like r + 1. If `is_masked`, no position attends to later positions.
    """

    def __init__(self, length: Tensor, r: int, is_masked: bool) -> None:
        self.length = length
        self.reach = r // 2
        self.is_masked = is_masked
        max_size = max(self.reach, MIN_BLOCK)
        if isinstance(
            length, int
        ):  # JAX knows all lengths when it traces the model, and needs sizes that are ints
            self.size = min(max(length, 1), max_size)
        else:
            self.size = ops.minimum(ops.maximum(length, 1), max_size)
        self.count = (length + self.size - 1) // self.size
        # The block itself comes first. So if a sequence is a single block, a key's index is its
        # position, on which dropout's masks depend.
        self.distances = (0, -1) if is_masked else (0, -1, 1)
        """Distances from a block to the blocks that its queries may see, in blocks."""

    def cut(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """Returns x [B, H, T, d] cut into blocks [B, H, N, L, d]. The last block is padded with
        `fill`.
        """
        missing = self.count * self.size - self.length
        x = ops.pad(x, (NONE, NONE, (0, missing), NONE), constant_values=fill)
        *outer, _, width = ops.shape(x)
        return ops.reshape(x, (*outer, self.count, self.size, width))

    def around(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """Returns x [B, H, T, d] cut into blocks, each joined with its neighbor blocks: [B, H, N,
        M, d].

        The M positions are those of the blocks at `self.distances`.
        """
        # Empty blocks before the first one and, if queries see the next block, after the last one.
        after = len(self.distances) - 2
        x = self.cut(x, fill)
        x = ops.pad(x, (NONE, NONE, (1, after), NONE, NONE), constant_values=fill)
        starts = [1 + distance for distance in self.distances]
        return ops.concatenate([x[:, :, start : start + self.count] for start in starts], axis=3)

    def bias(self, bias: Tensor | None) -> Tensor:
        """Returns a mask [B, 1, N, L, M] that hides keys outside the neighborhood, and keys that
        `bias` hides.

        `bias` is a mask [B, 1, 1, T]; None hides no keys.
        """
        if bias is None:
            bias = ops.zeros((1, 1, 1, self.length))
        # The mask of the M keys of each block: [B, 1, 1, T] --> [B, 1, N, M, 1]
        keys = self.around(ops.swapaxes(bias, 2, 3), fill=MASKED)
        # Each key's position minus each query's position [L, M].
        block = ops.arange(self.size)
        positions = ops.concatenate([block + i * self.size for i in self.distances])
        distance = positions[None, :] - block[:, None]
        reach_after = 0 if self.is_masked else self.reach
        is_outside = (distance < -self.reach) | (distance > reach_after)
        outside = ops.cast(is_outside, "float32") * MASKED
        return ops.swapaxes(keys, 3, 4) + outside

    def join(self, heads: Tensor) -> Tensor:
        """Returns the blocks [B, H, N, L, d] joined to a sequence [B, H, T, d], without padding."""
        *outer, _, _, width = ops.shape(heads)
        heads = ops.reshape(heads, (*outer, self.count * self.size, width))
        return heads[:, :, : self.length]

    def all_positions(self, weights: Tensor) -> Tensor:
        """Returns the attention weights of the blocks [B, H, N, L, M] as weights of all positions
        [B, H, T, T].

        Keys outside a query's neighborhood have weight 0.
        """
        # Attention's output is the weighted mean of the values. If the values are one-hot, it is
        # the weights.
        one_hot = ops.eye(self.length)[None, None]
        return self.join(ops.matmul(weights, self.around(one_hot)))
