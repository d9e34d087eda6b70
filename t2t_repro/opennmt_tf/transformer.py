"""The Transformer as OpenNMT-tf computes it.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, D width, V
vocabulary.
"""

from keras import ops

from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.layers.base import Caches, Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.models.transformer import Memory, Transformer

START_ID = 2
"""Id of the start token "<s>", which the decoder reads at the first position."""


class OpenNMTTransformer(Transformer):
    """A `Transformer` with a start token and positions from 1, whose encoder ignores the end of the
    source.
    """

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        return super().encode(ops.where(ops.equal(inputs, EOS_ID), PAD_ID, inputs), seeds)

    def add_layers(self) -> None:
        super().add_layers()
        self.position = self.source_position  # sinusoids or none, which have no weights
        self.source_position = self.target_position = self.position_from_1

    def position_from_1(self, x: Tensor, start: Tensor = 0) -> Tensor:
        return self.position(x, start=start + 1)

    def decoder_logits(
        self, x: Tensor, start: Tensor, memory: Memory, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        # At the first position, x is zeros. In a step of decoding, all K rows of x have the same
        # position.
        positions = start if caches else ops.arange(ops.shape(x)[1])[:, None]
        start_vector = self.target_embedding(ops.full((1, 1), START_ID, "int32"))
        return super().decoder_logits(
            ops.where(positions == 0, start_vector, x), start, memory, seeds, caches
        )
