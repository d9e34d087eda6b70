"""A mixture of experts in place of a feed-forward network (Shazeer et al. 2017, sections 2 to 4).

A gating network chooses k of n experts for each position. The output is the sum of the chosen experts' outputs,
weighted by the gates. So more experts add parameters, but hardly any operations. No position is ever dropped: unlike in
tensor2tensor, the number of positions of an expert is not limited, so a result does not depend on the other examples of
the batch.

Shapes: B batch, T positions of an example, N = B * T positions, D width, F inner width, n experts, k experts chosen for
a position, G blocks of M positions.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from t2t_repro.errors import UserError
from t2t_repro.hparam import WIDTH, HParams
from t2t_repro.layers.base import Layer, Tensor, auxiliary_losses, float32
from t2t_repro.layers.dropout import Seeds, standard_normal
from t2t_repro.layers.feed_forward import ACTIVATIONS

BLOCKS_PER_EXPERT = 8
"""Number of blocks of an expert that is chosen for the mean number of positions. Each expert's last block is filled up
with zeros. More blocks need fewer zeros, but each block has a copy of its expert's weights."""

MIN_DEVIATION = 1e-2
"""Smallest standard deviation of the gating network's noise, as in tensor2tensor. The balancing loss divides by it."""


@dataclass(frozen=True)
class ExpertsHParams(HParams):
    moe_num_experts: int = 0
    """n: number of experts in each mixture of experts. It must be set."""
    moe_k: int = 2
    """k: number of experts that the gating network chooses for each position."""
    moe_loss_coef: float = 1e-3
    """Weight of the two losses that balance the experts (w_importance and w_load of Shazeer et al. 2017)."""

    ranges: ClassVar = HParams.ranges | {"moe_num_experts": WIDTH, "moe_k": WIDTH, "moe_loss_coef": (0, 1e38)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moe_k >= self.moe_num_experts:
            raise UserError(f"moe_k={self.moe_k} must be less than moe_num_experts={self.moe_num_experts}")

    @property
    def shapes_weights(self) -> list[str]:
        """Names of the fields that determine the names and shapes of the model's weights."""
        return [name for name in super().shapes_weights if name not in ("moe_k", "moe_loss_coef")]


class Experts(Layer):
    """n feed-forward networks max(0, x W1) W2, and the gating network that chooses k of them for each position."""

    def __init__(self, hparams: ExpertsHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = ACTIVATIONS[hparams.activation]
        width, inner, self.count = hparams.hidden_size, hparams.filter_size, hparams.moe_num_experts
        self.chosen, self.loss_weight = hparams.moe_k, hparams.moe_loss_coef
        # Zeros, so that all experts are equally likely at first (appendix A).
        self.gate_kernel = self.add_weight(shape=(width, self.count), initializer="zeros", name="gate")
        self.noise_kernel = self.add_weight(shape=(width, self.count), initializer="zeros", name="noise")
        # Each expert's kernels [D, F] and [F, D] are drawn like those of a feed-forward network.
        limit = (6.0 * hparams.initializer_gain / (width + inner)) ** 0.5
        initializer = keras.initializers.RandomUniform(-limit, limit)
        self.kernels1 = self.add_weight(shape=(self.count, width, inner), initializer=initializer, name="kernels1")
        self.kernels2 = self.add_weight(shape=(self.count, inner, width), initializer=initializer, name="kernels2")

    def call(self, x: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the sum of the chosen experts' outputs, weighted by their gates: [B, T, D] for x [B, T, D].

        In training, noise is added before the choice, and the two balancing losses are added to the step's loss.
        """
        gates, experts = self.gate(x, seeds)
        outputs = self.apply(ops.reshape(x, (-1, x.shape[-1])), ops.reshape(experts, (-1, self.chosen)))
        mixed = ops.sum(outputs * ops.reshape(gates, (-1, self.chosen, 1)), axis=1)
        return ops.reshape(mixed, ops.shape(x))

    def gate(self, x: Tensor, seeds: Seeds | None) -> tuple[Tensor, Tensor]:
        """Returns the gates (equations 3 to 5), float32 [B, T, k] with sum 1, and the chosen experts, int [B, T, k]."""
        clean = float32(ops.matmul(x, float32(self.gate_kernel)))  # [B, T, n]
        if seeds is None:
            logits, experts = ops.top_k(clean, self.chosen)
            return ops.softmax(logits), experts
        deviation = ops.softplus(float32(ops.matmul(x, float32(self.noise_kernel)))) + MIN_DEVIATION
        noisy = clean + standard_normal(ops.shape(clean), seeds) * deviation
        logits, experts = ops.top_k(noisy, self.chosen + 1)
        gates, experts = ops.softmax(logits[..., :-1]), experts[..., :-1]

        # The probability that an expert is chosen if only its own noise is drawn again: its new logit must then exceed
        # the kth largest logit of the other experts (equations 8 and 9).
        is_chosen = noisy > logits[..., -1:]
        threshold = ops.where(is_chosen, logits[..., -1:], logits[..., -2:-1])
        probability = 0.5 * (1.0 + ops.erf((clean - threshold) / deviation * 2**-0.5))
        weights = 1.0 if seeds.is_token is None else float32(seeds.is_token)[..., None]
        load = ops.sum(probability * weights, axis=(0, 1))
        importance = ops.segment_sum(
            ops.reshape(gates * weights, (-1,)), ops.reshape(experts, (-1,)), num_segments=self.count
        )
        auxiliary_losses.add(self.loss_weight * (squared_variation(importance) + squared_variation(load)))
        return gates, experts

    def apply(self, x: Tensor, experts: Tensor) -> Tensor:
        """Returns the outputs of the experts, float32 [N, k, D], for x [N, D] and the numbers of the experts [N, k].

        The N * k pairs of a position and an expert are sorted by expert and cut into blocks of M pairs, so that all
        pairs of a block have the same expert. The last block of each expert is filled with zeros.
        """
        pairs = ops.shape(experts)[0] * self.chosen
        size = pairs // (BLOCKS_PER_EXPERT * self.count) + 1  # M
        blocks = (pairs + self.count * (size - 1)) // size  # G: enough for any division of the pairs among the experts
        experts = ops.cast(ops.reshape(experts, (-1,)), "int64")
        order = ops.argsort(experts, axis=0)  # [N * k], the pairs by expert
        sorted_experts = ops.take(experts, order)
        numbers = ops.arange(self.count, dtype="int64")
        starts = ops.cast(ops.searchsorted(sorted_experts, numbers, side="left"), "int64")  # [n], first sorted pair
        ends = ops.cast(ops.searchsorted(sorted_experts, numbers, side="right"), "int64")
        block_counts = (ends - starts + ops.cast(size - 1, "int64")) // ops.cast(size, "int64")  # [n]
        block_ends = ops.cumsum(block_counts)
        # The row of each sorted pair in the blocks: [N * k]
        indices = ops.arange(pairs, dtype="int64") - ops.take(starts, sorted_experts)  # among the expert's pairs
        rows = ops.take(block_ends - block_counts, sorted_experts) * ops.cast(size, "int64") + indices
        block_experts = ops.searchsorted(block_ends, ops.arange(blocks, dtype="int64"), side="right")  # [G]
        block_experts = ops.minimum(block_experts, self.count - 1)  # for blocks that no expert needs

        dtype, width = self.compute_dtype, x.shape[-1]
        inputs = ops.take(ops.cast(x, dtype), order // self.chosen, axis=0)
        inputs = ops.scatter(rows[:, None], inputs, (blocks * size, width))
        inputs = ops.reshape(inputs, (blocks, size, width))  # [G, M, D]
        kernels1 = ops.take(ops.cast(self.kernels1, dtype), block_experts, axis=0)  # [G, D, F]
        kernels2 = ops.take(ops.cast(self.kernels2, dtype), block_experts, axis=0)
        inner = self.activation(ops.matmul(inputs, kernels1))
        outputs = ops.reshape(ops.matmul(inner, kernels2), (blocks * size, width))
        # Back to the order of the pairs: pair order[i] has the row rows[i].
        rows = ops.scatter(order[:, None], rows, (pairs,))
        return ops.reshape(float32(ops.take(outputs, rows, axis=0)), (-1, self.chosen, width))


def squared_variation(x: Tensor) -> Tensor:
    """Returns the squared coefficient of variation of x [n]: variance / mean ** 2 (equation 7); 0 if all are 0."""
    return ops.var(x) / (ops.square(ops.mean(x)) + 1e-10)
