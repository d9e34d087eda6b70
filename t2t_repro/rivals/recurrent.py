"""The parts that recurrent models with attention share: embeddings, softmax, and methods for training and decoding.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, D width of an LSTM, C cells of an LSTM,
V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.masks import padding_bias
from t2t_repro.rivals.additive_attention import Memory
from t2t_repro.rivals.encoder_decoder import EncoderDecoder
from t2t_repro.rivals.lstm import State


class RecurrentModel(EncoderDecoder):
    """Base class of GNMT, Deep-Att and MoE. A subclass has its name and the classes of its encoder and decoder.

    Args:
        hparams: sizes and dropout rate. The width of the embeddings is `embedding_size`, or `hidden_size` if that is 0.
        vocab_size: V, the number of entries in the vocabulary of the targets.
        target_space_id: ignored.
        precision: dtype of weights and products, see `Layer`. States, sums and attention weights are float32.
        source_vocab_size: number of entries in the vocabulary of the sources; 0 if source and target share one.
    """

    model_name: ClassVar[str]
    encoder_class: ClassVar[Any]
    decoder_class: ClassVar[Any]

    has_attention = True

    def __init__(
        self,
        hparams: HParams,
        vocab_size: int,
        target_space_id: int = 0,
        precision: str = "float32",
        source_vocab_size: int = 0,
    ) -> None:
        super().__init__(hparams, precision, name=self.model_name)
        width = hparams.embedding_size or hparams.hidden_size
        with keras.name_scope(self.model_name):
            self.add_embeddings(vocab_size, source_vocab_size, width, stddev=width**-0.5)
            self.softmax = self.embedding
            if not hparams.shared_embedding_and_softmax_weights:
                self.softmax = Embedding(vocab_size, hparams.hidden_size, precision, name="softmax")
            self.encoder = self.encoder_class(hparams, precision)
            self.decoder = self.decoder_class(hparams, precision)

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S]."""
        x = self.encoder(self.embedding(inputs), inputs == 0, seeds)
        return self.decoder.bottom.attention.memory(x, padding_bias(inputs)[:, 0, 0])

    def decode(
        self, targets: Tensor, memory: Memory, seeds: Seeds | None = None, save_weights_to: list | None = None
    ) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given the memory.

        Args:
            save_weights_to: list to which this method appends the attention weights [B, 1, T, S].
        """
        x = self.previous_embeddings(targets)
        return self.softmax.logits(self.decoder(x, memory, seeds, save_weights_to))

    def start(self, hypotheses: Tensor) -> tuple[State, ...]:
        """Returns the cache before the first position: zeros [hypotheses, D] and [hypotheses, C] for each layer."""
        return tuple(layer.start(hypotheses) for layer in (self.decoder.bottom, *self.decoder.layers))

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: tuple[State, ...], memory: Memory, save_weights_to: list | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Returns the logits [B, K, V] of position t, equal to those of `decode`, and the cache after position t.

        Args:
            ids: [B, K], the token of each hypothesis at position t - 1, or 0 if t is 0.
            t: index of the position, from 0. The model does not need it.
            save_weights_to: list to which this method appends the attention weights [B, 1, K, S].
        """
        x, cache, weights = self.decoder.step(self.target_embedding(ids), cache, memory)
        if save_weights_to is not None:
            save_weights_to.append(weights[:, None])
        return self.softmax.logits(x), cache
