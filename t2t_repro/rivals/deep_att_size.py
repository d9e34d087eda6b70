"""Formulas for the size of Deep-Att."""

from __future__ import annotations

from typing import Any

from t2t_repro.models.size_formulas import FLOAT32, Shape, embedding_rows
from t2t_repro.rivals.gnmt_size import attention_multiplications, kept_by_lstm, lstm, peak_numbers

COLUMNS = 2
"""Number of columns of LSTM layers in the encoder."""


def embedding_width(hparams: Any) -> int:
    """Returns E, the width of the embeddings."""
    return hparams.embedding_size or hparams.hidden_size


def memory_width(hparams: Any) -> int:
    """Returns M = 5 D / 2: a quarter of the widths of h and f, D and 4 D, in both columns."""
    return 5 * hparams.hidden_size // 2


def widths_in(hparams: Any) -> tuple[list[int], list[int]]:
    """Returns the width of the input of each LSTM, in the encoder and in the decoder.

    The input of the decoder's bottom layer includes the context of attention.
    """
    bottom, other = embedding_width(hparams), 3 * hparams.hidden_size
    encoder = [bottom, *(other,) * (hparams.encoder_layers - 1)] * COLUMNS
    return encoder, [bottom + memory_width(hparams), *(other,) * (hparams.decoder_layers - 1)]


def parameters(hparams: Any, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.deep_att.DeepAtt; see `Formulas`."""
    width, attended_width = hparams.hidden_size, memory_width(hparams)
    embeddings = embedding_rows(hparams, vocab_size, source_vocab_size) * embedding_width(hparams)
    if not hparams.shared_embedding_and_softmax_weights:
        embeddings += vocab_size * (width - embedding_width(hparams))  # the matrix before the softmax has width D
    lstms = sum(lstm(hparams, width_in) + 4 * width for widths in widths_in(hparams) for width_in in widths)
    attention = width * (width + attended_width + 1)
    return embeddings + lstms + 4 * attended_width * attended_width + attention


def multiplications(hparams: Any, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass; see `Formulas`."""
    width, attended_width = hparams.hidden_size, memory_width(hparams)
    encoder, decoder = (sum(lstm(hparams, width_in) for width_in in widths) for widths in widths_in(hparams))
    # The bottom layer of the decoder computes the sums f twice: in the loop, and for the fast-forward connection.
    decoder += 4 * width * (embedding_width(hparams) + attended_width)
    attention = attention_multiplications(width, attended_width, source_length, target_length)
    logits = target_length * width * vocab_size
    projection = source_length * 4 * attended_width * attended_width
    return source_length * encoder + projection + target_length * decoder + attention + logits


def activations(hparams: Any, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, source, target = shape
    width, attended_width = hparams.hidden_size, memory_width(hparams)
    encoder, decoder = (
        sum(kept_by_lstm(hparams, width_in, precision) for width_in in widths) for widths in widths_in(hparams)
    )
    attention = target * (source + attended_width) + source * (width + 5 * attended_width)
    peak = peak_numbers(hparams, vocab_size, (source, target), attended_width)
    return examples * (source * encoder + target * decoder + attention + peak) * FLOAT32
