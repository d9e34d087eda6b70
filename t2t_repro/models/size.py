"""Formulas for the Transformer's parameters, and for a training step's operations and memory, without making a model.

A matrix product of shapes [m, k] and [k, n] counts as m * k * n multiplications and the same number of additions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from t2t_repro.hparam import HParams

TARGET_SPACES = 32
"""Number of rows in the target-space embedding; see hparams.use_target_space_embedding."""
BACKWARD = 2
"""Number of matrix products in the backward pass for each product in the forward pass: one gradient per factor."""
FLOAT32 = 4
"""Bytes of a float32 number."""
EMBEDDING_USES = 3
"""Number of uses of embedding matrices in a training step: for sources, for targets and for logits."""

Shape = tuple[int, int, int]
"""Shape of a micro-batch: number of examples, length of the sources and length of the targets, including padding."""


def parameters(hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters of models.transformer.Transformer.

    Args:
        vocab_size: number of entries in the vocabulary of the targets.
        source_vocab_size: number of entries in the vocabulary of the sources; 0 if source and target share one.
    """
    width, layers = hparams.hidden_size, hparams.num_hidden_layers
    attention = 2 * width * (hparams.key_channels + hparams.value_channels)
    feed_forward = 2 * width * hparams.filter_size + hparams.filter_size + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    embeddings = vocab_size if hparams.shared_embedding else vocab_size + (source_vocab_size or vocab_size)
    rows = vocab_size if hparams.shared_embedding_and_softmax_weights else embeddings + vocab_size
    total = rows * width + layers * (encoder_layer + decoder_layer)
    if hparams.self_attention_type == "dot_product_relative":
        head_channels = (hparams.key_channels + hparams.value_channels) // hparams.num_heads
        total += 2 * layers * (2 * hparams.max_relative_position + 1) * head_channels
    if hparams.norm_before:
        total += 2 * norm
    if hparams.pos == "emb":
        total += 2 * hparams.max_length * width
    if hparams.use_target_space_embedding:
        total += TARGET_SPACES * width
    return total


def step_flops(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of operations in all matrix products of a training step, forward and backward.

    The formula omits other operations and padding. It includes masked attention weights, which the model computes too.

    Args:
        vocab_size: number of entries in the vocabulary that source and target share.
        source_length: number of tokens of each source.
        target_length: number of tokens of each target. The number of sentences is hparams.batch_size / target_length.
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
    sentence = hparams.num_hidden_layers * (encoder_layer + decoder_layer) + logits
    return round(2 * sentence * (1 + BACKWARD) * hparams.batch_size / target_length)


@dataclass(frozen=True)
class StepMemory:
    """Peak memory of a training step on one device, in bytes."""

    weights: int
    moments: int
    """Adam's first and second moments."""
    gradients: int
    """Gradients of all weights and of each use of an embedding matrix. With gradient accumulation, also the sums of the
    weights' gradients."""
    activations: int
    """Tensors that the forward pass keeps for the backward pass."""

    @property
    def total(self) -> int:
        """The sum of the fields, without the memory of the program itself and of short-lived tensors."""
        return self.weights + self.moments + self.gradients + self.activations


def step_memory(
    hparams: HParams, vocab_size: int, shapes: Sequence[Shape], precision: str = "float32", accumulates: bool = False
) -> StepMemory:
    """Returns an estimate of a training step's peak memory.

    In measured steps on a CPU, gradients and activations needed 0.7 to 1.15 times the estimate, and with restricted
    self-attention up to 1.35 times. For the base model with 37,000 vocabulary entries and two micro-batches of 2,048
    positions, gradients and activations needed 4.7 GB; the estimate is 4.4 GB.

    Args:
        vocab_size: number of entries in the vocabulary that source and target share.
        shapes: shapes of the micro-batches that a device computes at the same time.
        precision: "float32" or "tf32", or a precision with 16 bits in matrix products.
        accumulates: true if the device computes further micro-batches of the step afterwards and sums all gradients.
    """
    weights = FLOAT32 * parameters(hparams, vocab_size)
    embeddings = FLOAT32 * EMBEDDING_USES * len(shapes) * vocab_size * hparams.hidden_size
    return StepMemory(
        weights=weights,
        moments=2 * weights,
        gradients=weights * (2 if accumulates else 1) + embeddings,
        activations=sum(activations(hparams, vocab_size, shape, precision) for shape in shapes),
    )


def activations(hparams: HParams, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `step_memory`."""
    examples, source, target = shape
    width, heads = hparams.hidden_size, hparams.num_heads
    channels = hparams.key_channels + hparams.value_channels
    product = FLOAT32 if precision in ("float32", "tf32") else 2
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
    layers = hparams.num_hidden_layers * (encoder_layer + decoder_layer)
    # Memory peaks once in the loss and once in a sub-layer, at different times, so only the larger peak counts. The
    # loss needs the softmax over the vocabulary, the smoothed targets and the gradient of the logits. A sub-layer needs
    # two temporary tensors, each as large as its attention weights or its inner layer.
    loss_peak = target * vocab_size * (3 * FLOAT32 + is_cast * product)
    weights = heads * FLOAT32 * max(_connections(hparams, source, False), _connections(hparams, target, True))
    sublayer_peak = 2 * max(weights, max(source, target) * product * hparams.filter_size)
    # All examples share the vectors of the distances between positions.
    is_relative = examples > 0 and hparams.self_attention_type == "dot_product_relative"
    vectors = is_relative * hparams.num_hidden_layers * (source**2 + target**2) * channels // heads * product
    return examples * (layers + embeddings + max(loss_peak, sublayer_peak)) + vectors


def _connections(hparams: HParams, length: int, is_masked: bool) -> int:
    """Returns the number of attention weights (one per query and key) that a head of self-attention computes."""
    if not hparams.self_attention_neighborhood:
        return length * length
    from t2t_repro.layers.neighborhood import LEAST_BLOCK  # imported late, because it loads Keras

    block = min(length, max(hparams.self_attention_neighborhood // 2, LEAST_BLOCK))
    return math.ceil(length / block) * block * block * (2 if is_masked else 3)
