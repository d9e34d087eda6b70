"""An LSTM that attends to the memory at each position. The query is the layer's output at the position before.

Attention is additive (Bahdanau et al. 2015, section A.1.2): a feed-forward network with one hidden layer compares
queries with keys. Query q and key k have the attention logit v . tanh(q W_q + k W_k). The context a that attention
returns is part of the layer's input: [i, f, o, g] = x W + a W_a + y' W_r + b. The other equations are those of
`rivals.lstm`. So attention is inside the loop over positions.

Shapes: B batch, T length, S source length, I width of the input without context, D width of the output, C number of
cells, M width of the memory, Q queries, K hypotheses of a sentence, A width of attention's hidden layer, which is D.
Functions with a loop over positions take and return tensors whose first dimension is T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import save_cross_weights
from t2t_repro.layers.base import Layer, Tensor, float32, outer_shape
from t2t_repro.rivals.lstm import (
    LSTM,
    Slopes,
    State,
    Step,
    before,
    first_step,
    lstm_step,
    outer_product,
    product,
    projected,
    projection_gradient,
)


class Memory(NamedTuple):
    """The encoder output, to which the decoder attends."""

    bias: Tensor
    """Mask [B, S] to add to attention logits: 0 for source tokens, masks.ILLEGAL for padding."""
    keys: Tensor
    """k W_k [B, S, A], float32."""
    values: Tensor
    """The vectors [B, S, M] that attention averages, in the dtype of the products."""


class AdditiveAttention(Layer):
    """Attention with a single head, whose hidden layer is as wide as the queries: `width` is D and A."""

    def __init__(self, width: int, memory_width: int, gain: float, precision: str) -> None:
        super().__init__(precision, name="attention")
        self.query_kernel = self.kernel("query_kernel", width, width, gain)
        self.key_kernel = self.kernel("key_kernel", memory_width, width, gain)
        draw = keras.initializers.VarianceScaling(gain, "fan_avg", "uniform")
        # v stays in float32 in every precision, because it is multiplied by float32.
        self.vector = self.add_weight(
            shape=(width,),
            initializer=lambda shape, dtype=None: ops.reshape(draw((*shape, 1), dtype), shape),
            name="vector",
            dtype="float32",
        )

    def memory(self, encoder_output: Tensor, bias: Tensor) -> Memory:
        """Returns the memory of the encoder output [B, S, M] and the mask [B, S]."""
        keys = float32(self.product(encoder_output, self.key_kernel))
        return Memory(bias, keys, ops.cast(encoder_output, self.compute_dtype))

    def call(self, queries: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Returns the contexts [B, Q, M] and the weights [B, Q, S] of queries [B, Q, D], float32."""
        return attend(float32(self.product(queries, self.query_kernel)), memory, float32(self.vector))


def attend(queries: Tensor, memory: Memory, vector: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the contexts [B, Q, M] and attention weights [B, Q, S] of projected queries q W_q [B, Q, A], float32."""
    hidden = ops.tanh(queries[:, :, None] + memory.keys[:, None])
    weights = ops.softmax(ops.matmul(hidden, vector[:, None])[..., 0] + memory.bias[:, None])
    return float32(ops.matmul(ops.cast(weights, memory.values.dtype), memory.values)), weights


class Kernels(NamedTuple):
    """The weights that the loop uses, as tensors in the dtype of the products, except for v."""

    query: Tensor
    """W_q [D, A]."""
    vector: Tensor
    """v [A], float32."""
    gates: Tensor
    """W_a above W_r, [M + D, 4 C]."""
    projection: Tensor | None = None
    """P [C, D]; None for a layer without a projection."""


class Backward:
    """The loop backward over the positions of an attentive LSTM.

    The loop forward has computed the results of the LSTM's steps [T, B, ...] and the attention weights [T, B, S].
    """

    def __init__(self, memory: Memory, kernels: Kernels, steps: Step, weights: Tensor) -> None:
        self.memory, self.kernels, self.weights = memory, kernels, weights
        self.outputs_before = before(steps.output)
        queries = product(ops.reshape(self.outputs_before, (-1, kernels.query.shape[0])), kernels.query)
        self.queries = ops.reshape(queries, (*ops.shape(steps.output)[:2], kernels.vector.shape[0]))
        self.slopes = Slopes.of(steps, before(steps.cell))

    def run(self, outputs: Tensor, contexts: Tensor) -> tuple[Tensor, ...]:
        """Returns the gradients at all positions, given those of the outputs [T, B, D] and contexts [T, B, M].

        They are the gradients of the output and the cell of the position before, the sums, the context, the projected
        query and the projected keys, [T, B, ...], and of v, [T, A].
        """
        positions, (batch, source) = ops.arange(ops.shape(outputs)[0]), ops.shape(self.memory.keys)[:2]
        width, memory_width, hidden_width = outputs.shape[-1], contexts.shape[-1], self.memory.keys.shape[-1]
        cells, kernels = self.slopes.cell.shape[-1], self.kernels
        query_kernel, gates = ops.transpose(kernels.query), ops.transpose(kernels.gates)
        projection = None if kernels.projection is None else ops.transpose(kernels.projection)

        def step_back(later: tuple[Tensor, ...], t: Tensor) -> tuple[Any, Any]:
            later_output, later_cell, *_ = later
            sums, cell = self.slopes.step_back(t, projected(outputs[t] + later_output, projection), later_cell)
            gate_inputs = product(sums, gates)
            context = contexts[t] + gate_inputs[:, :memory_width]
            query, keys, vector = self.attention(t, context)
            output = gate_inputs[:, memory_width:] + product(query, query_kernel)
            gradients = output, cell, sums, context, query, keys, vector
            return gradients, gradients

        widths = (width, cells, 4 * cells, memory_width, hidden_width)
        shapes = [*((batch, count) for count in widths), (batch, source, hidden_width), (hidden_width,)]
        return ops.scan(step_back, tuple(map(ops.zeros, shapes)), positions, reverse=True)[1]

    def attention(self, t: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the gradients of query, keys and v at position t, given the gradient of the context [B, M]."""
        values, weights = self.memory.values, self.weights[t]
        upstream = float32(ops.matmul(values, ops.cast(context, values.dtype)[..., None])[..., 0])
        logits = weights * (upstream - ops.sum(weights * upstream, axis=-1, keepdims=True))
        hidden = ops.tanh(self.queries[t][:, None] + self.memory.keys)
        vector = ops.matmul(ops.reshape(logits, (1, -1)), ops.reshape(hidden, (-1, hidden.shape[-1])))[0]
        keys = logits[..., None] * ((1.0 - hidden * hidden) * self.kernels.vector)
        return ops.sum(keys, axis=1), keys, vector


def attentive_lstm(inputs: Tensor, memory: Memory, kernels: Kernels) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the outputs y [T, B, D], contexts a [T, B, M] and attention weights [T, B, S], float32.

    `inputs` is x W + b, float32 [T, B, 4 C]. The gradient is written by hand, for the reason in `rivals.lstm.lstm`. The
    attention weights have a gradient only through the contexts.
    """

    @ops.custom_gradient
    def results(inputs: Tensor, keys: Tensor, values: Tensor, *tensors: Tensor) -> Any:
        # The arguments shadow the tensors outside, because only arguments receive gradients.
        attended, kernels = Memory(memory.bias, keys, values), Kernels(*tensors)
        dtype, batch = values.dtype, ops.shape(inputs)[1]

        def step(previous: tuple, sums: Tensor) -> tuple[tuple, tuple]:
            state = previous[0]
            query = product(state.output, kernels.query)[:, None]
            context, weights = (result[:, 0] for result in attend(query, attended, kernels.vector))
            gate_inputs = ops.concatenate([context, state.output], axis=-1)
            lstm_results = lstm_step(sums + product(gate_inputs, kernels.gates), state.cell, kernels.projection)
            return (lstm_results, context, weights), (lstm_results, context, weights)

        width, cells, memory_width = kernels.query.shape[0], inputs.shape[-1] // 4, values.shape[-1]
        zeros = first_step(batch, width, cells), ops.zeros((batch, memory_width)), ops.zeros_like(memory.bias)
        _, (steps, contexts, weights) = ops.scan(step, zeros, inputs)

        def gradient(*upstream: Any) -> tuple[Tensor, ...]:
            # TensorFlow passes an argument for each of the results, and JAX one tuple.
            output_gradients, context_gradients, _ = upstream[0] if len(upstream) == 1 else upstream
            backward = Backward(attended, kernels, steps, weights)
            later, _, sums, context, query, keys, vector = backward.run(output_gradients, context_gradients)
            gate_inputs = ops.concatenate([contexts, backward.outputs_before], axis=-1)
            projection = []
            if kernels.projection is not None:
                outputs = output_gradients + before(later, is_reversed=True)
                projection.append(projection_gradient(steps, outputs, dtype))
            by_source = ops.transpose(ops.cast(weights, dtype), (1, 2, 0))  # [B, S, T]
            return (
                sums,
                ops.sum(keys, axis=0),
                ops.matmul(by_source, ops.transpose(ops.cast(context, dtype), (1, 0, 2))),
                outer_product(backward.outputs_before, query, dtype),
                ops.sum(vector, axis=0),
                outer_product(gate_inputs, sums, dtype),
                *projection,
            )

        return (steps.output, contexts, weights), gradient

    return results(inputs, memory.keys, memory.values, *(tensor for tensor in kernels if tensor is not None))


class AttentiveLSTM(LSTM):
    """An LSTM with attention. The arguments are those of `LSTM`, and `memory_width`, which is M."""

    def __init__(
        self, hparams: HParams, width_in: int, memory_width: int, precision: str, name: str, cells: int = 0
    ) -> None:
        super().__init__(hparams, width_in, precision, name, cells)
        widths = (self.cells,) * 4
        self.context_kernel = self.kernel("context_kernel", memory_width, widths, hparams.initializer_gain)
        with keras.name_scope(name):
            self.attention = AdditiveAttention(self.width, memory_width, hparams.initializer_gain, precision)

    def attend(self, x: Tensor, memory: Memory, cache: list[State] | None = None) -> tuple[Tensor, Tensor]:
        """Returns the outputs [B, T, D] and contexts [B, T, M] for x [B, T, I], and saves the weights [B, 1, T, S].

        `cache` is None, or has the states for a step of decoding, in which T is K; see `LSTM.step`.
        """
        if cache is not None:
            queries = ops.reshape(cache[0].output, (*outer_shape(x), self.width))
            contexts, weights = self.attention(queries, memory)
            save_cross_weights.add(weights[:, None])
            return self.step(self.sums_with_context(x, contexts), cache), contexts
        inputs = self.sums(ops.transpose(x, (1, 0, 2)))
        gates = [ops.cast(kernel, self.compute_dtype) for kernel in (self.context_kernel, self.recurrent_kernel)]
        query = ops.cast(self.attention.query_kernel, self.compute_dtype)
        vector = float32(self.attention.vector)
        kernels = Kernels(query, vector, ops.concatenate(gates, axis=0), self.cast_projection())
        results = attentive_lstm(inputs, memory, kernels)
        outputs, contexts, weights = (ops.transpose(result, (1, 0, 2)) for result in results)
        save_cross_weights.add(weights[:, None])
        return outputs, contexts

    def sums_with_context(self, x: Tensor, contexts: Tensor) -> Tensor:
        """Returns x W + a W_a + b, float32 [..., 4 C], for x [..., I] and the contexts [..., M]."""
        return self.sums(x) + float32(self.product(contexts, self.context_kernel))
