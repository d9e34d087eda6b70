"""Formulas for the size of the Transformer."""

from __future__ import annotations

import math

from t2t_repro.hparam import HParams
from t2t_repro.models.size_formulas import FLOAT32, Shape, embedding_rows, product_bytes
from t2t_repro.problem import SpaceID


def parameters(hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.transformer.Transformer; see `Formulas`."""
    width = hparams.hidden_size
    attention = 2 * width * (hparams.key_channels + hparams.value_channels)
    feed_forward = 2 * width * hparams.filter_size + hparams.filter_size + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    rows = embedding_rows(hparams, vocab_size, source_vocab_size)
    total = rows * width + hparams.encoder_layers * encoder_layer + hparams.decoder_layers * decoder_layer
    if hparams.self_attention_type == "dot_product_relative":
        layers = hparams.encoder_layers + hparams.decoder_layers
        head_channels = (hparams.key_channels + hparams.value_channels) // hparams.num_heads
        total += layers * (2 * hparams.max_relative_position + 1) * head_channels
    if hparams.norm_before:
        total += 2 * norm
    if hparams.pos == "emb":
        total += 2 * hparams.max_length * width
    if hparams.use_target_space_embedding:
        total += SpaceID.COUNT * width
    return total


def multiplications(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of multiplications of a forward pass; see `Formulas`.

    The formula includes masked attention weights, which the model computes too.
    """
    width, channels = hparams.hidden_size, hparams.key_channels + hparams.value_channels

    def projections(queries: int, keys: int) -> int:
        return (queries + keys) * width * channels

    def self_attention(length: int, is_masked: bool) -> int:
        # Relative self-attention multiplies by keys and values, and by vectors of the distances.
        products = 2 if hparams.self_attention_type == "dot_product_relative" else 1
        return projections(length, length) + _connections(hparams, length, is_masked) * channels * products

    def feed_forward(length: int) -> int:
        return 2 * length * width * hparams.filter_size

    encoder_layer = self_attention(source_length, is_masked=False) + feed_forward(source_length)
    cross_attention = projections(target_length, source_length) + target_length * source_length * channels
    decoder_layer = self_attention(target_length, is_masked=True) + cross_attention + feed_forward(target_length)
    logits = target_length * width * vocab_size
    return hparams.encoder_layers * encoder_layer + hparams.decoder_layers * decoder_layer + logits


def activations(hparams: HParams, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `Formulas`."""
    examples, source, target = shape
    width, heads = hparams.hidden_size, hparams.num_heads
    channels = hparams.key_channels + hparams.value_channels
    product = product_bytes(precision)
    is_cast = product != FLOAT32

    # Bytes that a residual connection keeps per position: the dropout mask, three tensors of the layer norm (centered
    # input, scale / standard deviation, output) and, with 16-bit precision, a 16-bit copy of the output.
    residual = FLOAT32 * width * (3 + (hparams.layer_prepostprocess_dropout > 0)) + is_cast * product * width
    # Bytes kept per attention weight: the softmax; with 16-bit precision, a 16-bit copy; with dropout, the dropout
    # mask and, only in float32, the softmax after dropout.
    weight = FLOAT32 + is_cast * product + (hparams.attention_dropout > 0) * FLOAT32 * (1 if is_cast else 2)
    # Bytes that a feed-forward network keeps per position: the ReLU's output and, with dropout, also the dropout mask
    # and the output after dropout.
    inner = product * hparams.filter_size * (3 if hparams.relu_dropout else 1)

    def attention(queries: int, keys: int, connections: int) -> int:
        return queries * residual + product * channels * (queries + keys) + heads * connections * weight

    def self_attention(length: int, is_masked: bool) -> int:
        # With restricted self-attention, each block that reads a key keeps its own copy of the key.
        copies = (2 if is_masked else 3) if hparams.self_attention_neighborhood else 1
        return attention(length, copies * length, _connections(hparams, length, is_masked))

    def feed_forward(length: int) -> int:
        return length * (residual + inner)

    encoder_layer = self_attention(source, is_masked=False) + feed_forward(source)
    cross_attention = attention(target, source, target * source)
    decoder_layer = self_attention(target, is_masked=True) + cross_attention + feed_forward(target)
    embeddings = (source + target) * FLOAT32 * width * (1 + (hparams.layer_prepostprocess_dropout > 0))
    layers = hparams.encoder_layers * encoder_layer + hparams.decoder_layers * decoder_layer
    # Memory peaks once in the loss and once in a sub-layer, at different times, so only the larger peak counts. The
    # loss needs the logits, their exponentials and gradient. A sub-layer needs two temporary tensors, each as large as
    # its attention weights or its inner layer.
    loss_peak = target * vocab_size * 3 * FLOAT32
    weights = heads * FLOAT32 * max(_connections(hparams, source, False), _connections(hparams, target, True))
    sublayer_peak = 2 * max(weights, max(source, target) * product * hparams.filter_size)
    # All examples share the vectors of the distances between positions.
    is_relative = examples > 0 and hparams.self_attention_type == "dot_product_relative"
    distances = hparams.encoder_layers * source**2 + hparams.decoder_layers * target**2
    vectors = is_relative * distances * channels // heads * product
    return examples * (layers + embeddings + max(loss_peak, sublayer_peak)) + vectors


def _connections(hparams: HParams, length: int, is_masked: bool) -> int:
    """Returns the number of attention weights (one per query and key) that a head of self-attention computes."""
    if not hparams.self_attention_neighborhood:
        return length * length
    from t2t_repro.layers.neighborhood import MIN_BLOCK  # imported late, because it loads Keras

    block = min(length, max(hparams.self_attention_neighborhood // 2, MIN_BLOCK))
    return math.ceil(length / block) * block * block * (2 if is_masked else 3)
