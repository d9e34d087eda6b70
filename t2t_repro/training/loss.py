"""Losses of training: label-smoothed cross-entropy (section 5.4 of the paper), and the consistency
loss of R-Drop.

Shapes: B batch size, T target length, V vocabulary size.
"""

import math
from typing import Any

from keras import ops

Tensor = Any


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Returns the cross-entropy in nats, float32 [], summed over all target tokens; padding does
    not count.

    As in tensor2tensor, the target distribution gives probability 1 - e to the correct token and
    e/(V-1) to each other token. The entropy of this distribution is subtracted, so that the lowest
    possible loss is 0.

    Args:
        logits: float32 [B, T, V], the model's unnormalized log-probability of each token at each
            target position.
        targets: int [B, T], token ids, padded with 0.
        label_smoothing: e in the paragraph above; 0 gives the negative log-likelihood.
    """
    vocab_size = logits.shape[-1]
    correct = 1.0 - label_smoothing
    other = label_smoothing / (vocab_size - 1)
    entropy = -(correct * math.log(correct) + (vocab_size - 1) * other * math.log(other + 1e-20))
    # Flat arrays, [N] and [N, V], with N = B * T.
    targets = ops.reshape(targets, (-1,))
    weights = ops.cast(targets != 0, "float32")

    # The gradient is written by hand: softmax minus smoothed target. A small model spends much of
    # its time on arrays [N, V], and automatic differentiation would read and write these arrays
    # more than twice as often.
    @ops.custom_gradient
    def cross_entropy(logits: Tensor) -> Any:
        highest = ops.max(logits, axis=-1)
        exponentials = ops.exp(logits - highest[:, None])
        sums = ops.sum(exponentials, axis=-1)  # softmax = exponentials / sums
        log_normalizer = highest + ops.log(sums)  # log(sum(exp(logits)))
        target_logits = ops.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
        others = other * (vocab_size * ops.mean(logits, axis=-1) - target_logits)
        loss = log_normalizer - correct * target_logits - others - entropy

        def gradient(upstream: Tensor) -> Tensor:
            factors = upstream * weights
            # First the gradients of all logits as if none were a target's, then those of the
            # targets' logits.
            gradients = exponentials * (factors / sums)[:, None] - (other * factors)[:, None]
            target_gradients = (ops.exp(target_logits - highest) / sums - correct) * factors
            # TensorFlow would compute with int32 on the CPU.
            rows = ops.cast(ops.arange(ops.shape(targets)[0]), targets.dtype)
            places = ops.stack([rows, targets], axis=-1)
            return ops.scatter_update(gradients, places, target_gradients)

        return ops.sum(loss * weights), gradient

    return cross_entropy(ops.reshape(logits, (-1, vocab_size)))


def consistency_loss(logits: Tensor, other_logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean of the Kullback-Leibler divergences of p from q and of q from p, float32 [],
    in nats.

    It is summed over all target tokens. p and q are what two passes with different dropout masks
    predict (R-Drop, Liang et al. 2021, equation 2). Their logits are float32 [B, T, V], and the
    target ids, padded with 0, are int [B, T].
    """
    log_p = ops.log_softmax(logits)
    log_q = ops.log_softmax(other_logits)
    both_divergences = ops.sum((ops.exp(log_p) - ops.exp(log_q)) * (log_p - log_q), axis=-1)
    return 0.5 * ops.sum(both_divergences * ops.cast(targets != 0, "float32"))
