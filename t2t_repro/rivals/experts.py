"""A mixture of experts in place of a feed-forward network (Shazeer et al. 2017, sections 2 to 4).

A gating network chooses k of n experts for each position. The output is the sum of the chosen experts' outputs,
weighted by the gates. So more experts add parameters, but hardly any operations. No position is ever dropped: unlike in
tensor2tensor, the number of positions of an expert is not limited, so a result does not depend on the other examples of
the batch.

With groups of experts, the choice has two levels (appendix B): a network chooses groups, and each group's own network
chooses from its experts. The gate of an expert is the product of both.

Shapes: B batch, T positions of an example, N = B * T positions, D width, F inner width, n experts, a groups of b
experts, k chosen on a level, K experts chosen for a position (k, or k * k with groups), G blocks of M positions.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import keras
from keras import ops

from t2t_repro.errors import UserError
from t2t_repro.hparam import OPTIONAL_WIDTH, WIDTH, HParams
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
    """k: number of experts that the gating network chooses for each position. With groups, it chooses k groups, and
    then k experts in each of them."""
    moe_groups: int = 0
    """a: number of groups of experts, which divides moe_num_experts; 0 for no groups."""
    moe_loss_coef: float = 1e-3
    """Weight of the two losses that balance the experts (w_importance and w_load of Shazeer et al. 2017)."""

    ranges: ClassVar = HParams.ranges | {
        "moe_num_experts": WIDTH, "moe_k": WIDTH, "moe_groups": OPTIONAL_WIDTH, "moe_loss_coef": (0, 1e38)
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moe_k >= self.moe_num_experts:
            raise UserError(f"moe_k={self.moe_k} must be less than moe_num_experts={self.moe_num_experts}")
        if groups := self.moe_groups:
            size, rest = divmod(self.moe_num_experts, groups)
            if rest or not self.moe_k < min(groups, size):
                raise UserError(
                    f"moe_groups={groups}: must divide moe_num_experts={self.moe_num_experts}, and both the number of "
                    f"groups and their size must exceed moe_k={self.moe_k}"
                )

    @property
    def shapes_weights(self) -> list[str]:
        """Names of the fields that determine the names and shapes of the model's weights."""
        return [name for name in super().shapes_weights if name not in ("moe_k", "moe_loss_coef")]


class Choice(NamedTuple):
    """The choice of a gating network from c experts or groups."""

    gates: Tensor
    """Float32 [..., k] with sum 1 (equations 3 to 5)."""
    chosen: Tensor
    """Their numbers, int [..., k]."""
    probability: Tensor | None
    """In training, the probability that each of all is chosen, [..., c] (equations 8 and 9); else None."""


class Experts(Layer):
    """n feed-forward networks max(0, x W1) W2, and the gating network that chooses K of them for each position."""

    def __init__(self, hparams: ExpertsHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = ACTIVATIONS[hparams.activation]
        width, inner, self.count = hparams.hidden_size, hparams.filter_size, hparams.moe_num_experts
        self.k, self.groups, self.loss_weight = hparams.moe_k, hparams.moe_groups, hparams.moe_loss_coef
        self.chosen = self.k**2 if self.groups else self.k
        # Zeros, so that all experts are equally likely at first (appendix A).
        self.gate_kernel = self.add_weight(shape=(width, self.count), initializer="zeros", name="gate")
        self.noise_kernel = self.add_weight(shape=(width, self.count), initializer="zeros", name="noise")
        if self.groups:
            self.group_gate_kernel = self.add_weight((width, self.groups), "zeros", name="group_gate")
            self.group_noise_kernel = self.add_weight((width, self.groups), "zeros", name="group_noise")
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
        """Returns the gates, float32 [B, T, K] with sum 1, and the chosen experts, int [B, T, K]."""
        logits, deviation = self.distribution(x, self.gate_kernel, self.noise_kernel, seeds)  # [B, T, n]
        weights = 1.0 if seeds is None or seeds.is_token is None else float32(seeds.is_token)[..., None]
        if not self.groups:
            gates, experts, probability = choose(logits, deviation, self.k, seeds)
            load = None if probability is None else ops.sum(probability * weights, axis=(0, 1))
        else:
            gates, experts, load = self.choose_in_groups(x, logits, deviation, seeds, weights)
        if load is not None:
            importance = self.sums(gates * weights, experts, self.count)
            auxiliary_losses.add(self.loss_weight * (squared_variation(importance) + squared_variation(load)))
        return gates, experts

    def choose_in_groups(
        self, x: Tensor, logits: Tensor, deviation: Tensor | None, seeds: Seeds | None, weights: Tensor | float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns the gates and the experts [B, T, K], and the load of each expert [n] in training (appendix B).

        `logits` and `deviation` [B, T, n] are those of the networks of all groups.
        """
        size, k = self.count // self.groups, self.k
        group_distribution = self.distribution(x, self.group_gate_kernel, self.group_noise_kernel, seeds)
        group_gates, groups, group_probability = choose(*group_distribution, k, seeds)  # [B, T, k], [B, T, a]

        def in_groups(y: Tensor) -> Tensor:
            """Returns the parts [B, T, k, b] of y [B, T, n] that belong to the chosen groups."""
            y = ops.reshape(y, (*ops.shape(y)[:-1], self.groups, size))
            return ops.take_along_axis(y, groups[..., None], axis=-2)

        deviation = None if deviation is None else in_groups(deviation)
        inner_gates, inner, probability = choose(in_groups(logits), deviation, k, seeds)  # [B, T, k, k], [B, T, k, b]
        shape = (*ops.shape(x)[:-1], self.chosen)
        gates = ops.reshape(group_gates[..., None] * inner_gates, shape)
        experts = ops.reshape(groups[..., None] * size + inner, shape)
        if probability is None or group_probability is None:
            return gates, experts, None
        group_load = ops.sum(group_probability * weights, axis=(0, 1))
        counts = ops.ones_like(group_gates) * weights  # [B, T, k], 0 for padding
        numbers = groups[..., None] * size + ops.arange(size, dtype=groups.dtype)  # [B, T, k, b]
        inner_load = self.sums(probability * counts[..., None], numbers, self.count)
        positions = ops.maximum(self.sums(counts, groups, self.groups), 1.0)
        return gates, experts, inner_load * ops.repeat(group_load / positions, size)

    def distribution(
        self, x: Tensor, gate_kernel: Tensor, noise_kernel: Tensor, seeds: Seeds | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns a network's logits without noise, float32 [B, T, c], and in training the noise's deviation."""
        logits = float32(ops.matmul(x, float32(gate_kernel)))
        if seeds is None:
            return logits, None
        return logits, ops.softplus(float32(ops.matmul(x, float32(noise_kernel)))) + MIN_DEVIATION

    @staticmethod
    def sums(values: Tensor, numbers: Tensor, count: int) -> Tensor:
        """Returns for each of `count` experts or groups the sum [count] of the values that have its number."""
        return ops.segment_sum(ops.reshape(values, (-1,)), ops.reshape(numbers, (-1,)), num_segments=count)

    def apply(self, x: Tensor, experts: Tensor) -> Tensor:
        """Returns the outputs of the experts, float32 [N, K, D], for x [N, D] and the numbers of the experts [N, K].

        The N * K pairs of a position and an expert are sorted by expert and cut into blocks of M pairs, so that all
        pairs of a block have the same expert. The last block of each expert is filled with zeros.
        """
        pairs = ops.shape(experts)[0] * self.chosen
        size = pairs // (BLOCKS_PER_EXPERT * self.count) + 1  # M
        blocks = (pairs + self.count * (size - 1)) // size  # G: enough for any division of the pairs among the experts
        experts = ops.cast(ops.reshape(experts, (-1,)), "int64")
        order = ops.argsort(experts, axis=0)  # [N * K], the pairs by expert
        sorted_experts = ops.take(experts, order)
        numbers = ops.arange(self.count, dtype="int64")
        starts = ops.cast(ops.searchsorted(sorted_experts, numbers, side="left"), "int64")  # [n], first sorted pair
        ends = ops.cast(ops.searchsorted(sorted_experts, numbers, side="right"), "int64")
        block_counts = (ends - starts + ops.cast(size - 1, "int64")) // ops.cast(size, "int64")  # [n]
        block_ends = ops.cumsum(block_counts)
        # The row of each sorted pair in the blocks: [N * K]
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


def choose(logits: Tensor, deviation: Tensor | None, k: int, seeds: Seeds | None) -> Choice:
    """Returns the choice of k of c, given their logits without noise [..., c] and the noise's deviation, if any."""
    if deviation is None or seeds is None:
        logits, chosen = ops.top_k(logits, k)
        return Choice(ops.softmax(logits), chosen, None)
    noisy = logits + standard_normal(ops.shape(logits), seeds) * deviation
    highest, chosen = ops.top_k(noisy, k + 1)
    # The probability that one is chosen if only its own noise is drawn again: its new logit must then exceed the kth
    # largest logit of the others.
    threshold = ops.where(noisy > highest[..., -1:], highest[..., -1:], highest[..., -2:-1])
    probability = 0.5 * (1.0 + ops.erf((logits - threshold) / deviation * 2**-0.5))
    return Choice(ops.softmax(highest[..., :-1]), chosen[..., :-1], probability)


def squared_variation(x: Tensor) -> Tensor:
    """Returns the squared coefficient of variation of x [n]: variance / mean ** 2 (equation 7); 0 if all are 0."""
    return ops.var(x) / (ops.square(ops.mean(x)) + 1e-10)
