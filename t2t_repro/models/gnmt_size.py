"""Formulas for the size of GNMT."""

from __future__ import annotations

from t2t_repro.hparam import HParams
from t2t_repro.models.size_formulas import FLOAT32, Shape, embedding_rows


def memory_width(hparams: HParams) -> int:
    """Returns M, the width of the encoder output. A bidirectional layer has two outputs, side by side."""
    return hparams.hidden_size * (1 if hparams.encoder_layers > 1 else 2)


def widths_in(hparams: HParams) -> tuple[list[int], list[int]]:
    """Returns the width of the input of each LSTM, in the encoder and in the decoder.

    The inputs of the decoder's LSTMs include the context of attention.
    """
    width = hparams.hidden_size
    later_layers = [2 * width if i == 1 else width for i in range(1, hparams.encoder_layers)]
    return [width, width, *later_layers], [width + memory_width(hparams)] * hparams.decoder_layers


def parameters(hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.gnmt.GNMT; see `Formulas`."""
    width = hparams.hidden_size
    lstms = sum(4 * width * (width_in + width + 1) for widths in widths_in(hparams) for width_in in widths)
    attention = width * (width + memory_width(hparams) + 1)
    return embedding_rows(hparams, vocab_size, source_vocab_size) * width + lstms + attention


def multiplications(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass; see `Formulas`."""
    width, attended_width = hparams.hidden_size, memory_width(hparams)
    encoder, decoder = (sum(4 * width * (width_in + width) for width_in in widths) for widths in widths_in(hparams))
    # Keys, queries, and for each query and key: the product with v, and the key's part of the context.
    attention = source_length * attended_width * width + target_length * width * width
    attention += target_length * source_length * (width + attended_width)
    logits = target_length * width * vocab_size
    return source_length * encoder + target_length * decoder + attention + logits


def activations(hparams: HParams, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, source, target = shape
    width, attended_width = hparams.hidden_size, memory_width(hparams)
    has_dropout, is_cast = hparams.layer_prepostprocess_dropout > 0, precision not in ("float32", "tf32")

    def lstm(width_in: int) -> int:
        # Numbers kept per position: the input (with 16 bits, half as many bytes), the mask of dropout, the output, the
        # cell, three gates and the candidate.
        return width_in // (2 if is_cast else 1) + width * has_dropout + 6 * width

    encoder, decoder = (sum(map(lstm, widths)) for widths in widths_in(hparams))
    attention = target * (source + attended_width) + source * (width + attended_width)
    # Memory peaks once in the loss and once in the backward loop of the bottom decoder layer, at different times. The
    # loss needs the softmax over the vocabulary, the smoothed targets and the gradient of the logits. The loop keeps
    # the gradient of the keys for each target position, and adds it up after the loop.
    loss = target * vocab_size * 3
    backward = 2 * target * source * width + target * (10 * width + attended_width)
    numbers = source * encoder + target * decoder + attention + max(loss, backward)
    return examples * numbers * FLOAT32
