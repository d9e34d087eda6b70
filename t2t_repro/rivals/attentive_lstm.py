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

from t2t_repro.layers.base import Layer, Tensor, float32, outer_shape
from t2t_repro.rivals.lstm import GLOROT, LSTM, Init, State


class Memory(NamedTuple):
    """The encoder output, to which the decoder attends."""

    bias: Tensor
    """Mask [B, S] to add to attention logits: 0 for source tokens, `MASKED` for padding."""
    keys: Tensor
    """k W_k [B, S, A], or tanh(k W_k), float32."""
    values: Tensor
    """The vectors [B, S, M] that attention averages, in the dtype of the products."""


class AdditiveAttention(Layer):
    """Attention with a single head and a hidden layer of the queries' `width`, which is D and A.

    If `is_product`, the attention mechanism is "tanh_product".
    """

    def __init__(
        self,
        width: int,
        memory_width: int,
        is_product: bool = False,
        init: Init = GLOROT,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.is_product = is_product
        self.query_kernel = self.kernel("query_kernel", width, width, *init)
        self.key_kernel = self.kernel("key_kernel", memory_width, width, *init)
        # The distribution is that of a kernel [A, 1]. v stays in float32, because it is multiplied
        # by float32.
        limit = (6.0 * init.gain / (width + 1)) ** 0.5 if init.limit is None else init.limit
        draw = keras.initializers.RandomUniform(-limit, limit)
        self.vector = self.add_weight((width,), draw, name="vector", dtype="float32")

    def memory(self, encoder_output: Tensor, bias: Tensor) -> Memory:
        """Returns the memory of the encoder output [B, S, M] and the mask [B, S]."""
        keys = float32(self.product(encoder_output, self.key_kernel))
        values = ops.cast(encoder_output, self.compute_dtype)
        return Memory(bias, ops.tanh(keys) if self.is_product else keys, values)

    def call(self, queries: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Returns the contexts [B, Q, M] and weights [B, Q, S], float32, of queries [B, Q, D]."""
        queries = float32(self.product(queries, self.query_kernel))
        if self.is_product:
            queries = ops.tanh(queries) * float32(self.vector)
            logits = ops.matmul(queries, ops.swapaxes(memory.keys, 1, 2))
        else:
            hidden = ops.tanh(queries[:, :, None] + memory.keys[:, None])
            logits = ops.matmul(hidden, float32(self.vector)[:, None])[..., 0]
        weights = ops.softmax(logits + memory.bias[:, None])
        contexts = ops.matmul(ops.cast(weights, memory.values.dtype), memory.values)
        return float32(contexts), weights


class Attended(NamedTuple):
    """The results of an `AttentiveLSTM` at T positions."""

    outputs: Tensor
    """[B, T, D]."""
    contexts: Tensor
    """[B, T, M]."""
    weights: Tensor
    """Attention weights [B, 1, T, S]."""
    state: State | None
    """The new state in a step of decoding, else None."""


class AttentiveLSTM(LSTM):
    """An LSTM with attention to a memory of width `memory_width`, which is M.

    The other arguments are those of `LSTM` and, for its attention, of `AdditiveAttention`.
    """

    def __init__(
        self,
        width_in: int,
        width: int,
        memory_width: int,
        cells: int = 0,
        is_product: bool = False,
        init: Init = GLOROT,
        **kwargs: Any,
    ) -> None:
        super().__init__(width_in, width, cells, init, **kwargs)
        gates = (self.cells,) * 4
        self.context_kernel = self.kernel("context_kernel", memory_width, gates, *init)
        sizes = (width, memory_width, is_product, init)
        with keras.name_scope(self.name):
            self.attention = AdditiveAttention(*sizes, dtype=self.dtype_policy, name="attention")

    def attend(self, x: Tensor, memory: Memory, state: State | None = None) -> Attended:
        """Returns the results at all positions of x [B, T, I], or at one if there is a state.

        In such a step of decoding, T is K; see `LSTM.step`.
        """
        if state is not None:
            return self.attend_once(x, memory, state)

        def step(previous: tuple[State, Tensor, Tensor], sums: Tensor) -> tuple[tuple, tuple]:
            state, _, _ = previous
            contexts, weights = self.attention(state.output[:, None], memory)
            sums = self.with_context(sums, contexts[:, 0])
            results = self.next_state(sums, state), contexts[:, 0], weights[:, 0]
            return results, results

        batch = ops.shape(x)[0]
        no_context = ops.zeros((batch, memory.values.shape[-1]))
        first = self.start(batch), no_context, ops.zeros_like(memory.bias)
        _, results = ops.scan(step, first, self.sums(ops.transpose(x, (1, 0, 2))))
        states, contexts, weights = results
        return Attended(
            ops.transpose(states.output, (1, 0, 2)),
            ops.transpose(contexts, (1, 0, 2)),
            ops.transpose(weights, (1, 0, 2))[:, None],
            None,
        )

    def attend_once(self, x: Tensor, memory: Memory, state: State) -> Attended:
        """Returns the results at a new position x [B, K, I] of K hypotheses."""
        queries = ops.reshape(state.output, (*outer_shape(x), self.width))
        contexts, weights = self.attention(queries, memory)
        outputs, state = self.step(self.with_context(self.sums(x), contexts), state)
        return Attended(outputs, contexts, weights[:, None], state)

    def with_context(self, sums: Tensor, contexts: Tensor) -> Tensor:
        """Returns x W + b + a W_a [..., 4 C], for x W + b [..., 4 C] and the contexts [..., M]."""
        return sums + float32(self.product(contexts, self.context_kernel))
