"""The base class of all built-in models: it embeds tokens, and computes logits of all positions at
once or by steps.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, V vocabulary. Ids are
0 for padding, 1 for the end of a text.
"""

from typing import Any, ClassVar

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import save_cross_weights
from t2t_repro.layers.base import Caches, Layer, Tensor, initial_weights
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.embedding import Embedding


class EncoderDecoder(Layer):
    """The base class of models with an encoder and a decoder, which have the interface
    `DecodingModel`.

    A subclass has `add_layers`, `decoder_logits`, and the methods `encode` and `start` of
    `DecodingModel`. `vocab_size` is V. `source_vocab_size` is 0 if source and target share a
    vocabulary. `target_space_id` is the target language (see `SpaceID`), which only the Transformer
    uses.
    """

    model_name: ClassVar[str]
    """Name with which the paths of the weights begin."""
    hparams_class: ClassVar[type[HParams]] = HParams
    has_attention, is_normalized = True, False  # see models.model.DecodingModel
    missing_methods: tuple[str, ...] = ()

    def __init__(
        self,
        hparams: Any,
        vocab_size: int,
        target_space_id: int = 0,
        dtype: Any = None,
        source_vocab_size: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **{"name": self.model_name} | kwargs)
        self.hparams, self.target_space_id = hparams, target_space_id
        self.vocab_size, self.source_vocab_size = vocab_size, source_vocab_size or vocab_size
        self.rate = hparams.layer_prepostprocess_dropout
        self.seed_generator: keras.random.SeedGenerator | None = None
        with keras.name_scope(self.name, caller=self), initial_weights(hparams):
            self.add_layers()

    def add_layers(self) -> None:
        """Makes all layers and weights."""
        raise NotImplementedError

    def add_embeddings(self, width: int, stddev: float | None = None) -> None:
        """Makes the embeddings of sources and targets, one matrix if the hparams say so; `stddev`:
        see `Embedding`.
        """
        dtype = self.dtype_policy
        self.embedding = Embedding(
            self.source_vocab_size, width, stddev, dtype=dtype, name="embedding"
        )
        self.target_embedding = self.embedding
        if not (self.hparams.shared_embedding or self.hparams.shared_embedding_and_softmax_weights):
            self.target_embedding = Embedding(
                self.vocab_size, width, stddev, dtype=dtype, name="target_embedding"
            )

    def add_softmax(self, width: int) -> None:
        """Makes the pre-softmax projection of vectors of `width`, which is the embedding if the
        hparams say so.
        """
        self.softmax = self.embedding
        if not self.hparams.shared_embedding_and_softmax_weights:
            self.softmax = Embedding(
                self.vocab_size, width, dtype=self.dtype_policy, name="softmax"
            )

    def symbolic_call(self, *arguments: Any, **options: Any) -> Any:
        """Returns symbolic logits, with a source of the seeds that `fit` of a functional model does
        not give.
        """
        self.seed_generator = keras.random.SeedGenerator()
        return super().symbolic_call(*arguments, **options)

    def call(
        self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None, training: bool = False
    ) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given source ids [B, S]; see
        `models.model.Model`.

        If `seed` is None and `training` is true, the seeds of dropout are random.
        """
        if seed is None and training:
            seed = keras.random.randint(
                (ops.shape(inputs)[0],), 0, 2**31 - 1, seed=self.seed_generator
            )
        if seed is None:
            return self.decode(targets, self.encode(inputs))
        seeds = Seeds(seed)
        seeds.is_token = inputs != 0
        memory = self.encode(inputs, seeds)
        seeds.is_token = targets != 0
        return self.decode(targets, memory, seeds)

    def decode(
        self,
        targets: Tensor,
        memory: Any,
        seeds: Seeds | None = None,
        save_weights_to: list | None = None,
    ) -> Tensor:
        """Returns the logits [B, T, V] of target ids [B, T], given the memory; see
        `models.model.DecodingModel`.

        Row t of the saved weights shows to which source tokens a layer attends when it predicts
        target t.
        """
        # Shift the targets right, so that each position reads the previous token. As in the
        # authors' code, the first position reads zeros, the embedding of id 0, because there is no
        # start symbol.
        previous = ops.concatenate([ops.zeros_like(targets[:, :1]), targets[:, :-1]], axis=1)
        with save_cross_weights(save_weights_to):
            return self.decoder_logits(self.target_embedding(previous), 0, memory, seeds, None)

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: tuple, memory: Any, save_weights_to: list | None = None
    ) -> tuple[Tensor, tuple]:
        """Returns the logits [B, K, V] of position t, and the new cache; see
        `models.model.DecodingModel`.

        The layers compute only position t, and read from the cache what they need of earlier
        positions. The K hypotheses of a sentence share its memory: for cross-attention, they are
        like K positions of one target.
        """
        caches = Caches(cache)
        with save_cross_weights(save_weights_to):
            logits = self.decoder_logits(self.target_embedding(ids), t, memory, None, caches)
        return logits, tuple(caches.new)

    def decoder_logits(
        self, x: Tensor, start: Tensor, memory: Any, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        """Returns the logits [B, T, V] for the embeddings of the previous targets x [B, T, width].

        `start` is the index of the first position. `caches` is not None in a step of decoding, in
        which T is K.
        """
        raise NotImplementedError
