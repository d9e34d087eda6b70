"""Measures the paper's Table 1: time and memory of one layer of each kind, for sequences of growing
length.

    python benchmarks/table1.py [--lengths=256,512,1024,2048,4096,8192,16384] [--width=64]
    [--output=table1.png]

A pass is the forward and backward computation of a layer for one sequence, as a TensorFlow graph on
one thread. The backward computation gives the gradients of the input and of all weights. Time is
the median of nine passes. The script measures every layer and length once before it measures any of
them again. Memory is the peak growth of resident memory during a pass in a new process; the script
reads it from /proc, so it needs Linux. The exponents of the length n are fitted by least squares on
logarithms, using only the longer half of the lengths.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import matplotlib
import numpy as np
import tensorflow as tf
from absl import app, flags

from t2t_repro.layers.base import Layer
from t2t_repro.models.transformer import SelfAttention, Sizes
from t2t_repro.models.variants import RestrictedSelfAttention

matplotlib.use("Agg")
from matplotlib import pyplot

LENGTHS = flags.DEFINE_list(
    "lengths", "256,512,1024,2048,4096,8192,16384", "sequence lengths, from small to large"
)
WIDTH = flags.DEFINE_integer("width", 64, "width d of the layers")
OUTPUT = flags.DEFINE_string("output", "table1.png", "path of the picture")

flags.register_validator(
    "lengths",
    lambda lengths: all(length.isdecimal() for length in lengths),
    message="give whole numbers with commas between them",
)

NEIGHBORHOOD = 64
KERNEL = 3
PASSES = 9
TABLE_1 = {
    "self-attention": "n² · d",
    "recurrent (LSTM)": "n · d²",
    f"convolutional, k = {KERNEL}": "k · n · d²",
    f"self-attention, restricted, r = {NEIGHBORHOOD}": "r · n · d",
}
"""For each kind of layer: its number of operations in the paper's Table 1, for length n and width
d.
"""
Pass = Callable[[tf.Tensor], Any]


class Lstm(Layer):
    """An LSTM that runs as one TensorFlow kernel.

    Keras's LSTM is not used, because it is a loop in the graph, and the loop takes more time than
    the matrix products.
    """

    def __init__(self, width: int) -> None:
        super().__init__(name="lstm")
        self.gates = self.kernel("gates", 2 * width, 4 * width)
        self.bias = self.add_weight(shape=(4 * width,), initializer="zeros", name="bias")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the LSTM's outputs [1, n, width] for the input sequence x [1, n, width]."""
        start = tf.zeros_like(x[:, 0])
        unused = tf.zeros_like(x[0, 0])
        # BlockLSTMV2's gradient is wrong: TensorFlow 2.21 computes it in the order of gates that
        # BlockLSTM has.
        outputs = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.shape(x, tf.int64)[1],
            x=tf.transpose(x, [1, 0, 2]),
            cs_prev=start,
            h_prev=start,
            w=self.gates.value,
            b=self.bias.value,
            wci=unused,
            wcf=unused,
            wco=unused,
            cell_clip=0.0,
        )
        return tf.transpose(outputs.h, [1, 0, 2])


def passes(width: int) -> list[Pass]:
    """Returns one function per kind of layer; each runs a forward and backward pass over a sequence
    [1, n, width].
    """
    # With one head, a pass computes only one n x n softmax.
    sizes = Sizes(width, heads=1, key_width=width, value_width=width)
    full = SelfAttention(sizes)
    restricted = RestrictedSelfAttention(sizes, neighborhood=NEIGHBORHOOD)
    convolution = keras.layers.Conv1D(width, KERNEL, padding="same")
    convolution.build((1, None, width))

    def forward_and_backward(layer: Any) -> Pass:
        @tf.function(input_signature=[tf.TensorSpec([1, None, width])], autograph=False)
        def run(x: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.nest.flatten(layer(x))[0]  # without attention weights
                loss = tf.reduce_sum(y**2)
            return tape.gradient(loss, [x, *(weight.value for weight in layer.trainable_variables)])

        return run

    return [
        forward_and_backward(full),
        forward_and_backward(Lstm(width)),
        forward_and_backward(convolution),
        forward_and_backward(restricted),
    ]


def sequence(length: int, width: int) -> tf.Tensor:
    """Returns an input sequence of random numbers, [1, length, width]."""
    return tf.random.stateless_normal([1, length, width], [1, length])


def use_one_thread() -> None:
    """Limits TensorFlow to one thread. Call this function before TensorFlow computes anything."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def seconds(run: Pass, x: tf.Tensor) -> float:
    """Returns the seconds that one pass over `x` takes."""
    began = time.perf_counter()
    run(x)[0].numpy()
    return time.perf_counter() - began


def peak_memory(kind: int, length: int, width: int) -> float:
    """Returns the peak growth of memory, in MiB, during one pass of the layer
    `passes(width)[kind]`.

    Call this function in a new process, because TensorFlow keeps the memory of earlier passes.
    """
    use_one_thread()
    run = passes(width)[kind]
    x = sequence(length, width)
    # The first passes optimize the graph and allocate memory that does not depend on the length.
    for _ in range(3):
        run(sequence(NEIGHBORHOOD, width))

    def resident(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

    # Resets VmHWM, the peak memory, to the current memory.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    run(x)[0].numpy()
    return (resident("VmHWM") - before) / 1024


def exponent(lengths: list[int], values: np.ndarray) -> float:
    """Returns the exponent e for which c * length ** e fits `values` best, using only the longer
    half of `lengths`.
    """
    half = len(lengths) // 2
    return float(np.polyfit(np.log(lengths[half:]), np.log(values[half:]), 1)[0])


def show(unit: str, lengths: list[int], table: np.ndarray) -> None:
    """Prints the measurements in `table`, one row per layer and one column per length, as
    Markdown.
    """
    print(
        f"| {unit} of a pass, n = | {' | '.join(map(str, lengths))} | exponent of n | operations "
        "in Table 1 |"
    )
    print(f"| --- |{' ---: |' * (len(lengths) + 1)} --- |")
    for (name, complexity), values in zip(TABLE_1.items(), table, strict=True):
        cells = " | ".join(f"{value:.1f}" if value < 100 else f"{value:,.0f}" for value in values)
        print(f"| {name} | {cells} | {exponent(lengths, values):.2f} | O({complexity}) |")
    print()


def draw(lengths: list[int], tables: dict[str, np.ndarray]) -> None:
    """Draws a panel of time and a panel of memory, and saves them in one picture to --output.

    `tables` has the measurements [layers, lengths] of each panel, by their unit.
    """
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 5), layout="constrained")
    for panel, (unit, table) in zip(panels, tables.items(), strict=True):
        for (name, complexity), values, marker in zip(TABLE_1.items(), table, "osD^", strict=True):
            label = f"{name}: n^{exponent(lengths, values):.2f}; O({complexity})"
            panel.loglog(lengths, values, marker=marker, label=label)
        panel.set(title=f"{unit}, forward and backward", xlabel="length n", ylabel=unit)
        panel.set_xticks(lengths, map(str, lengths))
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend(
            title="measured; operations in Table 1", fontsize=8, title_fontsize=8, loc="upper left"
        )
        panel.set_ylim(top=table.max() * 20)  # room for the legend
    figure.savefig(OUTPUT.value, dpi=90)


def main(argv: list[str]) -> None:
    """Measures time and memory of all layers, prints both tables and draws them."""
    use_one_thread()
    lengths = [int(length) for length in LENGTHS.value]
    width = WIDTH.value
    runs = passes(width)
    times = np.zeros((len(runs), len(lengths), PASSES))
    # Turn -1 warms up. Its times go to the last index, where the times of the last turn replace
    # them.
    for turn in range(-1, PASSES):
        for column, length in enumerate(lengths):
            x = sequence(length, width)
            for row, run in enumerate(runs):
                times[row, column, turn] = seconds(run, x)
    medians = 1000 * np.median(times, axis=2)
    show("ms", lengths, medians)
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as new_processes:
        cells = [(kind, length, width) for kind in range(len(runs)) for length in lengths]
        memory = np.reshape(
            new_processes.starmap(peak_memory, cells, chunksize=1), (len(runs), len(lengths))
        )
    show("MiB", lengths, memory)
    excess = 100 * (np.median(times, axis=2) / times.min(axis=2) - 1)
    print(
        f"Medians of {PASSES} passes are {np.median(excess):.0f}% above the fastest, "
        f"{excess.max():.0f}% at most."
    )
    draw(lengths, {"ms": medians, "MiB": memory})


if __name__ == "__main__":
    app.run(main)
