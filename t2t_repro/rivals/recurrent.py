"""The base class of GNMT, Deep-Att and MoE: stacks of LSTMs, and attention in the bottom layer of
the decoder.

Shapes: B batch, S source length, T target length, K hypotheses of a sentence, D width of an LSTM, C
cells of an LSTM, V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from dataclasses import dataclass

from t2t_repro.hparam import POSITIVE, HParams, hparam, training_hparam, transformer_only
from t2t_repro.layers.base import Caches, Tensor
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.masks import padding_bias
from t2t_repro.models.encoder_decoder import EncoderDecoder
from t2t_repro.rivals.attentive_lstm import AttentiveLSTM, Memory
from t2t_repro.rivals.lstm import LSTM, State


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


class RecurrentModel(EncoderDecoder):
    """Base class of GNMT, Deep-Att and MoE. States, sums and attention weights are float32 in every
    precision.

    A subclass has `add_layers`, `encoder_output` and `decoder_output`.
    """

    bottom: AttentiveLSTM
    """The bottom layer of the decoder, which attends to the memory."""
    upper: list[LSTM]
    """The layers of the decoder above the bottom layer."""

    cells = 0
    """C if the LSTMs have projections, see `LSTM`; 0 if they have none."""

    def add_tables(self, width: int) -> None:
        """Makes the embeddings, which have this width, and the pre-softmax projection."""
        self.add_embeddings(
            width, None if self.hparams.multiply_embedding_mode == "sqrt_depth" else width**-0.5
        )
        self.add_softmax(self.hparams.hidden_size)

    def add_bottom(self, width_in: int, memory_width: int) -> None:
        """Makes the bottom layer of the decoder, for inputs of width `width_in`. `memory_width` is
        M.
        """
        options = {"dtype": self.dtype_policy, "name": "layer_0"}
        self.bottom = AttentiveLSTM(self.hparams, width_in, memory_width, self.cells, **options)

    def lstm(self, width_in: int, name: str) -> LSTM:
        return LSTM(self.hparams, width_in, self.cells, dtype=self.dtype_policy, name=name)

    def encoder_output(self, x: Tensor, is_padding: Tensor, seeds: Seeds | None) -> Tensor:
        """Returns the encoder output [B, S, M] for embeddings x [B, S, width] and is_padding, bool
        [B, S].
        """
        raise NotImplementedError

    def decoder_output(
        self, x: Tensor, memory: Memory, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        """Returns the outputs of the top layer [B, T, D] for embeddings x [B, T, width].

        `caches` is None, or has the layers' states for a step of decoding, in which T is K.
        """
        raise NotImplementedError

    def encode(self, inputs: Tensor, seeds: Seeds | None = None) -> Memory:
        """Returns the memory of source ids [B, S]."""
        x = self.encoder_output(self.embedding(inputs), inputs == 0, seeds)
        return self.bottom.attention.memory(x, padding_bias(inputs)[:, 0, 0])

    def start(self, hypotheses: Tensor) -> tuple[State, ...]:
        """Returns the cache before the first position: zeros [hypotheses, D] and [hypotheses, C]
        for each layer.
        """
        return tuple(layer.start(hypotheses) for layer in (self.bottom, *self.upper))

    def decoder_logits(
        self, x: Tensor, start: Tensor, memory: Memory, seeds: Seeds | None, caches: Caches | None
    ) -> Tensor:
        return self.softmax.logits(
            self.hparams.output_factor * self.decoder_output(x, memory, seeds, caches)
        )
