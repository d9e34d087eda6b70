"""The parts that the encoder-decoder models share. The Transformer has its own, so that its file reads like the paper.

Shapes: B batch, S source length, T target length, V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from __future__ import annotations

from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.embedding import Embedding


class EncoderDecoder(Layer):
    """Base class of models with an encoder and a decoder. A subclass has the other methods of `DecodingModel`.

    Args:
        hparams: sizes, and which embeddings are one matrix.
        precision: dtype of weights and products, see `Layer`.
        name: name of the model, with which the paths of its weights begin.
    """

    is_normalized = False
    missing_methods: tuple[str, ...] = ()

    def __init__(self, hparams: HParams, precision: str, name: str) -> None:
        super().__init__(precision, name)
        self.hparams = hparams

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

    def previous_embeddings(self, targets: Tensor) -> Tensor:
        """Returns for each position the embedding of the token before, [B, T, width], for target ids [B, T].

        The first position gets zeros, because there is no start symbol.
        """
        # On a GPU, TensorFlow can concatenate int64 ids, but not pad them.
        return self.target_embedding(ops.concatenate([ops.zeros_like(targets[:, :1]), targets[:, :-1]], axis=1))

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given source ids [B, S].

        The logits of a position depend only on the targets before it.

        Args:
            seed: uint32 [B], for each example the seed of its dropout masks; None outside training, for no dropout.
        """
        seeds = None if seed is None else Seeds(seed)
        return self.decode(targets, self.encode(inputs, seeds), seeds)
