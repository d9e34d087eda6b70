"""The frame of GNMT, Deep-Att and MoE: embeddings, an encoder, a decoder with attention, a softmax.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, D width of an LSTM, M
width of the memory, V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import keras

from t2t_repro.hparam import POSITIVE, HParams, hparam, training_hparam, transformer_only
from t2t_repro.layers.base import Layer, Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.models.transformer import Embedding, padding_bias, shift_right
from t2t_repro.rivals.attentive_lstm import AttentiveLSTM, Memory
from t2t_repro.rivals.embeddings import make_embeddings
from t2t_repro.rivals.lstm import LSTM, Init, State


@dataclass(frozen=True)
class RecurrentHParams(HParams):
    multiply_embedding_mode: str = "none"
    """Factor of the rows of the embedding matrix: "none" for 1, as in the publications, or
    "sqrt_depth" for the square root of their width, as in tensor2tensor, with which small models
    learn far faster (docs/rivals.md).
    """

    attention_mechanism: str = hparam("bahdanau", ["bahdanau", "tanh_product"], affects="outputs")
    """Logit of query q and key k: "bahdanau" for v . tanh(q W_q + k W_k) (Bahdanau et al. 2015),
    "tanh_product" for v . (tanh(q W_q) * tanh(k W_k)), a matrix product (Shazeer et al. 2017,
    appendix G).
    """

    output_factor: float = hparam(1.0, POSITIVE, affects="outputs")
    """Factor of the top layer's outputs before the softmax. Outputs of LSTMs are small at first, so
    that small models whose softmax has the matrix of the embeddings learn faster with a larger
    factor (docs/rivals.md).
    """

    initializer: str = training_hparam("uniform_unit_scaling", ["uniform_unit_scaling", "uniform"])
    """Distribution of initial weights. "uniform_unit_scaling": kernels are uniform, with a variance
    that depends on their sizes (Glorot and Bengio 2010). "uniform": kernels and embeddings are
    uniform up to 0.1 * initializer_gain.
    """

    unused = transformer_only("multiply_embedding_mode")

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.hidden_size


def initial(hparams: Any) -> Init:
    """Returns the distribution of initial kernels that the hparams name."""
    gain = hparams.initializer_gain
    return Init(gain, 0.1 * gain if hparams.initializer == "uniform" else None)


def make_lstm(hparams: Any, dtype: Any, cells: int = 0) -> Any:
    """Returns a function that makes an `LSTM`, given the width of its input and its name."""
    width = hparams.hidden_size
    return partial(LSTM, width=width, cells=cells, init=initial(hparams), dtype=dtype)


def make_bottom(hparams: Any, dtype: Any, cells: int = 0) -> Any:
    """Returns a function that makes the bottom layer of a decoder, given the widths I and M."""
    return partial(
        AttentiveLSTM,
        width=hparams.hidden_size,
        cells=cells,
        is_product=hparams.attention_mechanism == "tanh_product",
        init=initial(hparams),
        dtype=dtype,
        name="layer_0",
    )


class Decoded(NamedTuple):
    """The results of a decoder."""

    outputs: Tensor
    """Outputs of the top layer [B, T, D]."""
    weights: Tensor
    """Attention weights [B, 1, T, S]."""
    states: tuple[State | None, ...]
    """The new state of each layer in a step of decoding, else None."""


class Decoder(Layer):
    """A bottom layer that attends to the memory, and layers above it. Subclasses have `call`.

    `call(x, memory, states=None, seeds=None)` returns what this decoder makes of embeddings x
    [B, T, width]: `Decoded`. In a step of decoding, there are states of all layers, and T is K.
    """

    bottom: AttentiveLSTM
    upper: list[LSTM]

    def start(self, hypotheses: Tensor) -> tuple[State, ...]:
        """Returns the states of `hypotheses` (B * K) hypotheses before the first position."""
        return tuple(layer.start(hypotheses) for layer in (self.bottom, *self.upper))


class RecurrentModel(Layer):
    """A model with an encoder and a decoder, whose softmax may share the matrix of the embeddings.

    States, sums and attention weights are float32 in every precision.

    The encoder returns the encoder output [B, S, M] for embeddings [B, S, width] and is_padding,
    bool [B, S]. The decoder is a `Decoder`. Both are made from the hparams.
    """

    hparams_class: ClassVar[type[HParams]]
    encoder_class: ClassVar[Any]
    decoder_class: ClassVar[Any]
    has_attention = True
    is_normalized = False
    missing_methods: tuple[str, ...] = ()

    def __init__(
        self,
        hparams: Any,
        vocab_size: int,
        target_space_id: int = 0,
        dtype: Any = None,
        source_vocab_size: int = 0,
    ) -> None:
        super().__init__(dtype=dtype, name=hparams.model)
        self.hparams = hparams
        self.output_factor = hparams.output_factor
        limit = initial(hparams).limit
        draw = partial(keras.initializers.RandomUniform, -limit, limit) if limit else None
        factor = None if hparams.multiply_embedding_mode == "sqrt_depth" else 1.0
        table = partial(Embedding, make_initializer=draw, dtype=self.dtype_policy)
        embedding = partial(table, width=hparams.embedding_width, factor=factor)
        with keras.name_scope(self.name):
            tables = make_embeddings(hparams, embedding, vocab_size, source_vocab_size)
            self.embedding, self.target_embedding = tables
            self.softmax = self.embedding
            if not hparams.shared_embedding_and_softmax_weights:
                self.softmax = table(vocab_size, hparams.hidden_size, name="softmax")
            self.encoder = self.encoder_class(hparams, dtype=self.dtype_policy, name="encoder")
            self.decoder = self.decoder_class(hparams, dtype=self.dtype_policy, name="decoder")

    def call(self, inputs: Tensor, targets: Tensor, seed: Tensor = None) -> Tensor:
        """Returns the logits [B, T, V]; see `models.model.Model`."""
        seeds = None if seed is None else Seeds(seed)
        return self.decode(targets, self.encode(inputs, seeds), seeds)

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S]."""
        x = self.encoder(self.embedding(inputs), inputs == 0, seeds=seeds)
        return self.decoder.bottom.attention.memory(x, padding_bias(inputs)[:, 0, 0])

    def decode(
        self,
        targets: Tensor,
        memory: Memory,
        seeds: Seeds | None = None,
        return_attention: bool = False,
    ) -> Any:
        """Returns the logits [B, T, V] of target ids [B, T]; see `models.model.DecodingModel`."""
        x = self.target_embedding(shift_right(targets))
        decoded = self.decoder(x, memory, seeds=seeds)
        logits = self.logits(decoded)
        return (logits, [{"cross": decoded.weights}]) if return_attention else logits

    def start(self, hypotheses: Tensor) -> tuple[State, ...]:
        """Returns the cache before the first position: a state of each decoder layer."""
        return self.decoder.start(hypotheses)

    def decode_step(
        self,
        ids: Tensor,
        t: Tensor,
        cache: tuple[State, ...],
        memory: Memory,
        return_attention: bool = False,
    ) -> tuple:
        """Returns the logits [B, K, V] and the new cache; see `models.model.DecodingModel`."""
        decoded = self.decoder(self.target_embedding(ids), memory, states=cache)
        results = self.logits(decoded), decoded.states
        return (*results, [{"cross": decoded.weights}]) if return_attention else results

    def logits(self, decoded: Decoded) -> Tensor:
        """Returns the logits [B, T, V] of the outputs of the top layer."""
        return self.softmax.logits(self.output_factor * decoded.outputs)
