"""The Transformer as OpenNMT-tf computes it.

Shapes: B batch, S source length, T target length, D width.
"""

from typing import Any

from keras import ops

from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.models.transformer import Transformer
from t2t_repro.models.variants import add_weights, parts_of

START_ID = 2
"""Id of the start token "<s>", which the decoder reads at the first position."""


class OpenNMTTransformer(Transformer):
    """A `Transformer` with a start token and positions from 1, whose encoder ignores the end of the
    source.
    """

    def __init__(
        self,
        hparams: HParams,
        vocab_size: int,
        target_space_id: int = 0,
        dtype: Any = None,
        source_vocab_size: int = 0,
        **kwargs: Any,
    ) -> None:
        parts = parts_of(hparams)
        super().__init__(hparams, vocab_size, source_vocab_size, parts, dtype=dtype, **kwargs)
        add_weights(self, vocab_size, target_space_id)
        self.position = self.source_position  # sinusoids or none, which have no weights
        self.source_position = self.target_position = self.position_from_1
        self.targets_without_start = self.target_embedding
        self.target_embedding = self.embedding_with_start

    def encode(
        self, inputs: Tensor, seeds: Seeds | None = None, return_attention: bool = False
    ) -> Any:
        """Returns the memory of source ids [B, S], see `Transformer.encode`."""
        without_end = ops.where(ops.equal(inputs, EOS_ID), PAD_ID, inputs)
        return super().encode(without_end, seeds, return_attention)

    def position_from_1(self, x: Tensor, start: Tensor = 0) -> Tensor:
        """Returns the vectors of the positions of x [B, T, D], which begin at `start` + 1."""
        return self.position(x, start=start + 1)

    def embedding_with_start(self, ids: Tensor) -> Tensor:
        """Returns the embeddings of the previous targets: the first position reads id 0."""
        return self.targets_without_start(ops.where(ops.equal(ids, PAD_ID), START_ID, ids))
