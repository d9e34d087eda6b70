"""Formulas for the size of the Transformer with experts."""

from __future__ import annotations

from t2t_repro.hparam import HParams
from t2t_repro.models import transformer_size
from t2t_repro.models.size_formulas import FLOAT32, Shape

STACKS = 2
"""Number of layers with experts: one in the encoder, one in the decoder."""


def parameters(hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters; see `Formulas`."""
    width, inner = hparams.hidden_size, hparams.filter_size
    feed_forward = 2 * width * inner + inner + width
    experts = hparams.moe_num_experts * (2 * width * inner + 2 * width)
    plain = transformer_size.parameters(hparams, vocab_size, source_vocab_size)
    return plain + STACKS * (experts - feed_forward)


def multiplications(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass in training; see `Formulas`.

    Each position has k experts and the two products of the gating network. Zeros that fill blocks do not count.
    """
    width, inner = hparams.hidden_size, hparams.filter_size
    added = 2 * (hparams.moe_k - 1) * width * inner + 2 * width * hparams.moe_num_experts
    plain = transformer_size.multiplications(hparams, vocab_size, source_length, target_length)
    return plain + (source_length + target_length) * added


def activations(hparams: HParams, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`.

    Each position keeps k copies of its vector, of the inner activations and of the outputs, and five numbers for each
    expert. The blocks keep copies of their experts' weights.
    """
    examples, source, target = shape
    width, inner, product = hparams.hidden_size, hparams.filter_size, FLOAT32 if "32" in precision else 2
    position = hparams.moe_k * (2 * width + inner) * product + 5 * FLOAT32 * hparams.moe_num_experts
    copies = 2 * hparams.moe_num_experts * 2 * width * inner * product if examples else 0
    plain = transformer_size.activations(hparams, vocab_size, shape, precision)
    return plain + examples * (source + target) * position + STACKS * copies
