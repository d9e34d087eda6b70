"""Long short-term memory (Hochreiter and Schmidhuber 1997): a recurrent layer with three gates.

At each position, with [i, f, o, g] = x W + y' W_r + b, the layer computes

    c = sigmoid(f) c' + sigmoid(i) tanh(g)          y = sigmoid(o) tanh(c)

x is the input, y the output and c the cell at the position; y' and c' are those of the position before it. With a
projection (Sak et al. 2014, without their peephole connections), y = (sigmoid(o) tanh(c)) P, so that a layer can have
many cells but narrow inputs and outputs.

Shapes: B batch, T length, I width of the input, D width of the output, C number of cells, which is D in a layer without
a projection. Functions with a loop over positions take and return tensors whose first dimension is T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Layer, Tensor, float32, outer_shape

CLOSED = -1e9
"""Added to the sums of all gates, this makes the output and the cell 0, as they are before the first position."""


class State(NamedTuple):
    """The state of an LSTM between two positions, float32."""

    output: Tensor
    """y [B, D]."""
    cell: Tensor
    """c [B, C]."""


class Step(NamedTuple):
    """The results of an LSTM at one position, float32; the gradient needs all of them."""

    output: Tensor
    """y [B, D]."""
    cell: Tensor
    """c [B, C]."""
    gates: Tensor
    """sigmoid(i), sigmoid(f) and sigmoid(o), side by side: [B, 3 C]."""
    candidate: Tensor
    """tanh(g) [B, C]."""


def lstm_step(sums: Tensor, cell: Tensor, projection: Tensor | None = None) -> Step:
    """Returns a step for the sums [i, f, o, g] [B, 4 C], the cell of the position before [B, C] and P [C, D]."""
    cells = cell.shape[-1]
    gates, candidate = ops.sigmoid(sums[:, : 3 * cells]), ops.tanh(sums[:, 3 * cells :])
    i, f, o = ops.split(gates, 3, axis=-1)
    cell = f * cell + i * candidate
    return Step(projected(o * ops.tanh(cell), projection), cell, gates, candidate)


def projected(x: Tensor, projection: Tensor | None) -> Tensor:
    """Returns x P for x [N, C] and P [C, D], or x if P is None."""
    return x if projection is None else product(x, projection)


def first_step(batch: Tensor, width: int, cells: int) -> Step:
    """Returns the zeros that come before the first position, for `ops.scan`."""
    return Step(*(ops.zeros((batch, count)) for count in (width, cells, 3 * cells, cells)))


class Slopes(NamedTuple):
    """Derivatives of an LSTM's step at each position, which need no loop. The output is the one before a projection."""

    cell: Tensor
    """Derivative of the output with respect to the cell, [T, B, C]."""
    sums: Tensor
    """Derivatives [T, B, 4 C] of the cell with respect to i, f and g, and of the output with respect to o, in the order
    [i, f, o, g]."""
    forget: Tensor
    """Derivative of the cell with respect to the cell before it, [T, B, C]."""

    @classmethod
    def of(cls, steps: Step, cells_before: Tensor) -> Slopes:
        """Returns the slopes of the steps at all positions, whose cells before them are `cells_before` [T, B, C]."""
        (i, f, o), g, squashed = ops.split(steps.gates, 3, axis=-1), steps.candidate, ops.tanh(steps.cell)
        sums = [g * i * (1.0 - i), cells_before * f * (1.0 - f), squashed * o * (1.0 - o), i * (1.0 - g * g)]
        return cls(o * (1.0 - squashed * squashed), ops.concatenate(sums, axis=-1), f)

    def step_back(self, t: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradients of the sums at position t [B, 4 C], and of the cell before it [B, C].

        The arguments are the gradients of the output at position t before a projection [B, C], and of the cell at
        position t [B, C] without the part that comes from the output.
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
    """Returns x @ kernel, float32 [N, E], for x [N, D] and a kernel [D, E]; computed in the kernel's dtype."""
    return float32(ops.matmul(ops.cast(x, kernel.dtype), kernel))


def outer_product(x: Tensor, y: Tensor, dtype: str) -> Tensor:
    """Returns the sum over all positions of the outer products of x [T, B, M] and y [T, B, N]: `dtype` [M, N].

    This is the gradient of a kernel [M, N], for its inputs x and the gradients y of its outputs.
    """
    x, y = (ops.reshape(ops.cast(tensor, dtype), (-1, tensor.shape[-1])) for tensor in (x, y))
    return ops.matmul(ops.transpose(x), y)


def projection_gradient(steps: Step, outputs: Tensor, dtype: str) -> Tensor:
    """Returns the gradient of P, `dtype` [C, D], for the steps at all positions.

    `outputs` has the gradients of the outputs [T, B, D], with the part that comes from the next position.
    """
    return outer_product(ops.split(steps.gates, 3, axis=-1)[2] * ops.tanh(steps.cell), outputs, dtype)


def lstm(inputs: Tensor, kernel: Tensor, projection: Tensor | None = None, is_reversed: bool = False) -> Tensor:
    """Returns the outputs y of an LSTM at all positions, float32 [T, B, D], for the inputs x W + b [T, B, 4 C].

    The gradient is written by hand: the loop backward computes only what depends on the next position, and the kernels'
    gradients are products after the loop. Automatic differentiation would compute and add these gradients at each
    position, which takes 1.5 times as long (width 120, 16 positions, one thread of a CPU).

    `kernel` is W_r [D, 4 C], and `projection` P [C, D], in the dtype of the products. None is for no projection.
    """

    @ops.custom_gradient
    def outputs(inputs: Tensor, *kernels: Tensor) -> Any:
        kernel, projection = kernels if len(kernels) == 2 else (*kernels, None)
        width, cells, batch = kernel.shape[0], kernel.shape[1] // 4, ops.shape(inputs)[1]

        def step(previous: Step, sums: Tensor) -> tuple[Step, Step]:
            current = lstm_step(sums + product(previous.output, kernel), previous.cell, projection)
            return current, current

        _, steps = ops.scan(step, first_step(batch, width, cells), inputs, reverse=is_reversed)

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            slopes = Slopes.of(steps, before(steps.cell, is_reversed))
            transposed_kernel = ops.transpose(kernel)
            transposed_projection = None if projection is None else ops.transpose(projection)

            def step_back(later: tuple[Tensor, ...], t: Tensor) -> tuple[Any, Any]:
                sums, cell, _ = later
                output = upstream[t] + product(sums, transposed_kernel)
                gradients = *slopes.step_back(t, projected(output, transposed_projection), cell), output
                return gradients, gradients

            zeros = tuple(ops.zeros((batch, count)) for count in (4 * cells, cells, width))
            positions = ops.arange(ops.shape(inputs)[0])
            _, (sums, _, output_gradients) = ops.scan(step_back, zeros, positions, reverse=not is_reversed)
            kernel_gradient = outer_product(before(steps.output, is_reversed), sums, kernel.dtype)
            if projection is None:
                return sums, kernel_gradient
            return sums, kernel_gradient, projection_gradient(steps, output_gradients, kernel.dtype)

        return steps.output, gradient

    return outputs(inputs, kernel) if projection is None else outputs(inputs, kernel, projection)


class LSTM(Layer):
    """A layer of long short-term memory. Its state is float32 in every precision.

    hparams.hidden_size is D, and `width_in` is I. `cells` is C if the layer has a projection; 0 for D cells and none.
    """

    def __init__(self, hparams: HParams, width_in: int, precision: str, name: str, cells: int = 0) -> None:
        super().__init__(precision, name)
        self.width, gain = hparams.hidden_size, hparams.initializer_gain
        self.cells = cells or self.width
        self.input_kernel = self.kernel("input_kernel", width_in, (self.cells,) * 4, gain)
        self.recurrent_kernel = self.kernel("recurrent_kernel", self.width, (self.cells,) * 4, gain)
        self.projection = self.kernel("projection", self.cells, self.width, gain) if cells else None
        # With a forget bias of 1, gradients reach earlier positions from the first step on (Jozefowicz et al. 2015).
        forget = keras.initializers.Constant(np.repeat([0.0, 1.0, 0.0, 0.0], self.cells))
        self.bias = self.add_weight(shape=(4 * self.cells,), initializer=forget, name="bias", dtype="float32")

    def call(
        self, x: Tensor, is_padding: Tensor | None = None, is_reversed: bool = False, cache: list[State] | None = None
    ) -> Tensor:
        """Returns the outputs at all positions, float32 [B, T, D], for the input x [B, T, I].

        Args:
            is_padding: bool [B, T]. The state is 0 at padding, so a reversed layer begins at each sentence's end. None
                if the layer is not reversed: padding comes last, so it does not affect the tokens before it.
            is_reversed: true to begin at the last position.
            cache: None, or the states for a step of decoding, in which T is K; see `step`.
        """
        if cache is not None:
            return self.step(self.sums(x), cache)
        return self.outputs(self.sums(ops.transpose(x, (1, 0, 2))), is_padding, is_reversed)

    def outputs(self, sums: Tensor, is_padding: Tensor | None = None, is_reversed: bool = False) -> Tensor:
        """Returns what `call` returns, given the result x W + b [T, B, 4 C] of `sums` instead of x."""
        if is_padding is not None:
            sums = sums + CLOSED * float32(ops.transpose(is_padding))[..., None]
        y = lstm(sums, ops.cast(self.recurrent_kernel, self.compute_dtype), self.cast_projection(), is_reversed)
        return ops.transpose(y, (1, 0, 2))

    def step(self, sums: Tensor, cache: list[State]) -> Tensor:
        """Returns the output [B, K, D] at a new position of K hypotheses, given the result [B, K, 4 C] of `sums`.

        The layer removes the first state of `cache`, which has B * K rows, and appends the state after the position.
        """
        state = cache.pop(0)
        # In the loop of a search, the widths of the state are unknown.
        y, cell = ops.reshape(state.output, (-1, self.width)), ops.reshape(state.cell, (-1, self.cells))
        rows = ops.reshape(sums, (-1, 4 * self.cells)) + float32(self.product(y, self.recurrent_kernel))
        y, cell, *_ = lstm_step(rows, cell, self.cast_projection())
        cache.append(State(y, cell))
        return ops.reshape(y, (*outer_shape(sums), self.width))

    def cast_projection(self) -> Tensor | None:
        """Returns P [C, D] in the dtype of the products, or None if the layer has no projection."""
        return None if self.projection is None else ops.cast(self.projection, self.compute_dtype)

    def sums(self, x: Tensor) -> Tensor:
        """Returns x W + b, float32 [..., 4 C], for x [..., I]."""
        return float32(self.product(x, self.input_kernel)) + self.bias

    def start(self, rows: Tensor) -> State:
        """Returns the state before the first position, zeros in `rows` rows."""
        return State(ops.zeros((rows, self.width)), ops.zeros((rows, self.cells)))
