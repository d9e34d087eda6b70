"""How many weights the Transformer has and how much a step of its training computes, by formula: nothing is built.

Products are counted by their shapes: [m, k] times [k, n] is m * k * n multiplications and as many additions.
"""

from __future__ import annotations

import math

from t2t_repro.hparam import HParams

TARGET_SPACES = 32
BACKWARD = 2
"""Products of the backward pass for each of the forward's: the gradients of both factors."""


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


def _connections(hparams: HParams, length: int, masked: bool) -> int:
    """Pairs of a query and a key for which a head of self-attention computes a weight."""
    if not hparams.self_attention_neighborhood:
        return length * length
    from t2t_repro.layers.attention import LEAST_BLOCK  # here, since it imports Keras

    block = min(length, max(hparams.self_attention_neighborhood // 2, LEAST_BLOCK))
    return math.ceil(length / block) * block * block * (2 if masked else 3)
