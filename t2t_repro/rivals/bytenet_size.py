"""Dilations and lengths of ByteNet, and formulas for its size.

In the formulas, d is the inner width. The residual path has width 2 d.
"""

from __future__ import annotations

from typing import Any

from t2t_repro.models.size_formulas import FLOAT32, Shape, product_bytes

DILATIONS = (1, 2, 4, 8, 16)
"""Dilations of five consecutive blocks, which repeat."""


def dilation(index: int) -> int:
    """Returns the dilation of a stack's block `index`, counted from 0."""
    return DILATIONS[index % len(DILATIONS)]


def unfolded_length(length: Any) -> Any:
    """Returns the number of encoder positions for sources of a length, an int or an integer tensor.

    It is the length times 1.2, rounded up: equation 2 with a = 1.2 and b = 0, the paper's choice for EN-DE.
    """
    return (6 * length + 4) // 5


def parameters(hparams: Any, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.bytenet.ByteNet; see `Formulas`."""
    width, path = hparams.hidden_size, 2 * hparams.hidden_size
    norms = 2 * (path + width + width)
    block = norms + 2 * path * width + hparams.kernel_height * width**2 + width + width + path
    embeddings = vocab_size if hparams.shared_embedding else vocab_size + (source_vocab_size or vocab_size)
    rows = vocab_size if hparams.shared_embedding_and_softmax_weights else embeddings + vocab_size
    last = path * path + path + vocab_size
    return rows * path + (hparams.encoder_layers + hparams.decoder_layers) * block + 4 * path + last


def multiplications(hparams: Any, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass; see `Formulas`.

    A convolution computes a number of positions that is a multiple of its dilation.
    """
    width, path = hparams.hidden_size, 2 * hparams.hidden_size

    def stack(length: int, count: int) -> int:
        convolved = sum(-(-length // dilation(index)) * dilation(index) for index in range(count))
        return count * length * 2 * path * width + convolved * hparams.kernel_height * width**2

    encoder = stack(unfolded_length(source_length), hparams.encoder_layers)
    decoder = stack(target_length, hparams.decoder_layers)
    return encoder + decoder + target_length * path * (path + vocab_size)


def activations(hparams: Any, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, source, target = shape
    product = product_bytes(precision)
    is_cast = product != FLOAT32
    width, path = hparams.hidden_size, 2 * hparams.hidden_size
    has_dropout = hparams.layer_prepostprocess_dropout > 0

    def norm(norm_width: int) -> int:
        # Three tensors of the layer norm and its ReLU; with 16-bit precision, a 16-bit copy of the output.
        return norm_width * (3 * FLOAT32 + is_cast * product)

    # In a block, also the padded input of the convolution and the dropout mask. In the encoder, also the masked input.
    block = norm(path) + 2 * norm(width) + width * product + path * FLOAT32 * has_dropout
    encoder = hparams.encoder_layers * (block + width * product)
    decoder = hparams.decoder_layers * block
    end = norm(path) + path * (2 * FLOAT32 + is_cast * product)
    # Memory peaks once in the loss and once in a block, at different times, so only the larger peak counts.
    loss_peak = target * vocab_size * 3 * FLOAT32  # logits, their exponentials and their gradient
    block_peak = 3 * max(unfolded_length(source), target) * path * FLOAT32
    kept = unfolded_length(source) * encoder + target * (decoder + end) + max(loss_peak, block_peak)
    return examples * kept
