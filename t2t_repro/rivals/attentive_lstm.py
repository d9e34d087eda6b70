"""An LSTM that attends to the memory at each position. The query is the layer's output at the
position before.

A feed-forward network with one hidden layer compares queries with keys (Bahdanau et al. 2015,
section A.1.2). Query q and key k have the attention logit v . tanh(q W_q + k W_k), or with the
attention mechanism "tanh_product" the logit v . (tanh(q W_q) * tanh(k W_k)). The context a that
attention returns is part of the layer's input: [i, f, o, g] = x W + a W_a + y' W_r + b. The other
equations are those of `rivals.lstm`. So attention is inside the loop over positions.

Shapes: B batch, T length, S source length, I width of the input without context, D width of the
output, C number of cells, M width of the memory, Q queries, K hypotheses of a sentence, A width of
attention's hidden layer, which is D.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers.attention import save_cross_weights
from t2t_repro.layers.base import Caches, Layer, Tensor, float32, outer_shape
from t2t_repro.rivals.lstm import LSTM, State


class Memory(NamedTuple):
    """The encoder output, to which the decoder attends."""

    bias: Tensor
    """Mask [B, S] to add to attention logits: 0 for source tokens, masks.ILLEGAL for padding."""
    keys: Tensor
    """k W_k [B, S, A], or tanh(k W_k), float32."""
    values: Tensor
    """The vectors [B, S, M] that attention averages, in the dtype of the products."""


class AdditiveAttention(Layer):
    """Attention with a single head, whose hidden layer is as wide as the queries:
    hparams.hidden_size is D and A.
    """

    def __init__(self, hparams: Any, memory_width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        width, gain = hparams.hidden_size, hparams.initializer_gain
        self.is_product = hparams.attention_mechanism == "tanh_product"
        self.query_kernel = self.kernel("query_kernel", width, width, gain)
        self.key_kernel = self.kernel("key_kernel", memory_width, width, gain)
        # The distribution is that of a kernel [A, 1]. v stays in float32, because it is multiplied
        # by float32.
        limit = (6.0 * gain / (width + 1)) ** 0.5
        draw = keras.initializers.RandomUniform(-limit, limit)
        self.vector = self.add_weight((width,), draw, name="vector", dtype="float32")

    def memory(self, encoder_output: Tensor, bias: Tensor) -> Memory:
        """Returns the memory of the encoder output [B, S, M] and the mask [B, S]."""
        keys = float32(self.product(encoder_output, self.key_kernel))
        return Memory(
            bias,
            ops.tanh(keys) if self.is_product else keys,
            ops.cast(encoder_output, self.compute_dtype),
        )

    def call(self, queries: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Returns the contexts [B, Q, M] and the weights [B, Q, S] of queries [B, Q, D], float32."""  # noqa: E501
        bias, keys, values = memory  # a plain tuple in a model from a .keras file
        queries = float32(self.product(queries, self.query_kernel))
        if self.is_product:
            logits = ops.matmul(ops.tanh(queries) * float32(self.vector), ops.swapaxes(keys, 1, 2))
        else:
            hidden = ops.tanh(queries[:, :, None] + keys[:, None])
            logits = ops.matmul(hidden, float32(self.vector)[:, None])[..., 0]
        weights = ops.softmax(logits + bias[:, None])
        return float32(ops.matmul(ops.cast(weights, values.dtype), values)), weights


class AttentiveLSTM(LSTM):
    """An LSTM with attention. The arguments are those of `LSTM`, and `memory_width`, which is M."""

    def __init__(
        self, hparams: Any, width_in: int, memory_width: int, cells: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(hparams, width_in, cells, **kwargs)
        self.context_kernel = self.kernel(
            "context_kernel", memory_width, (self.cells,) * 4, hparams.initializer_gain
        )
        with keras.name_scope(self.name):
            self.attention = AdditiveAttention(
                hparams, memory_width, dtype=self.dtype_policy, name="attention"
            )

    def attend(
        self, x: Tensor, memory: Memory, caches: Caches | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the outputs [B, T, D] and contexts [B, T, M] for x [B, T, I], and saves the
        weights [B, 1, T, S].

        `caches` is None, or has the states for a step of decoding, in which T is K; see
        `LSTM.step`.
        """
        if caches:
            queries = ops.reshape(caches.old[0].output, (*outer_shape(x), self.width))
            contexts, weights = self.attention(queries, memory)
            save_cross_weights.add(weights[:, None])
            return self.step(self.with_context(self.sums(x), contexts), caches), contexts

        def step(previous: tuple[State, Tensor, Tensor], sums: Tensor) -> tuple[tuple, tuple]:
            contexts, weights = (
                result[:, 0] for result in self.attention(previous[0].output[:, None], memory)
            )
            results = (
                self.next_state(self.with_context(sums, contexts), previous[0]),
                contexts,
                weights,
            )
            return results, results

        batch = ops.shape(x)[0]
        zeros = (
            self.start(batch),
            ops.zeros((batch, memory.values.shape[-1])),
            ops.zeros_like(memory.bias),
        )
        _, (states, contexts, weights) = ops.scan(
            step, zeros, self.sums(ops.transpose(x, (1, 0, 2)))
        )
        outputs, contexts, weights = (
            ops.transpose(result, (1, 0, 2)) for result in (states.output, contexts, weights)
        )
        save_cross_weights.add(weights[:, None])
        return outputs, contexts

    def with_context(self, sums: Tensor, contexts: Tensor) -> Tensor:
        """Returns x W + b + a W_a, float32 [..., 4 C], for x W + b [..., 4 C] and the contexts
        [..., M].
        """
        return sums + float32(self.product(contexts, self.context_kernel))
