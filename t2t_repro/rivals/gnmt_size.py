"""Formulas for the size of GNMT, and those for LSTMs and additive attention, which other models share."""

from __future__ import annotations

from typing import Any

from t2t_repro.models.size_formulas import FLOAT32, Shape, embedding_rows, product_bytes


def memory_width(hparams: Any) -> int:
    """Returns M, the width of the encoder output. A bidirectional layer has two outputs, side by side."""
    return hparams.hidden_size * (1 if hparams.encoder_layers > 1 else 2)


def widths_in(hparams: Any) -> tuple[list[int], list[int]]:
    """Returns the width of the input of each LSTM, in the encoder and in the decoder.

    The inputs of the decoder's LSTMs include the context of attention.
    """
    width = hparams.hidden_size
    later_layers = [2 * width if i == 1 else width for i in range(1, hparams.encoder_layers)]
    return [width, width, *later_layers], [width + memory_width(hparams)] * hparams.decoder_layers


def attention_multiplications(width: int, attended_width: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of additive attention, for queries of `width`, keys of `attended_width`."""
    projections = source_length * attended_width * width + target_length * width * width
    # For each query and key: the product with v, and the key's part of the context.
    return projections + target_length * source_length * (width + attended_width)


def lstm(hparams: Any, width_in: int) -> int:
    """Returns the number of multiplications of an LSTM at a position, which is also the size of its kernels."""
    width = hparams.hidden_size
    return (
        4 * (getattr(hparams, "cell_size", 0) or width) * (width_in + width) + getattr(hparams, "cell_size", 0) * width
    )


def kept_by_lstm(hparams: Any, width_in: int, precision: str) -> int:
    """Returns how many float32 numbers an LSTM with inputs of `width_in` keeps per position for the backward pass."""
    inputs = width_in * product_bytes(precision) // FLOAT32
    output_and_mask = hparams.hidden_size * (1 + (hparams.layer_prepostprocess_dropout > 0))
    return (
        inputs + output_and_mask + 5 * (getattr(hparams, "cell_size", 0) or hparams.hidden_size)
    )  # cell, three gates and candidate


def peak_numbers(hparams: Any, vocab_size: int, lengths: tuple[int, int], attended_width: int) -> int:
    """Returns how many float32 numbers an example of these source and target lengths needs at the peak of memory.

    Memory peaks once in the loss and once in the backward loop of the bottom decoder layer, at different times. The
    loss needs the logits, their exponentials and gradient. The loop keeps the gradient of the keys for each target
    position, and adds it up after the loop.
    """
    source, target = lengths
    cells = getattr(hparams, "cell_size", 0) or hparams.hidden_size
    return target * max(3 * vocab_size, 2 * source * hparams.hidden_size + 10 * cells + attended_width)


def parameters(hparams: Any, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.gnmt.GNMT; see `Formulas`."""
    width = hparams.hidden_size
    lstms = sum(lstm(hparams, width_in) + 4 * width for widths in widths_in(hparams) for width_in in widths)
    attention = width * (width + memory_width(hparams) + 1)
    return embedding_rows(hparams, vocab_size, source_vocab_size) * width + lstms + attention


def multiplications(hparams: Any, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass; see `Formulas`."""
    width, attended_width = hparams.hidden_size, memory_width(hparams)
    encoder, decoder = (sum(lstm(hparams, width_in) for width_in in widths) for widths in widths_in(hparams))
    attention = attention_multiplications(width, attended_width, source_length, target_length)
    logits = target_length * width * vocab_size
    return source_length * encoder + target_length * decoder + attention + logits


def activations(hparams: Any, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, source, target = shape
    width, attended_width = hparams.hidden_size, memory_width(hparams)
    encoder, decoder = (
        sum(kept_by_lstm(hparams, width_in, precision) for width_in in widths) for widths in widths_in(hparams)
    )
    attention = target * (source + attended_width) + source * (width + attended_width)
    peak = peak_numbers(hparams, vocab_size, (source, target), attended_width)
    return examples * (source * encoder + target * decoder + attention + peak) * FLOAT32
