"""The translation model of Shazeer et al. (2017, section 5.3 and appendix E): a small GNMT with
mixtures of experts.

Each stack has LSTMs with many cells and a projection to the width of the model, and one mixture of
experts above its bottom layer. The output of a mixture goes through a sigmoid. A residual
connection is around each layer and each mixture. Dropout is on the embeddings and on the output of
each layer and each mixture, before the residual sum.

The publication counts the two directions of a bidirectional layer as two layers: it says that
GNMT's encoder has 9 layers and this one 3. Here they are one layer, as in `rivals.gnmt`, so both
stacks have 2 layers at the published size. The publication leaves open:

- join of the two directions, if the input and the output of each layer have width 512: here their
  sum
- whether upper decoder layers also read the context of attention: here only the bottom layer does.
  Without gating, the model then has the published 85 M multiplications for a pair of tokens; if all
  layers read it, it has 89 M
- biases of LSTMs, width of attention's hidden layer, state of the decoder before the first
  position: here as in `rivals.gnmt`

One part differs from the publication. The gating of all mixtures is here noisy top-k gating with
both balancing losses, in one level or two; the publication has this only in its multilingual model,
and otherwise strictly balanced gating (appendix F), in two levels from 512 experts on.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, D width, C cells of
an LSTM. Ids are 0 for padding, 1 for the end of a text.
"""

from dataclasses import dataclass

import keras
from keras import ops

from t2t_repro.hparam import OPTIONAL_WIDTH, hparam, transformer_only
from t2t_repro.layers.base import Caches, Tensor
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.rivals.attentive_lstm import Memory
from t2t_repro.rivals.experts import Experts, ExpertsHParams
from t2t_repro.rivals.recurrent import RecurrentHParams, RecurrentModel


@dataclass(frozen=True)
class MoEHParams(RecurrentHParams, ExpertsHParams):
    """The model's hparams. `filter_size` is the inner width of each expert."""

    model: str = "moe"
    cell_size: int = hparam(0, OPTIONAL_WIDTH)
    """C: number of cells of each LSTM, whose output is projected to hidden_size. 0 means
    hidden_size cells and no projection.
    """

    unused = transformer_only("multiply_embedding_mode", "filter_size")


class MoE(RecurrentModel):
    """The model: embeddings, encoder, attention, decoder and softmax. Training adds the losses that
    balance experts.

    The encoder has a bidirectional layer, a mixture of experts, then layers that read the source
    from left to right. The decoder has a layer that attends to the encoder output, a mixture of
    experts, then layers above it. As in GNMT, the query of attention is the output of the bottom
    layer at the position before.
    """

    model_name, hparams_class = "moe", MoEHParams

    def add_layers(self) -> None:
        hparams, width, self.cells = self.hparams, self.hparams.hidden_size, self.hparams.cell_size
        self.add_tables(width)
        with keras.name_scope("encoder"):
            self.forward, self.backward = (
                self.lstm(width, f"layer_0_{name}") for name in ("forward", "backward")
            )
            self.encoder_experts = Experts(hparams, dtype=self.dtype_policy, name="experts")
            self.readers = [
                self.lstm(width, f"layer_{i}") for i in range(1, hparams.encoder_layers)
            ]
        with keras.name_scope("decoder"):
            self.add_bottom(width, width)
            self.decoder_experts = Experts(hparams, dtype=self.dtype_policy, name="experts")
            self.upper = [self.lstm(width, f"layer_{i}") for i in range(1, hparams.decoder_layers)]

    def encoder_output(self, x: Tensor, is_padding: Tensor, seeds: Seeds | None) -> Tensor:
        x = dropout(x, self.rate, seeds)
        # The backward layer reads each sentence from its own end, so padding changes nothing.
        y = self.forward(x) + self.backward(x, is_padding)
        x = x + dropout(y, self.rate, seeds)
        x = x + dropout(ops.sigmoid(self.encoder_experts(x, seeds=seeds)), self.rate, seeds)
        for layer in self.readers:
            x = x + dropout(layer(x), self.rate, seeds)
        return x

    def decoder_output(
        self, x: Tensor, memory: Memory, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        x = dropout(x, self.rate, seeds)
        y, _ = self.bottom.attend(x, memory, caches)
        x = x + dropout(y, self.rate, seeds)
        x = x + dropout(ops.sigmoid(self.decoder_experts(x, seeds=seeds)), self.rate, seeds)
        for layer in self.upper:
            x = x + dropout(layer(x, caches=caches), self.rate, seeds)
        return x
