"""Formulas for the size of the LSTM stacks with mixtures of experts."""

from __future__ import annotations

from t2t_repro.hparam import HParams
from t2t_repro.models import experts_size
from t2t_repro.models.size_formulas import FLOAT32, Shape, embedding_rows

STACKS = 2
"""Number of mixtures of experts: one in the encoder, one in the decoder."""


def widths_in(hparams: HParams) -> tuple[list[int], list[int]]:
    """Returns the width of the input of each LSTM, in the encoder and in the decoder.

    The first encoder layer has two LSTMs. The input of the decoder's bottom layer includes the context of attention.
    """
    width = hparams.hidden_size
    return [width] * (1 + hparams.encoder_layers), [2 * width, *(width,) * (hparams.decoder_layers - 1)]


def lstm(hparams: HParams, width_in: int) -> int:
    """Returns the number of multiplications of an LSTM at a position, which is also the size of its kernels."""
    width = hparams.hidden_size
    return 4 * (hparams.cell_size or width) * (width_in + width) + hparams.cell_size * width


def parameters(hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.moe.MoE; see `Formulas`."""
    width, biases = hparams.hidden_size, 4 * (hparams.cell_size or hparams.hidden_size)
    lstms = sum(lstm(hparams, width_in) + biases for widths in widths_in(hparams) for width_in in widths)
    attention = width * (2 * width + 1)
    embeddings = embedding_rows(hparams, vocab_size, source_vocab_size) * width
    return embeddings + lstms + attention + STACKS * experts_size.parameters(hparams)


def multiplications(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass in training; see `Formulas`."""
    width = hparams.hidden_size
    encoder, decoder = (sum(lstm(hparams, width_in) for width_in in widths) for widths in widths_in(hparams))
    experts = (source_length + target_length) * experts_size.multiplications(hparams)
    # Keys, queries, and for each query and key: the product with v, and the key's part of the context.
    attention = (source_length + target_length) * width * width + target_length * source_length * 2 * width
    logits = target_length * width * vocab_size
    return source_length * encoder + target_length * decoder + experts + attention + logits


def activations(hparams: HParams, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, source, target = shape
    width, cells = hparams.hidden_size, hparams.cell_size or hparams.hidden_size
    has_dropout, is_cast = hparams.layer_prepostprocess_dropout > 0, precision not in ("float32", "tf32")

    def lstm_numbers(width_in: int) -> int:
        # Numbers kept per position: the input (with 16 bits, half as many bytes), the mask of dropout, the output, the
        # cell, three gates and the candidate.
        return width_in // (2 if is_cast else 1) + width * (1 + has_dropout) + 5 * cells

    encoder, decoder = (sum(map(lstm_numbers, widths)) for widths in widths_in(hparams))
    attention = target * (source + width) + source * 2 * width
    # Memory peaks once in the loss and once in the backward loop of the bottom decoder layer, see `gnmt_size`.
    loss = target * vocab_size * 3
    backward = 2 * target * source * width + target * (10 * cells + width)
    numbers = source * encoder + target * decoder + attention + max(loss, backward)
    experts = sum(experts_size.activations(hparams, examples * length, precision) for length in (source, target))
    return examples * numbers * FLOAT32 + experts
