"""Deep-Att in the order of its publication's section 3 (Zhou et al. 2016): encoder, decoder, model.

The part f = x W + b of the sums in a layer's LSTM is also an input of the layer above. These
fast-forward connections make a path through all layers without recurrence and, unless
`sums_activation` is set, without nonlinear functions.

Omitted are the peephole connections of the LSTMs, which have 3 D weights in each layer. The half of
f that the layer above reads is here the part of the input and forget gates. Dropout is only on the
output of each layer.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, E width of
embeddings, D width of LSTMs, M width of the memory, V vocabulary. Ids are 0 for padding, 1 for the
end of a text.
"""

from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from t2t_repro.hparam import OPTIONAL_WIDTH, hparam
from t2t_repro.layers.base import Layer, Tensor, float32
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.rivals.attentive_lstm import Memory
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
class DeepAttHParams(RecurrentHParams):
    model: str = "deep_att"
    embedding_size: int = hparam(0, OPTIONAL_WIDTH)
    """E: width of the embeddings; 0 means hidden_size."""

    sums_activation: str = hparam("linear", ["linear", "tanh"], affects="outputs")
    """Function of the sums f that the layer above or the attention reads: "linear" for none, as in
    the publication, or "tanh", with which small models learn faster and at higher rates
    (docs/rivals.md).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shared_width("embedding_size")

    @property
    def embedding_width(self) -> int:
        """E: width of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def memory_width(self) -> int:
        """M = 5 D / 2: a quarter of the widths of h and f, D and 4 D, in both columns."""
        return 5 * self.hidden_size // 2


def fast_forward(sums: Tensor, outputs: Tensor) -> Tensor:
    """Returns the input [Half(f), h] [..., 3 D] of a layer, for the f [..., 4 D] and h [..., D] of
    the layer below.
    """
    return ops.concatenate([sums[..., : 2 * outputs.shape[-1]], outputs], axis=-1)


class DeepAttEncoder(Layer):
    """Two columns, whose outputs are joined at each position and projected to a quarter of their
    width.

    A column has LSTM layers of alternating directions; the lowest of the second one reads
    leftwards.
    """

    def __init__(self, hparams: DeepAttHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = hparams.layer_prepostprocess_dropout
        self.activation = keras.activations.get(hparams.sums_activation)
        upper_layers = hparams.encoder_layers - 1
        widths_in = [hparams.embedding_width, *(3 * hparams.hidden_size,) * upper_layers]
        lstm = make_lstm(hparams, self.dtype_policy)
        self.columns = []
        for column in range(2):
            with keras.name_scope(self.name), keras.name_scope(f"column_{column}"):
                layers = [lstm(width, name=f"layer_{i}") for i, width in enumerate(widths_in)]
            self.columns.append(layers)
        width = hparams.memory_width
        self.projection = self.kernel("projection", 4 * width, width, *initial(hparams))

    def call(self, x: Tensor, is_padding: Tensor, seeds: Seeds | None = None) -> Tensor:
        """Returns the encoder output W_p e [B, S, M] for embeddings x [B, S, E]."""
        embedded = x
        outputs = []
        all_sums = []
        for column, layers in enumerate(self.columns):
            x = embedded
            for i, layer in enumerate(layers):
                is_reversed = (column + i) % 2 == 1
                sums = layer.sums(x)
                y = layer.outputs(
                    ops.transpose(sums, (1, 0, 2)), is_padding if is_reversed else None
                )
                y = dropout(y, self.rate, seeds)
                sums = self.activation(sums)
                x = fast_forward(sums, y)
            outputs.append(y)
            all_sums.append(sums)
        return float32(self.product(ops.concatenate(outputs + all_sums, axis=-1), self.projection))


class DeepAttDecoder(Decoder):
    """LSTM layers that read from left to right. Only the bottom one reads the context."""

    def __init__(self, hparams: DeepAttHParams, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = hparams.layer_prepostprocess_dropout
        self.activation = keras.activations.get(hparams.sums_activation)
        lstm = make_lstm(hparams, self.dtype_policy)
        bottom = make_bottom(hparams, self.dtype_policy)
        with keras.name_scope(self.name):
            self.bottom = bottom(hparams.embedding_width, memory_width=hparams.memory_width)
            layers = range(1, hparams.decoder_layers)
            self.upper = [lstm(3 * hparams.hidden_size, name=f"layer_{i}") for i in layers]

    def call(
        self,
        x: Tensor,
        memory: Memory,
        states: tuple[State, ...] | None = None,
        seeds: Seeds | None = None,
    ) -> Decoded:
        """Returns the results for embeddings x [B, T, E]."""
        first, *others = states or (None,) * (1 + len(self.upper))
        y, contexts, weights, state = self.bottom.attend(x, memory, first)
        new_states = [state]
        sums = self.bottom.with_context(self.bottom.sums(x), contexts)
        y = dropout(y, self.rate, seeds)
        for layer, state in zip(self.upper, others, strict=True):
            sums = layer.sums(fast_forward(self.activation(sums), y))
            if state is None:
                y = layer.outputs(ops.transpose(sums, (1, 0, 2)))
            else:
                y, state = layer.step(sums, state)
            new_states.append(state)
            y = dropout(y, self.rate, seeds)
        return Decoded(y, weights, tuple(new_states))


class DeepAtt(RecurrentModel):
    """The model of figure 2: embeddings, encoder, attention, decoder and softmax."""

    hparams_class = DeepAttHParams
    encoder_class = DeepAttEncoder
    decoder_class = DeepAttDecoder
