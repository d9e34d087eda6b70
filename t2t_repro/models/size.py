"""How many weights the Transformer has, how much a step of its training computes and how much memory it takes, by
formula: nothing is built.

Products are counted by their shapes: [m, k] times [k, n] is m * k * n multiplications and as many additions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from t2t_repro.hparam import HParams

TARGET_SPACES = 32
BACKWARD = 2
"""Products of the backward pass for each of the forward's: the gradients of both factors."""
FLOAT32 = 4
"""Bytes."""
USES = 3
"""Of the embedding matrices in a pass: sources, targets and logits. Each gives a gradient of its own, to be summed."""

Shape = tuple[int, int, int]
"""Examples of a micro-batch, positions of each source and of each target, padding included."""


def parameters(hparams: HParams, vocab_size: int) -> int:
    """The number of weights of models.transformer.Transformer.

    Args:
        vocab_size: entries of the vocabulary that source and target share.
    """
    width, layers = hparams.hidden_size, hparams.num_hidden_layers
    attention = 2 * width * (hparams.key_channels + hparams.value_channels)
    feed_forward = 2 * width * hparams.filter_size + hparams.filter_size + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    matrices = 1 if hparams.shared_embedding_and_softmax_weights else 3
    total = matrices * vocab_size * width + layers * (encoder_layer + decoder_layer)
    if hparams.norm_before:
        total += 2 * norm
    if hparams.pos == "emb":
        total += 2 * hparams.max_length * width
    if hparams.use_target_space_embedding:
        total += TARGET_SPACES * width
    return total


def step_flops(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Operations of a training step's matrix products, forward and backward, multiplications and additions.

    Embedding look-ups, norms, softmaxes, dropout and the optimizer are left out, as is padding. Connections that are
    masked are counted, since they are computed.

    Args:
        vocab_size: entries of the vocabulary that source and target share.
        source_length: tokens of each source.
        target_length: tokens of each target; a step holds hparams.batch_size of them.
    """
    width, keys, values = hparams.hidden_size, hparams.key_channels, hparams.value_channels

    def projections(queries: int, memory: int) -> int:
        return (queries + memory) * width * (keys + values)

    def self_attention(length: int, masked: bool) -> int:
        return projections(length, length) + _connections(hparams, length, masked) * (keys + values)

    def feed_forward(length: int) -> int:
        return 2 * length * width * hparams.filter_size

    encoder_layer = self_attention(source_length, masked=False) + feed_forward(source_length)
    memory_attention = projections(target_length, source_length) + target_length * source_length * (keys + values)
    decoder_layer = self_attention(target_length, masked=True) + memory_attention + feed_forward(target_length)
    logits = target_length * width * vocab_size
    sentence = hparams.num_hidden_layers * (encoder_layer + decoder_layer) + logits
    return round(2 * sentence * (1 + BACKWARD) * hparams.batch_size / target_length)


@dataclass(frozen=True)
class Memory:
    """Bytes that a step of training holds on one device at its worst."""

    weights: int
    moments: int
    """Adam's, of the first and of the second order."""
    gradients: int
    """Of all weights, and of each use of the embedding matrices; where they accumulate, their sums too."""
    activations: int
    """What the forward pass keeps for the backward pass."""

    @property
    def total(self) -> int:
        """All of it; the program itself, and what is gone again at once, come on top."""
        return self.weights + self.moments + self.gradients + self.activations


def step_memory(
    hparams: HParams,
    vocab_size: int,
    micro_batches: Sequence[Shape],
    precision: str = "float32",
    accumulates: bool = False,
) -> Memory:
    """The memory of a step, estimated.

    What TensorFlow counted in real steps on a CPU was 0.7 to 1.15 times the estimated gradients and activations: of 1
    to 3 layers, few and many entries, short and long examples, 32 and 16 bits; two micro-batches at once less or more
    by what happened to run side by side. With restricted self-attention it was up to 1.35 times. The base model's
    process, with 37,000 entries and two micro-batches of 2,048 positions a side, held 4.7 GB more than its weights and
    moments, of which the graph took about 0.2; 4.4 were estimated.

    Args:
        vocab_size: entries of the vocabulary that source and target share.
        micro_batches: shapes of the micro-batches that a device computes at a time.
        precision: "float32", or that of the matrix products, in 16 bits.
        accumulates: whether gradients are summed over more micro-batches than these.
    """
    weights = FLOAT32 * parameters(hparams, vocab_size)
    uses = FLOAT32 * USES * len(micro_batches) * vocab_size * hparams.hidden_size
    return Memory(
        weights=weights,
        moments=2 * weights,
        gradients=weights * (2 if accumulates else 1) + uses,
        activations=sum(activations(hparams, vocab_size, shape, precision) for shape in micro_batches),
    )


def activations(hparams: HParams, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Bytes that the forward pass keeps of a micro-batch for the backward pass; see `step_memory`."""
    examples, source, target = shape
    width, heads = hparams.hidden_size, hparams.num_heads
    channels = hparams.key_channels + hparams.value_channels
    product = FLOAT32 if precision == "float32" else 2
    is_cast = product != FLOAT32

    # Of each sub-layer's residual path: dropout's factors, the centred sum, its scales, and the output.
    path = FLOAT32 * width * (3 + (hparams.layer_prepostprocess_dropout > 0)) + is_cast * product * width
    # Of each weight: the softmax, its copy for the product, dropout's factor and what it leaves.
    weight = FLOAT32 + is_cast * product + (hparams.attention_dropout > 0) * FLOAT32 * (1 if is_cast else 2)
    # After the ReLU, dropout's factors and what it leaves.
    inner = product * hparams.filter_size * (3 if hparams.relu_dropout else 1)

    def attention(queries: int, keys: int, connections: int) -> int:
        return queries * path + product * channels * (queries + keys) + heads * connections * weight

    def self_attention(length: int, masked: bool) -> int:
        copies = (2 if masked else 3) if hparams.self_attention_neighborhood else 1  # a block and those beside it
        return attention(length, copies * length, _connections(hparams, length, masked))

    def feed_forward(length: int) -> int:
        return length * (path + inner)

    encoder_layer = self_attention(source, masked=False) + feed_forward(source)
    memory_attention = attention(target, source, target * source)
    decoder_layer = self_attention(target, masked=True) + memory_attention + feed_forward(target)
    embeddings = (source + target) * FLOAT32 * width * (1 + (hparams.layer_prepostprocess_dropout > 0))
    # Not kept for long, and not at the same time: the softmax over the vocabulary, the smoothed targets and the
    # logits' gradient; or two more arrays of the largest kind inside a sub-layer.
    logits = target * vocab_size * (3 * FLOAT32 + is_cast * product)
    weights = heads * FLOAT32 * max(_connections(hparams, source, False), _connections(hparams, target, True))
    inside = 2 * max(weights, max(source, target) * product * hparams.filter_size)
    kept = hparams.num_hidden_layers * (encoder_layer + decoder_layer) + embeddings
    return examples * (kept + max(logits, inside))


def _connections(hparams: HParams, length: int, masked: bool) -> int:
    """Pairs of a query and a key for which a head of self-attention computes a weight."""
    if not hparams.self_attention_neighborhood:
        return length * length
    from t2t_repro.layers.neighborhood import LEAST_BLOCK  # imports Keras

    block = min(length, max(hparams.self_attention_neighborhood // 2, LEAST_BLOCK))
    return math.ceil(length / block) * block * block * (2 if masked else 3)
