"""Formulas for the size of the LSTM stacks with mixtures of experts."""

from __future__ import annotations

from typing import Any

from t2t_repro.models.size_formulas import FLOAT32, Shape, embedding_rows
from t2t_repro.rivals import experts_size
from t2t_repro.rivals.gnmt_size import attention_multiplications, kept_by_lstm, lstm, peak_numbers

STACKS = 2
"""Number of mixtures of experts: one in the encoder, one in the decoder."""


def widths_in(hparams: Any) -> tuple[list[int], list[int]]:
    """Returns the width of the input of each LSTM, in the encoder and in the decoder.

    The first encoder layer has two LSTMs. The input of the decoder's bottom layer includes the context of attention.
    """
    width = hparams.hidden_size
    return [width] * (1 + hparams.encoder_layers), [2 * width, *(width,) * (hparams.decoder_layers - 1)]


def parameters(hparams: Any, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.moe.MoE; see `Formulas`."""
    width, biases = hparams.hidden_size, 4 * (getattr(hparams, "cell_size", 0) or hparams.hidden_size)
    lstms = sum(lstm(hparams, width_in) + biases for widths in widths_in(hparams) for width_in in widths)
    attention = width * (2 * width + 1)
    embeddings = embedding_rows(hparams, vocab_size, source_vocab_size) * width
    return embeddings + lstms + attention + STACKS * experts_size.parameters(hparams)


def multiplications(hparams: Any, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass in training; see `Formulas`."""
    width = hparams.hidden_size
    encoder, decoder = (sum(lstm(hparams, width_in) for width_in in widths) for widths in widths_in(hparams))
    experts = (source_length + target_length) * experts_size.multiplications(hparams)
    attention = attention_multiplications(width, width, source_length, target_length)
    logits = target_length * width * vocab_size
    return source_length * encoder + target_length * decoder + experts + attention + logits


def activations(hparams: Any, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, source, target = shape
    width = hparams.hidden_size
    encoder, decoder = (
        sum(kept_by_lstm(hparams, width_in, precision) for width_in in widths) for widths in widths_in(hparams)
    )
    attention = target * (source + width) + source * 2 * width
    peak = peak_numbers(hparams, vocab_size, (source, target), width)
    experts = sum(experts_size.activations(hparams, examples * length, precision) for length in (source, target))
    return examples * (source * encoder + target * decoder + attention + peak) * FLOAT32 + experts
