"""Long short-term memory (Hochreiter and Schmidhuber 1997): a recurrent layer with three gates.

At each position, with [i, f, o, g] = x W + y' W_r + b, the layer computes

    c = sigmoid(f) c' + sigmoid(i) tanh(g)          y = sigmoid(o) tanh(c)

x is the input, y the output and c the cell at the position; y' and c' are those of the position before it.

Shapes: B batch, T length, I width of the input, D width of the output. Functions with a loop over positions take and
return tensors whose first dimension is T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor, float32

CLOSED = -1e9
"""Added to the sums of all gates, this makes the output and the cell 0, as they are before the first position."""


class State(NamedTuple):
    """The state of an LSTM between two positions, float32."""

    output: Tensor
    """y [B, D]."""
    cell: Tensor
    """c [B, D]."""


class Step(NamedTuple):
    """The results of an LSTM at one position, float32; the gradient needs all of them."""

    output: Tensor
    """y [B, D]."""
    cell: Tensor
    """c [B, D]."""
    gates: Tensor
    """sigmoid(i), sigmoid(f) and sigmoid(o), side by side: [B, 3 D]."""
    candidate: Tensor
    """tanh(g) [B, D]."""


def lstm_step(sums: Tensor, cell: Tensor) -> Step:
    """Returns a step for the sums [i, f, o, g] [B, 4 D] and the cell of the position before [B, D]."""
    width = cell.shape[-1]
    gates, candidate = ops.sigmoid(sums[:, : 3 * width]), ops.tanh(sums[:, 3 * width :])
    i, f, o = ops.split(gates, 3, axis=-1)
    cell = f * cell + i * candidate
    return Step(o * ops.tanh(cell), cell, gates, candidate)


def first_step(batch: Tensor, width: int) -> Step:
    """Returns the zeros that come before the first position, for `ops.scan`."""
    return Step(*(ops.zeros((batch, count * width)) for count in (1, 1, 3, 1)))


class Slopes(NamedTuple):
    """Derivatives of an LSTM's step at each position, which need no loop."""

    cell: Tensor
    """Derivative of the output with respect to the cell, [T, B, D]."""
    sums: Tensor
    """Derivatives [T, B, 4 D] of the cell with respect to i, f and g, and of the output with respect to o, in the order
    [i, f, o, g]."""
    forget: Tensor
    """Derivative of the cell with respect to the cell before it, [T, B, D]."""

    @classmethod
    def of(cls, steps: Step, cells_before: Tensor) -> Slopes:
        """Returns the slopes of the steps at all positions, with tensors [T, B, ...] in `steps`.

        Args:
            cells_before: [T, B, D], the cell of the position before each position.
        """
        (i, f, o), g, squashed = ops.split(steps.gates, 3, axis=-1), steps.candidate, ops.tanh(steps.cell)
        sums = [g * i * (1.0 - i), cells_before * f * (1.0 - f), squashed * o * (1.0 - o), i * (1.0 - g * g)]
        return cls(o * (1.0 - squashed * squashed), ops.concatenate(sums, axis=-1), f)

    def step_back(self, t: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradients of the sums at position t [B, 4 D], and of the cell before it [B, D].

        Args:
            output: gradient of the output at position t, [B, D].
            cell: gradient of the cell at position t [B, D], without the part that comes from the output.
        """
        cell = output * self.cell[t] + cell
        return ops.concatenate([cell, cell, output, cell], axis=-1) * self.sums[t], cell * self.forget[t]


def before(x: Tensor, is_reversed: bool = False) -> Tensor:
    """Returns x [T, B, ...] shifted by a position, so that each position has the value of the one before it, or zeros.

    If `is_reversed`, positions are counted from the end.
    """
    shift = (0, 1) if is_reversed else (1, 0)
    x = x[1:] if is_reversed else x[:-1]
    return ops.pad(x, (shift, *[(0, 0)] * (len(x.shape) - 1)))


def product(x: Tensor, kernel: Tensor) -> Tensor:
    """Returns x @ kernel, float32 [N, E], for x [N, D] and a kernel [D, E]; computed in the kernel's number type."""
    return float32(ops.matmul(ops.cast(x, kernel.dtype), kernel))


def outer_product(x: Tensor, y: Tensor, dtype: str) -> Tensor:
    """Returns the sum over all positions of the outer products of x [T, B, M] and y [T, B, N]: [M, N] of type `dtype`.

    This is the gradient of a kernel [M, N], for its inputs x and the gradients y of its outputs.
    """
    x, y = (ops.reshape(ops.cast(tensor, dtype), (-1, tensor.shape[-1])) for tensor in (x, y))
    return ops.matmul(ops.transpose(x), y)


def lstm(inputs: Tensor, kernel: Tensor, is_reversed: bool = False) -> Tensor:
    """Returns the outputs y of an LSTM at all positions, float32 [T, B, D].

    The gradient is written by hand: the loop backward computes only what depends on the next position, and the kernel's
    gradient is one product after the loop. Automatic differentiation would compute and add this gradient at each
    position, which takes 1.5 times as long (width 120, 16 positions, one thread of a CPU).

    Args:
        inputs: x W + b, float32 [T, B, 4 D].
        kernel: W_r [D, 4 D], in the number type of the products.
        is_reversed: true to begin at the last position.
    """

    @ops.custom_gradient
    def outputs(inputs: Tensor, kernel: Tensor) -> Any:
        width, batch = kernel.shape[0], ops.shape(inputs)[1]

        def step(last: Step, sums: Tensor) -> tuple[Step, Step]:
            new = lstm_step(sums + product(last.output, kernel), last.cell)
            return new, new

        _, steps = ops.scan(step, first_step(batch, width), inputs, reverse=is_reversed)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            slopes = Slopes.of(steps, before(steps.cell, is_reversed))
            transposed = ops.transpose(kernel)

            def step_back(carry: tuple[Tensor, Tensor], t: Tensor) -> tuple[Any, Any]:
                sums, cell = carry
                carry = slopes.step_back(t, upstream[t] + product(sums, transposed), cell)
                return carry, carry

            nothing = ops.zeros((batch, 4 * width)), ops.zeros((batch, width))
            positions = ops.arange(ops.shape(inputs)[0])
            _, (sums, _) = ops.scan(step_back, nothing, positions, reverse=not is_reversed)
            return sums, outer_product(before(steps.output, is_reversed), sums, kernel.dtype)

        return steps.output, gradient

    return outputs(inputs, kernel)


class LSTM(Layer):
    """A layer of long short-term memory. Its state is float32 in every precision.

    Args:
        hparams: `hidden_size` is D.
        width_in: I, width of the input.
        precision: number type of weights and products, see `Layer`.
        name: name of the layer.
    """

    def __init__(self, hparams: HParams, width_in: int, precision: str, name: str) -> None:
        super().__init__(precision, name)
        self.width, widths = hparams.hidden_size, (hparams.hidden_size,) * 4
        self.input_kernel = self.kernel("input_kernel", width_in, widths, hparams.initializer_gain)
        self.recurrent_kernel = self.kernel("recurrent_kernel", self.width, widths, hparams.initializer_gain)
        # With a forget bias of 1, gradients reach earlier positions from the first step on (Jozefowicz et al. 2015).
        forget = keras.initializers.Constant(np.repeat([0.0, 1.0, 0.0, 0.0], self.width))
        self.bias = self.add_weight(shape=(4 * self.width,), initializer=forget, name="bias", dtype="float32")

    def call(self, x: Tensor, is_padding: Tensor | None = None, is_reversed: bool = False) -> Tensor:
        """Returns the outputs at all positions, float32 [B, T, D], for the input x [B, T, I].

        Args:
            is_padding: bool [B, T]. The state is 0 at padding, so a reversed layer begins at each sentence's end. None
                if the layer is not reversed: padding comes last, so it changes nothing before it.
            is_reversed: true to begin at the last position.
        """
        return self.outputs(self.sums(ops.transpose(x, (1, 0, 2))), is_padding, is_reversed)

    def outputs(self, inputs: Tensor, is_padding: Tensor | None = None, is_reversed: bool = False) -> Tensor:
        """Returns what `call` returns, given the result x W + b [T, B, 4 D] of `sums` instead of x."""
        if is_padding is not None:
            inputs = inputs + CLOSED * float32(ops.transpose(is_padding))[..., None]
        y = lstm(inputs, ops.cast(self.recurrent_kernel, self.compute_dtype), is_reversed)
        return ops.transpose(y, (1, 0, 2))

    def step(self, x: Tensor, state: State) -> State:
        """Returns the state [N, D] after a position with input x [N, I], given the state before it."""
        return self.next_state(self.sums(x), state)

    def next_state(self, inputs: Tensor, state: State) -> State:
        """Returns what `step` returns, given the result x W + b [N, 4 D] of `sums` instead of x."""
        state = self.with_width(state)
        sums = inputs + float32(self.product(state.output, self.recurrent_kernel))
        return State(*lstm_step(sums, state.cell)[:2])

    def with_width(self, state: State) -> State:
        """Returns the state [N, D] with a known D, which tensors in the loop of a search do not have."""
        return State(*(ops.reshape(tensor, (-1, self.width)) for tensor in state))

    def sums(self, x: Tensor) -> Tensor:
        """Returns x W + b, float32 [..., 4 D], for x [..., I]."""
        sums = float32(self.product(ops.reshape(x, (-1, x.shape[-1])), self.input_kernel)) + self.bias
        return ops.reshape(sums, (*ops.shape(x)[:-1], 4 * self.width))

    def start(self, rows: Tensor) -> State:
        """Returns the state before the first position, zeros [rows, D]."""
        return State(*(ops.zeros((rows, self.width)) for _ in range(2)))
