"""Formulas for the size of the Transformer with experts."""

from __future__ import annotations

from typing import Any

from t2t_repro.models import transformer_size
from t2t_repro.models.size_formulas import Shape
from t2t_repro.rivals import experts_size

STACKS = 2
"""Number of layers with experts: one in the encoder, one in the decoder."""


def parameters(hparams: Any, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters; see `Formulas`."""
    width, inner = hparams.hidden_size, hparams.filter_size
    feed_forward = 2 * width * inner + inner + width
    plain = transformer_size.parameters(hparams, vocab_size, source_vocab_size)
    return plain + STACKS * (experts_size.parameters(hparams) - feed_forward)


def multiplications(hparams: Any, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass in training; see `Formulas`."""
    feed_forward = 2 * hparams.hidden_size * hparams.filter_size
    plain = transformer_size.multiplications(hparams, vocab_size, source_length, target_length)
    return plain + (source_length + target_length) * (experts_size.multiplications(hparams) - feed_forward)


def activations(hparams: Any, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, *lengths = shape
    plain = transformer_size.activations(hparams, vocab_size, shape, precision)
    return plain + sum(experts_size.activations(hparams, examples * length, precision) for length in lengths)
