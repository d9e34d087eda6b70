"""Formulas for the size of a mixture of experts, which the formulas of several families use."""

from __future__ import annotations

from typing import Any

from t2t_repro.models.size_formulas import FLOAT32, product_bytes


def parameters(hparams: Any) -> int:
    """Returns the number of trainable parameters of layers.experts.Experts."""
    width, inner = hparams.hidden_size, hparams.filter_size
    return hparams.moe_num_experts * (2 * width * inner + 2 * width)


def multiplications(hparams: Any) -> int:
    """Returns the number of multiplications of a position in training.

    Each position has k experts and the two products of the gating network. Zeros that fill blocks do not count.
    """
    width, inner = hparams.hidden_size, hparams.filter_size
    return 2 * hparams.moe_k * width * inner + 2 * width * hparams.moe_num_experts


def activations(hparams: Any, positions: int, precision: str) -> int:
    """Returns an estimate of the bytes that a micro-batch needs for one of a model's two mixtures.

    Each position keeps k copies of its vector, of the inner activations and of the outputs, and five numbers for each
    expert. Each block keeps a copy of its expert's weights. In the backward pass, half of the copies of one mixture
    have gradients at the same time: a quarter, as a mean of the two mixtures.

    Args:
        positions: number of positions of a micro-batch.
        precision: see `Formulas.activations`.
    """
    from t2t_repro.rivals.experts import BLOCKS_PER_EXPERT  # imported late, because it loads Keras

    width, inner, product = hparams.hidden_size, hparams.filter_size, product_bytes(precision)
    position = hparams.moe_k * (2 * width + inner) * product + 5 * FLOAT32 * hparams.moe_num_experts
    pairs, count = positions * hparams.moe_k, hparams.moe_num_experts
    size = pairs // (BLOCKS_PER_EXPERT * count) + 1
    blocks = (pairs + count * (size - 1)) // size
    copies = blocks * 2 * width * inner * product
    return positions * position + copies * 5 // 4
