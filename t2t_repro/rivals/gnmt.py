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
from typing import Any

import keras
from keras import ops

from t2t_repro.layers.base import Layer, Tensor
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.rivals.attentive_lstm import Memory
from t2t_repro.rivals.lstm import State
from t2t_repro.rivals.recurrent import (
    Decoded,
    Decoder,
    RecurrentHParams,
    RecurrentModel,
    make_bottom,
    make_lstm,
)

FIRST_RESIDUAL = 2
"""Index of the first layer of a stack with a residual connection: the third from the bottom
(section 3.1).
"""


@dataclass(frozen=True)
class GNMTHParams(RecurrentHParams):
    model: str = "gnmt"


class GNMTEncoder(Layer):
    """A bidirectional layer, then layers that read the source from left to right (section 3.2)."""

    def __init__(self, hparams: GNMTHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = hparams.layer_prepostprocess_dropout
        width = hparams.hidden_size
        lstm = make_lstm(hparams, self.dtype_policy)
        widths_in = [2 * width, *(width,) * hparams.encoder_layers]
        with keras.name_scope(self.name):
            self.forward = lstm(width, name="layer_0_forward")
            self.backward = lstm(width, name="layer_0_backward")
            self.readers = [
                lstm(widths_in[i - 1], name=f"layer_{i}") for i in range(1, hparams.encoder_layers)
            ]

    def call(self, x: Tensor, is_padding: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the vectors x_1, ..., x_M (equation 1) [B, S, D] of embeddings x [B, S, D].

        If the encoder has only the bidirectional layer, the vectors have width 2 D.
        """
        x = dropout(x, self.rate, seeds)
        # The backward layer reads each sentence from its own end, so padding changes nothing.
        forward, _ = self.forward(x)
        backward, _ = self.backward(x, is_padding)
        x = ops.concatenate([forward, backward], axis=-1)
        for i, layer in enumerate(self.readers, start=1):
            y, _ = layer(dropout(x, self.rate, seeds))
            x = y + x if i >= FIRST_RESIDUAL else y  # equation 6
        return x


class GNMTDecoder(Decoder):
    """Each layer reads the layer below and the context of attention.

    The query of attention is the output of the bottom layer at the position before (equation 4). So
    attention must be computed position by position, but only with the bottom layer, and the other
    layers can run in parallel with it.
    """

    def __init__(self, hparams: GNMTHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = hparams.layer_prepostprocess_dropout
        width = hparams.hidden_size
        memory_width = width if hparams.encoder_layers > 1 else 2 * width
        lstm = make_lstm(hparams, self.dtype_policy)
        bottom = make_bottom(hparams, self.dtype_policy)
        with keras.name_scope(self.name):
            self.bottom = bottom(width, memory_width=memory_width)
            layers = range(1, hparams.decoder_layers)
            self.upper = [lstm(width + memory_width, name=f"layer_{i}") for i in layers]

    def call(
        self,
        x: Tensor,
        memory: Memory,
        states: tuple[State, ...] | None = None,
        seeds: Seeds | None = None,
    ) -> Decoded:
        """Returns the results for embeddings x [B, T, D]."""
        first, *others = states or (None,) * (1 + len(self.upper))
        x, contexts, weights, state = self.bottom.attend(
            dropout(x, self.rate, seeds), memory, first
        )
        new_states = [state]
        for i, (layer, state) in enumerate(zip(self.upper, others, strict=True), start=1):
            below = ops.concatenate([dropout(x, self.rate, seeds), contexts], axis=-1)
            y, state = layer(below, state=state)
            new_states.append(state)
            x = y + x if i >= FIRST_RESIDUAL else y
        return Decoded(dropout(x, self.rate, seeds), weights, tuple(new_states))


class GNMT(RecurrentModel):
    """The model of figure 1: embeddings, encoder, attention, decoder and softmax."""

    hparams_class = GNMTHParams
    encoder_class = GNMTEncoder
    decoder_class = GNMTDecoder
