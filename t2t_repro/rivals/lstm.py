"""Long short-term memory (Hochreiter and Schmidhuber 1997): a recurrent layer with three gates.

At each position, with [i, f, o, g] = x W + y' W_r + b, the layer computes

    c = sigmoid(f) c' + sigmoid(i) tanh(g)          y = sigmoid(o) tanh(c)

x is the input, y the output and c the cell at the position; y' and c' are those of the position
before it. With a projection (Sak et al. 2014, without their peephole connections), y = (sigmoid(o)
tanh(c)) P, so that a layer can have many cells but narrow inputs and outputs.

Shapes: B batch, T length, I width of the input, D width of the output, C number of cells, which is
D in a layer without a projection.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_repro.layers.base import Layer, Tensor, float32, outer_shape

CLOSED = -1e9
"""Added to the sums of all gates, this makes the output and the cell 0, as they are before the
first position.
"""


class State(NamedTuple):
    """The state of an LSTM between two positions, float32."""

    output: Tensor
    """y [B, D]."""
    cell: Tensor
    """c [B, C]."""


class Init(NamedTuple):
    """The distribution of the initial kernels; see `Layer.kernel`."""

    gain: float = 1.0
    limit: float | None = None


GLOROT = Init()


class LSTM(Layer):
    """A layer of long short-term memory. Its state is float32 in every precision.

    Args:
        width_in: I.
        width: D.
        cells: C if the layer has a projection; 0 for D cells and no projection.
    """

    def __init__(
        self, width_in: int, width: int, cells: int = 0, init: Init = GLOROT, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.width = width
        self.cells = cells or width
        gates = (self.cells,) * 4
        self.input_kernel = self.kernel("input_kernel", width_in, gates, *init)
        self.recurrent_kernel = self.kernel("recurrent_kernel", width, gates, *init)
        self.projection = self.kernel("projection", cells, width, *init) if cells else None
        # With a forget bias of 1, gradients reach earlier positions from the first step on
        # (Jozefowicz et al. 2015).
        forget = keras.initializers.Constant(np.repeat([0.0, 1.0, 0.0, 0.0], self.cells))
        self.bias = self.add_weight((4 * self.cells,), forget, name="bias", dtype="float32")

    def call(
        self, x: Tensor, is_padding: Tensor = None, state: State | None = None
    ) -> tuple[Tensor, State | None]:
        """Returns the outputs, float32 [B, T, D], for the input x [B, T, I], and the new state.

        Args:
            is_padding: bool [B, T] in a layer that reads from right to left. Its state is 0 at
                padding, so it begins at each sentence's own end. None in a layer that reads from
                left to right, for which padding comes last.
            state: None, or in a step of decoding, in which T is K, the state; see `step`.
        """
        if state is not None:
            return self.step(self.sums(x), state)
        return self.outputs(self.sums(ops.transpose(x, (1, 0, 2))), is_padding), None

    def outputs(self, sums: Tensor, is_padding: Tensor = None) -> Tensor:
        """Returns the outputs [B, T, D] at all positions, given the sums x W + b [T, B, 4 C].

        `is_padding`, bool [B, T], is None in a layer that reads from left to right.
        """
        if is_padding is not None:
            sums = sums + CLOSED * float32(ops.transpose(is_padding))[..., None]

        def step(state: State, sums: Tensor) -> tuple[State, State]:
            state = self.next_state(sums, state)
            return state, state

        first = self.start(ops.shape(sums)[1])
        _, states = ops.scan(step, first, sums, reverse=is_padding is not None)
        return ops.transpose(states.output, (1, 0, 2))

    def step(self, sums: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns the output [B, K, D] at a new position of K hypotheses, and the new state.

        `sums` [B, K, 4 C] is x W + b. The state has B * K rows.
        """
        # In the loop of a search, the widths of the state are unknown.
        output = ops.reshape(state.output, (-1, self.width))
        cell = ops.reshape(state.cell, (-1, self.cells))
        state = self.next_state(ops.reshape(sums, (-1, 4 * self.cells)), State(output, cell))
        return ops.reshape(state.output, (*outer_shape(sums), self.width)), state

    def next_state(self, sums: Tensor, state: State) -> State:
        """Returns the state at a position, given x W + b [B, 4 C] and the state before it."""
        sums = sums + float32(self.product(state.output, self.recurrent_kernel))
        i, f, o = ops.split(ops.sigmoid(sums[:, : 3 * self.cells]), 3, axis=-1)
        cell = f * state.cell + i * ops.tanh(sums[:, 3 * self.cells :])
        output = o * ops.tanh(cell)
        if self.projection is not None:
            output = float32(self.product(output, self.projection))
        return State(output, cell)

    def sums(self, x: Tensor) -> Tensor:
        """Returns x W + b, float32 [..., 4 C], for x [..., I]."""
        return float32(self.product(x, self.input_kernel)) + self.bias

    def start(self, rows: Tensor) -> State:
        """Returns the state before the first position, zeros in `rows` rows."""
        return State(ops.zeros((rows, self.width)), ops.zeros((rows, self.cells)))
