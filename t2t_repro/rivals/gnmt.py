"""GNMT in the order of its publication's section 3 (Wu et al. 2016): encoder, decoder, model.

Both stacks have residual connections from the third layer on. The publication leaves open:

- biases of LSTMs: here as in `rivals.lstm`
- whether the bottom decoder layer also reads the context: here it does
- state of the decoder before the first position: here 0
- place of dropout: here on each layer's input from below and on the output of the top layer, but
  not on the context

Omitted are the clipping of states and logits, which prepares for quantized inference (section 6),
and training for the BLEU score (section 5).

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, D width, V
vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from dataclasses import dataclass

import keras
from keras import ops

from t2t_repro.layers.base import Caches, Tensor
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.rivals.attentive_lstm import Memory
from t2t_repro.rivals.recurrent import RecurrentHParams, RecurrentModel

FIRST_RESIDUAL = 2
"""Index of the first layer of a stack with a residual connection: the third from the bottom
(section 3.1).
"""


@dataclass(frozen=True)
class GNMTHParams(RecurrentHParams):
    model: str = "gnmt"


class GNMT(RecurrentModel):
    """The model of figure 1: embeddings, encoder, attention, decoder and softmax.

    The encoder has a bidirectional layer, then layers that read the source from left to right. Each
    layer of the decoder reads the layer below and the context of attention. The query of attention
    is the output of the bottom layer at the position before (equation 4). So attention must be
    computed position by position, but only with the bottom layer, and the other layers can run in
    parallel with it.
    """

    model_name, hparams_class = "gnmt", GNMTHParams

    def add_layers(self) -> None:
        hparams, width = self.hparams, self.hparams.hidden_size
        self.add_tables(width)
        with keras.name_scope("encoder"):
            self.forward, self.backward = (
                self.lstm(width, f"layer_0_{name}") for name in ("forward", "backward")
            )
            widths = [2 * width, *(width,) * hparams.encoder_layers]
            self.readers = [
                self.lstm(widths[i - 1], f"layer_{i}") for i in range(1, hparams.encoder_layers)
            ]
        with keras.name_scope("decoder"):
            memory_width = width if self.readers else 2 * width
            self.add_bottom(width, memory_width)
            self.upper = [
                self.lstm(width + memory_width, f"layer_{i}")
                for i in range(1, hparams.decoder_layers)
            ]

    def encoder_output(self, x: Tensor, is_padding: Tensor, seeds: Seeds | None) -> Tensor:
        """Returns the vectors x_1, ..., x_M (equation 1) [B, S, D] of embeddings x [B, S, D].

        If the encoder has only the bidirectional layer, the vectors have width 2 D.
        """
        x = dropout(x, self.rate, seeds)
        # The backward layer reads each sentence from its own end, so padding changes nothing
        # (section 3.2).
        x = ops.concatenate([self.forward(x), self.backward(x, is_padding)], axis=-1)
        for i, layer in enumerate(self.readers, start=1):
            y = layer(dropout(x, self.rate, seeds))
            x = y + x if i >= FIRST_RESIDUAL else y  # equation 6
        return x

    def decoder_output(
        self, x: Tensor, memory: Memory, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        x, contexts = self.bottom.attend(dropout(x, self.rate, seeds), memory, caches)
        for i, layer in enumerate(self.upper, start=1):
            y = layer(
                ops.concatenate([dropout(x, self.rate, seeds), contexts], axis=-1), caches=caches
            )
            x = y + x if i >= FIRST_RESIDUAL else y
        return dropout(x, self.rate, seeds)
