"""The parts that the rivals share: embeddings and softmax, and the methods of the recurrent models with attention.

The Transformer has its own, so that its file reads like the paper.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, D width of an LSTM, C cells of an LSTM,
V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from __future__ import annotations

from typing import Any, ClassVar

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.masks import padding_bias
from t2t_repro.rivals.attentive_lstm import Memory
from t2t_repro.rivals.lstm import State


class EncoderDecoder(Layer):
    """Base class of models with an encoder and a decoder. A subclass has the other methods of `DecodingModel`.

    The arguments are those of `Transformer`, but target_space_id is ignored.
    """

    model_name: ClassVar[str]
    """Name with which the paths of the weights begin."""
    hparams_class: ClassVar[type[HParams]]
    has_attention, is_normalized = True, False
    missing_methods: tuple[str, ...] = ()

    def __init__(
        self,
        hparams: Any,
        vocab_size: int,
        target_space_id: int = 0,
        precision: str = "float32",
        source_vocab_size: int = 0,
    ) -> None:
        super().__init__(precision, name=self.model_name)
        self.hparams, self.rate = hparams, hparams.layer_prepostprocess_dropout
        with keras.name_scope(self.model_name):
            self.add_layers(vocab_size, source_vocab_size)

    def add_layers(self, vocab_size: int, source_vocab_size: int) -> None:
        """Makes the layers. The arguments are those of `add_embeddings`."""
        raise NotImplementedError

    def add_embeddings(self, vocab_size: int, source_vocab_size: int, width: int, stddev: float | None = None) -> None:
        """Makes the embeddings of sources and targets, which are one matrix if the hparams say so.

        Args:
            vocab_size: V, the number of entries in the vocabulary of the targets.
            source_vocab_size: number of entries in the vocabulary of the sources; 0 if source and target share one.
            width: width of the embeddings.
            stddev: initial standard deviation, see `Embedding`.
        """
        precision = self.dtype_policy.name
        self.embedding = Embedding(source_vocab_size or vocab_size, width, precision, "embedding", stddev)
        self.target_embedding = self.embedding
        if not (self.hparams.shared_embedding or self.hparams.shared_embedding_and_softmax_weights):
            self.target_embedding = Embedding(vocab_size, width, precision, "target_embedding", stddev)

    def add_softmax(self, vocab_size: int, width: int) -> None:
        """Makes the pre-softmax projection of vectors of `width`, which is the embedding if the hparams say so."""
        self.softmax = self.embedding
        if not self.hparams.shared_embedding_and_softmax_weights:
            self.softmax = Embedding(vocab_size, width, self.dtype_policy.name, name="softmax")

    def previous_embeddings(self, targets: Tensor) -> Tensor:
        """Returns for each position the embedding of the token before, [B, T, width], for target ids [B, T].

        The first position gets zeros, because there is no start symbol.
        """
        # On a GPU, TensorFlow can concatenate int64 ids, but not pad them.
        return self.target_embedding(ops.concatenate([ops.zeros_like(targets[:, :1]), targets[:, :-1]], axis=1))

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given source ids [B, S]; see `models.model.Model`."""
        seeds = None if seed is None else Seeds(seed)
        return self.decode(targets, self.encode(inputs, seeds), seeds)


class RecurrentModel(EncoderDecoder):
    """Base class of GNMT, Deep-Att and MoE. States, sums and attention weights are float32 in every precision."""

    encoder_class: ClassVar[Any]
    """Its `call` returns the encoder output [B, S, M] for embeddings [B, S, width], is_padding [B, S], and seeds."""
    decoder_class: ClassVar[Any]
    """Has an AttentiveLSTM `bottom`, which attends to the memory, and LSTMs `layers` above it.

    Its `call` returns the outputs of the top layer [B, T, D] and the attention weights [B, T, S] for embeddings
    [B, T, width], the memory, seeds, and a cache: None, or the layers' states for a step, in which T is K.
    """

    def add_layers(self, vocab_size: int, source_vocab_size: int) -> None:
        """Makes the layers; see `EncoderDecoder.add_layers`."""
        width = self.embedding_width
        self.add_embeddings(vocab_size, source_vocab_size, width, stddev=width**-0.5)
        self.add_softmax(vocab_size, self.hparams.hidden_size)
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

    def decode(
        self, targets: Tensor, memory: Memory, seeds: Seeds | None = None, save_weights_to: list | None = None
    ) -> Tensor:
        """Returns the logits [B, T, V]; see `DecodingModel.decode`. The attention weights are [B, 1, T, S]."""
        return self._logits(self.previous_embeddings(targets), memory, seeds, save_weights_to)

    def start(self, hypotheses: Tensor) -> tuple[State, ...]:
        """Returns the cache before the first position: zeros [hypotheses, D] and [hypotheses, C] for each layer."""
        return tuple(layer.start(hypotheses) for layer in (self.decoder.bottom, *self.decoder.layers))

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: tuple[State, ...], memory: Memory, save_weights_to: list | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Returns the logits [B, K, V] of position t and the cache after it; see `DecodingModel.decode_step`."""
        states = list(cache)
        return self._logits(self.target_embedding(ids), memory, None, save_weights_to, states), tuple(states)

    def _logits(
        self,
        x: Tensor,
        memory: Memory,
        seeds: Seeds | None,
        save_weights_to: list | None,
        cache: list[State] | None = None,
    ) -> Tensor:
        x, weights = self.decoder(x, memory, seeds, cache)
        if save_weights_to is not None:
            save_weights_to.append(weights[:, None])
        return self.softmax.logits(x)
