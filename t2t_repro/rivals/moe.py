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
from typing import Any

import keras
from keras import ops

from t2t_repro.hparam import OPTIONAL_WIDTH, hparam, transformer_only
from t2t_repro.layers.base import Layer, Tensor
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.models.transformer import shift_right
from t2t_repro.rivals.attentive_lstm import Memory
from t2t_repro.rivals.experts import Experts, ExpertsHParams
from t2t_repro.rivals.lstm import State
from t2t_repro.rivals.recurrent import (
    Decoded,
    Decoder,
    RecurrentHParams,
    RecurrentModel,
    initial,
    make_bottom,
    make_lstm,
)


@dataclass(frozen=True)
class MoEHParams(RecurrentHParams, ExpertsHParams):
    """The model's hparams. `filter_size` is the inner width of each expert."""

    model: str = "moe"
    cell_size: int = hparam(0, OPTIONAL_WIDTH)
    """C: number of cells of each LSTM, whose output is projected to hidden_size. 0 means
    hidden_size cells and no projection.
    """

    unused = transformer_only("multiply_embedding_mode", "filter_size")


def make_experts(hparams: MoEHParams, dtype: Any) -> Experts:
    return Experts(hparams, initial(hparams), dtype=dtype, name="experts")


class MoEEncoder(Layer):
    """A bidirectional layer, a mixture of experts, then layers that read from left to right."""

    def __init__(self, hparams: MoEHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = hparams.layer_prepostprocess_dropout
        width = hparams.hidden_size
        lstm = make_lstm(hparams, self.dtype_policy, hparams.cell_size)
        with keras.name_scope(self.name):
            self.forward = lstm(width, name="layer_0_forward")
            self.backward = lstm(width, name="layer_0_backward")
            self.experts = make_experts(hparams, self.dtype_policy)
            layers = range(1, hparams.encoder_layers)
            self.readers = [lstm(width, name=f"layer_{i}") for i in layers]

    def call(self, x: Tensor, is_padding: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the encoder output [B, S, D] for embeddings x [B, S, D]."""
        x = dropout(x, self.rate, seeds)
        # The backward layer reads each sentence from its own end, so padding changes nothing.
        forward, _ = self.forward(x)
        backward, _ = self.backward(x, is_padding)
        x = x + dropout(forward + backward, self.rate, seeds)
        y = ops.sigmoid(self.experts(x, ops.logical_not(is_padding), seeds=seeds))
        x = x + dropout(y, self.rate, seeds)
        for layer in self.readers:
            y, _ = layer(x)
            x = x + dropout(y, self.rate, seeds)
        return x


class MoEDecoder(Decoder):
    """A layer that attends to the encoder output, a mixture of experts, then layers above it.

    As in GNMT, the query of attention is the output of the bottom layer at the position before.
    """

    def __init__(self, hparams: MoEHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = hparams.layer_prepostprocess_dropout
        width = hparams.hidden_size
        lstm = make_lstm(hparams, self.dtype_policy, hparams.cell_size)
        bottom = make_bottom(hparams, self.dtype_policy, hparams.cell_size)
        with keras.name_scope(self.name):
            self.bottom = bottom(width, memory_width=width)
            self.experts = make_experts(hparams, self.dtype_policy)
            layers = range(1, hparams.decoder_layers)
            self.upper = [lstm(width, name=f"layer_{i}") for i in layers]

    def call(
        self,
        x: Tensor,
        memory: Memory,
        states: tuple[State, ...] | None = None,
        is_token: Tensor = None,
        seeds: Seeds | None = None,
    ) -> Decoded:
        """Returns the results for embeddings x [B, T, D].

        In training, the losses that balance experts count the positions of `is_token`, bool [B, T].
        """
        first, *others = states or (None,) * (1 + len(self.upper))
        x = dropout(x, self.rate, seeds)
        y, _, weights, state = self.bottom.attend(x, memory, first)
        new_states = [state]
        x = x + dropout(y, self.rate, seeds)
        y = ops.sigmoid(self.experts(x, is_token, seeds=seeds))
        x = x + dropout(y, self.rate, seeds)
        for layer, state in zip(self.upper, others, strict=True):
            y, state = layer(x, state=state)
            new_states.append(state)
            x = x + dropout(y, self.rate, seeds)
        return Decoded(x, weights, tuple(new_states))


class MoE(RecurrentModel):
    """The model: embeddings, encoder, attention, decoder and softmax.

    Training adds the losses that balance experts.
    """

    hparams_class = MoEHParams
    encoder_class = MoEEncoder
    decoder_class = MoEDecoder

    def decode(
        self,
        targets: Tensor,
        memory: Memory,
        seeds: Seeds | None = None,
        return_attention: bool = False,
    ) -> Any:
        """Returns the logits [B, T, V] of target ids [B, T]; see `models.model.DecodingModel`."""
        x = self.target_embedding(shift_right(targets))
        decoded = self.decoder(x, memory, is_token=targets != 0, seeds=seeds)
        logits = self.logits(decoded)
        return (logits, [{"cross": decoded.weights}]) if return_attention else logits
