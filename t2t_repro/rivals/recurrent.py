"""The base class of GNMT, Deep-Att and MoE: stacks of LSTMs, and attention in the bottom layer of the decoder.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, D width of an LSTM, C cells of an LSTM,
V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from __future__ import annotations

from typing import Any, ClassVar

from t2t_repro.layers.base import Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.masks import padding_bias
from t2t_repro.models.encoder_decoder import EncoderDecoder
from t2t_repro.rivals.attentive_lstm import Memory
from t2t_repro.rivals.lstm import State


class RecurrentModel(EncoderDecoder):
    """Base class of GNMT, Deep-Att and MoE. States, sums and attention weights are float32 in every precision."""

    encoder_class: ClassVar[Any]
    """Its `call` returns the encoder output [B, S, M] for embeddings [B, S, width], is_padding [B, S], and seeds."""
    decoder_class: ClassVar[Any]
    """Has an AttentiveLSTM `bottom`, which attends to the memory, and LSTMs `layers` above it.

    Its `call` returns the outputs of the top layer [B, T, D] for embeddings [B, T, width], the memory, seeds, and a
    cache: None, or the layers' states for a step, in which T is K.
    """

    def add_layers(self) -> None:
        """Makes all layers."""
        width = self.embedding_width
        self.add_embeddings(width, stddev=width**-0.5)
        self.add_softmax(self.hparams.hidden_size)
        self.encoder = self.encoder_class(self.hparams, self.dtype_policy.name)
        self.decoder = self.decoder_class(self.hparams, self.dtype_policy.name)

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return int(self.hparams.hidden_size)

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S]."""
        x = self.encoder(self.embedding(inputs), inputs == 0, seeds)
        return self.decoder.bottom.attention.memory(x, padding_bias(inputs)[:, 0, 0])

    def start(self, hypotheses: Tensor) -> tuple[State, ...]:
        """Returns the cache before the first position: zeros [hypotheses, D] and [hypotheses, C] for each layer."""
        return tuple(layer.start(hypotheses) for layer in (self.decoder.bottom, *self.decoder.layers))

    def decoder_logits(
        self, x: Tensor, positions: tuple[Tensor, Tensor], memory: Memory, seeds: Seeds | None, cache: list | None
    ) -> Tensor:
        """Returns the logits [B, T, V] for the embeddings x [B, T, width]; see the base class."""
        return self.softmax.logits(self.decoder(x, memory, seeds, cache))
