"""A mixture of experts in place of a feed-forward network (Shazeer et al. 2017, sections 2 to 4).

A gating network chooses k of n experts for each position. The output is the sum of the chosen
experts' outputs, weighted by the gates. So more experts add parameters, but hardly any operations.
Experts have no dropout inside. No position is ever dropped: unlike in tensor2tensor, the number of
positions of an expert is not limited, so a result does not depend on the other examples of the
batch.

With groups of experts, the choice has two levels (appendix B): a network chooses groups, and each
group's own network chooses from its experts. The gate of an expert is the product of both.

Shapes: B batch, T positions of an example, N = B * T positions, D width, F inner width, n experts,
a groups of b experts, k chosen on a level, K experts chosen for a position (k, or k * k with
groups), G blocks of M positions.
"""

from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from t2t_repro.errors import UserError
from t2t_repro.hparam import NOT_NEGATIVE, OPTIONAL_WIDTH, WIDTH, HParams, hparam, training_hparam
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, standard_normal
from t2t_repro.models.variants import FEED_FORWARD
from t2t_repro.rivals.lstm import Init

BLOCKS_PER_EXPERT = 8
"""Number of blocks of an expert that is chosen for the mean number of positions. Each expert's last
block is filled up with zeros. More blocks need fewer zeros, but each block has a copy of its
expert's weights.
"""

MIN_DEVIATION = 1e-2
"""Smallest standard deviation of the gating network's noise, as in tensor2tensor. The balancing
loss divides by it.
"""


@dataclass(frozen=True)
class ExpertsHParams(HParams):
    moe_num_experts: int = hparam(0, WIDTH)
    """n: number of experts in each mixture of experts. It must be set."""
    moe_k: int = hparam(2, WIDTH, affects="outputs")
    """k: number of experts that the gating network chooses for each position. With groups, it
    chooses k groups, and then k experts in each of them. With k = 1, a gate is always 1, so only
    the balancing losses train the network.
    """
    moe_groups: int = hparam(0, OPTIONAL_WIDTH)
    """a: number of groups of experts, which divides moe_num_experts; 0 for no groups."""
    moe_loss_coef: float = training_hparam(1e-3, NOT_NEGATIVE)
    """Weight of the two losses that balance the experts (w_importance and w_load of Shazeer et al.
    2017).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moe_k >= self.moe_num_experts:
            raise UserError(
                f"moe_k={self.moe_k} must be less than moe_num_experts={self.moe_num_experts}"
            )
        if groups := self.moe_groups:
            size, rest = divmod(self.moe_num_experts, groups)
            if rest or not self.moe_k < min(groups, size):
                raise UserError(
                    f"moe_groups={groups}: must divide moe_num_experts={self.moe_num_experts}, "
                    f"and both the number of groups and their size must exceed moe_k={self.moe_k}"
                )


class Experts(Layer):
    """n feed-forward networks max(0, x W1) W2, and the gating network that chooses K of them for
    each position.
    """

    def __init__(self, hparams: ExpertsHParams, init: Init | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = FEED_FORWARD[hparams.activation].activation
        self.count = hparams.moe_num_experts
        self.k = hparams.moe_k
        self.groups = hparams.moe_groups
        self.loss_weight = hparams.moe_loss_coef
        self.chosen = self.k**2 if self.groups else self.k
        width = hparams.hidden_size
        inner = hparams.filter_size
        # Zeros, so that all experts are equally likely at first (appendix A).
        self.gate_kernel = self.add_weight((width, self.count), "zeros", name="gate")
        self.noise_kernel = self.add_weight((width, self.count), "zeros", name="noise")
        if self.groups:
            self.group_gate_kernel = self.add_weight(
                (width, self.groups), "zeros", name="group_gate"
            )
            self.group_noise_kernel = self.add_weight(
                (width, self.groups), "zeros", name="group_noise"
            )
        # Each expert's kernels [D, F] and [F, D] are drawn like those of a feed-forward network.
        init = init or Init(hparams.initializer_gain)
        limit = (6.0 * init.gain / (width + inner)) ** 0.5 if init.limit is None else init.limit
        draw = keras.initializers.RandomUniform(-limit, limit)
        self.kernels1 = self.add_weight((self.count, width, inner), draw, name="kernels1")
        self.kernels2 = self.add_weight((self.count, inner, width), draw, name="kernels2")

    def call(self, x: Tensor, is_token: Tensor = None, seeds: Seeds | None = None) -> Tensor:
        """Returns the sum of the chosen experts' outputs [B, T, D] for x [B, T, D].

        Each output is weighted by its gate. In training, noise is added before the choice, and the
        two balancing losses are added to the step's loss. They count the positions for which
        `is_token`, bool [B, T], is true; None counts all.
        """
        gates, experts = self.gate(x, is_token, seeds)
        vectors = ops.reshape(x, (-1, x.shape[-1]))
        outputs = self.apply(vectors, ops.reshape(experts, (-1, self.chosen)))
        mixed = ops.sum(outputs * ops.reshape(gates, (-1, self.chosen, 1)), axis=1)
        return ops.reshape(mixed, ops.shape(x))

    def gate(self, x: Tensor, is_token: Tensor, seeds: Seeds | None) -> tuple[Tensor, Tensor]:
        """Returns the gates, float32 [B, T, K] with sum 1, and the chosen experts [B, T, K]."""
        logits, noise = self.products(x, self.gate_kernel, self.noise_kernel)
        if is_token is None:
            weights = ops.ones_like(x[..., :1])
        else:
            weights = float32(is_token)[..., None]  # [B, T, 1]
        if self.groups:
            gates, experts, load = self.choose_in_groups(x, logits, noise, seeds, weights)
        else:
            gates, experts, probability = choose(logits, noise, self.k, seeds)
            load = ops.sum(probability * weights, axis=(0, 1))
        if seeds is not None:
            importance = self.sums(gates * weights, experts)
            variation = squared_variation(importance) + squared_variation(load)
            self.add_loss(self.loss_weight * variation)
        return gates, experts

    def choose_in_groups(
        self, x: Tensor, logits: Tensor, noise: Tensor, seeds: Seeds | None, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the gates and the experts [B, T, K], and the load of each expert [n] (appendix
        B).

        `logits` and `noise` [B, T, n] are the products of all groups' networks; `weights` [B, T, 1]
        is 0 for padding.
        """
        size = self.count // self.groups
        shape = (*ops.shape(x)[:-1], self.chosen)

        def in_groups(y: Tensor) -> Tensor:
            """Returns the parts [B, T, k, b] of y [B, T, n] that belong to the chosen groups."""
            y = ops.reshape(y, (*shape[:-1], self.groups, size))
            return ops.take_along_axis(y, groups[..., None], axis=-2)

        products = self.products(x, self.group_gate_kernel, self.group_noise_kernel)
        # Both [B, T, k], and [B, T, a].
        group_gates, groups, group_probability = choose(*products, self.k, seeds)
        inner_gates, inner, probability = choose(in_groups(logits), in_groups(noise), self.k, seeds)
        gates = ops.reshape(group_gates[..., None] * inner_gates, shape)
        experts = ops.reshape(groups[..., None] * size + inner, shape)
        is_member = ops.one_hot(groups, self.groups) * weights[..., None]
        members = ops.reshape(is_member, (-1, self.groups))  # [N * k, a]
        group_load = ops.sum(group_probability * weights, axis=(0, 1))
        share = group_load / ops.maximum(ops.sum(members, axis=0), 1.0)
        load = ops.matmul(ops.transpose(members), ops.reshape(probability, (-1, size)))  # [a, b]
        load = load * share[:, None]
        return gates, experts, ops.reshape(load, (-1,))

    @staticmethod
    def products(x: Tensor, gate_kernel: Tensor, noise_kernel: Tensor) -> tuple[Tensor, Tensor]:
        """Returns x W_g and x W_noise, float32 [B, T, c], of a gating network."""
        logits = float32(ops.matmul(x, float32(gate_kernel)))
        return logits, float32(ops.matmul(x, float32(noise_kernel)))

    def sums(self, values: Tensor, experts: Tensor) -> Tensor:
        """Returns for each expert the sum, float32 [n], of the values that have its number."""
        return ops.segment_sum(
            ops.reshape(values, (-1,)), ops.reshape(experts, (-1,)), num_segments=self.count
        )

    def apply(self, x: Tensor, experts: Tensor) -> Tensor:
        """Returns the outputs of the experts, float32 [N, K, D], for x [N, D] and the numbers of
        the experts [N, K].

        The N * K pairs of a position and an expert are sorted by expert and cut into blocks of M
        pairs, so that all pairs of a block have the same expert. The last block of each expert is
        filled with zeros.
        """
        pairs = ops.shape(experts)[0] * self.chosen
        size = pairs // (BLOCKS_PER_EXPERT * self.count) + 1  # M
        blocks = (
            pairs + self.count * (size - 1)
        ) // size  # G: enough for any division of the pairs among the experts
        experts = ops.cast(ops.reshape(experts, (-1,)), "int64")
        counts = ops.cast(self.sums(ops.ones_like(experts, "float32"), experts), "int64")
        zeros = -counts % ops.cast(size, "int64")  # [n], rows of zeros after each expert's pairs
        # The row of a pair in the blocks is its place in the order by expert, plus the rows of
        # zeros before it.
        order = ops.argsort(experts, axis=0)[:, None]
        places = ops.scatter(order, ops.arange(pairs, dtype="int64"), (pairs,))
        rows = (places + ops.take(ops.cumsum(zeros) - zeros, experts))[:, None]

        dtype = self.compute_dtype
        width = x.shape[-1]
        inputs = ops.repeat(ops.cast(x, dtype), self.chosen, axis=0)
        inputs = ops.scatter(rows, inputs, (blocks * size, width))
        inputs = ops.reshape(inputs, (blocks, size, width))  # [G, M, D]
        block_ends = ops.cumsum(counts + zeros) // ops.cast(size, "int64")
        block_experts = ops.searchsorted(
            block_ends, ops.arange(blocks, dtype="int64"), side="right"
        )  # [G]
        block_experts = ops.minimum(
            block_experts, self.count - 1
        )  # for blocks that no expert needs
        kernels1 = ops.take(ops.cast(self.kernels1, dtype), block_experts, axis=0)  # [G, D, F]
        kernels2 = ops.take(ops.cast(self.kernels2, dtype), block_experts, axis=0)
        inner = self.activation(ops.matmul(inputs, kernels1))
        outputs = ops.reshape(ops.matmul(inner, kernels2), (blocks * size, width))
        return ops.reshape(float32(ops.take(outputs, rows[:, 0], axis=0)), (-1, self.chosen, width))


def choose(
    logits: Tensor, noise: Tensor, k: int, seeds: Seeds | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the choice of k of c: the gates with sum 1 (equations 3 to 5) and their numbers, both
    [..., k].

    The third result [..., c] is the probability that each of all is chosen in training (equations 8
    and 9), or else 0. `logits` and `noise` [..., c] are the products x W_g and x W_noise.
    """
    if seeds is None:
        logits, chosen = ops.top_k(logits, k)
        return ops.softmax(logits), chosen, ops.zeros_like(noise)
    deviation = ops.softplus(noise) + MIN_DEVIATION
    noisy = logits + standard_normal(ops.shape(logits), seeds) * deviation
    highest, chosen = ops.top_k(noisy, k + 1)
    # The probability that one is chosen if only its own noise is drawn again: its new logit must
    # then exceed the kth largest logit of the others.
    threshold = ops.where(noisy > highest[..., -1:], highest[..., -1:], highest[..., -2:-1])
    probability = 0.5 * (1.0 + ops.erf((logits - threshold) / deviation * 2**-0.5))
    return ops.softmax(highest[..., :-1]), chosen[..., :-1], probability


def squared_variation(x: Tensor) -> Tensor:
    """Returns the squared coefficient of variation of x [n]: variance / mean ** 2 (equation 7); 0
    if all are 0.
    """
    return ops.var(x) / (ops.square(ops.mean(x)) + 1e-10)
