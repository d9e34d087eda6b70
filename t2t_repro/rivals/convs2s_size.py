"""Formulas for the size of ConvS2S.

In the formulas, C and D are the widths of a layer's input and output, and F is the width of the embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from t2t_repro.models.size_formulas import FLOAT32, Shape, product_bytes


def _layers(hparams: Any, count: int) -> Iterator[tuple[int, int, int]]:
    """Returns C, D and the kernel width of each of the first `count` layers."""
    layers = hparams.layers[:count]
    width_in = layers[0].width
    for width, kernel in layers:
        yield width_in, width, kernel
        width_in = width


def _products(hparams: Any, count: int, has_attention: bool) -> list[tuple[int, int]]:
    """Returns the shapes [n, m] of the weights of a stack of `count` layers, without the linear map at its end."""
    embedding_width = hparams.hidden_size
    shapes = [(embedding_width, hparams.layers[0].width)]
    for width_in, width, kernel in _layers(hparams, count):
        shapes.append((kernel * width_in, 2 * width))
        shapes += [(width_in, width)] if width_in != width else []
        shapes += [(width, embedding_width), (embedding_width, width)] if has_attention else []
    return shapes


def _stacks(hparams: Any) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Returns the shapes of the weights of the encoder and of the decoder, without the pre-softmax projection."""
    layers, output_width = hparams.layers, hparams.output_embedding_size or hparams.hidden_size
    encoder = _products(hparams, hparams.encoder_layers, has_attention=False)
    decoder = _products(hparams, hparams.decoder_layers, has_attention=True)
    encoder.append((layers[hparams.encoder_layers - 1].width, hparams.hidden_size))
    decoder.append((layers[hparams.decoder_layers - 1].width, output_width))
    return encoder, decoder


def parameters(hparams: Any, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.convs2s.ConvS2S; see `Formulas`."""
    encoder, decoder = _stacks(hparams)
    shapes, biases = [*encoder, *decoder], 0
    is_shared = hparams.shared_embedding or hparams.shared_embedding_and_softmax_weights
    rows = vocab_size if is_shared else vocab_size + (source_vocab_size or vocab_size)
    if hparams.shared_embedding_and_softmax_weights:
        biases = vocab_size
    else:
        shapes.append((hparams.output_embedding_size or hparams.hidden_size, vocab_size))
    embeddings = (rows + 2 * hparams.max_length) * hparams.hidden_size
    return embeddings + biases + sum(inputs * outputs + 2 * outputs for inputs, outputs in shapes)


def multiplications(hparams: Any, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass; see `Formulas`."""
    encoder, decoder = (sum(inputs * outputs for inputs, outputs in shapes) for shapes in _stacks(hparams))
    logits = (hparams.output_embedding_size or hparams.hidden_size) * vocab_size
    attention = 2 * hparams.decoder_layers * source_length * target_length * hparams.hidden_size
    return source_length * encoder + target_length * (decoder + logits) + attention


def activations(hparams: Any, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, source, target = shape
    product = product_bytes(precision)
    mask = FLOAT32 * (hparams.layer_prepostprocess_dropout > 0)
    width = hparams.hidden_size

    def convolution(width_in: int, width_out: int) -> int:
        # The dropout mask, the padded input, the map of the residual connection, and both parts of the gated unit.
        projected = product * width_in if width_in != width_out else 0
        return width_in * (mask + product) + projected + 2 * FLOAT32 * width_out

    def attention(width_out: int) -> int:
        # The inputs of the two projections, the query, and the attention weights.
        weights = source * (FLOAT32 + (product if product != FLOAT32 else 0))
        return product * (width_out + 2 * width) + weights

    encoder = sum(convolution(*layer[:2]) for layer in _layers(hparams, hparams.encoder_layers))
    decoder = sum(convolution(*layer[:2]) + attention(layer[1]) for layer in _layers(hparams, hparams.decoder_layers))
    embeddings = (source + target) * width * (FLOAT32 + mask)
    # Memory peaks once in the loss and once in a convolution, at different times, so only the larger peak counts.
    loss_peak = target * vocab_size * 3 * FLOAT32  # logits, their exponentials and their gradient
    widest = max(layer.width for layer in hparams.layers)
    convolution_peak = 2 * max(source, target) * 2 * widest * FLOAT32
    kept = source * encoder + target * decoder + embeddings + max(loss_peak, convolution_peak)
    # All examples share the normalized weights.
    weights = sum(inputs * outputs for shapes in _stacks(hparams) for inputs, outputs in shapes)
    return examples * kept + (examples > 0) * weights * product
