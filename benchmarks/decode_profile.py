"""Prints a Markdown table of the operations that decoding spends its time in. See
docs/performance.md.

    python benchmarks/decode_profile.py --model=M --lines=FILE [--count=300] [--beam_size=4]
    [--one_at_a_time]

The script decodes the lines on one thread while TensorFlow's profiler runs, --repetitions times.
All repetitions run the same operations in the same order, so each operation counts with its
shortest time. This removes most interruptions by other programs, but not those of operations that
last milliseconds: a table for batches needs an idle core. The last row of the table is CPU time
without the profiler, minus the operations above: starting operations, operations too small for the
profiler, and Python.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from absl import app, flags
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from t2t_repro import devices
from t2t_repro.decoding.translator import Translator
from t2t_repro.files.textfile import read_lines

MODEL = flags.DEFINE_string("model", None, "the model folder", required=True)
LINES = flags.DEFINE_string("lines", None, "text to translate, plain or .gz", required=True)
COUNT = flags.DEFINE_integer("count", 300, "number of lines to translate", lower_bound=1)
BEAM_SIZE = flags.DEFINE_integer("beam_size", 4, "number of hypotheses", lower_bound=1)
EXTRA_LENGTH = flags.DEFINE_integer(
    "extra_length",
    50,
    "longest output minus input; 0 for a model with random weights, whose outputs do not end",
)
BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 2048, "source tokens decoded together", lower_bound=1
)
PRECISION = flags.DEFINE_string("precision", "float32", "float32 or bfloat16")
ONE_AT_A_TIME = flags.DEFINE_boolean("one_at_a_time", False, "translate each line by itself")
REPETITIONS = flags.DEFINE_integer("repetitions", 5, "number of profiles", lower_bound=1)
ROWS = flags.DEFINE_integer("rows", 12, "number of operations to print", lower_bound=1)

Durations = dict[str, list[float]]
"""For each operation of the graph, by name and type, the milliseconds of each of its runs in order.
"""


def profile(run: Callable[[], None]) -> Durations:
    """Returns the durations of the operations that `run` starts."""
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=3, python_tracer_level=0
        )
        with tf.profiler.experimental.Profile(folder, options):
            run()
        space = xplane_pb2.XSpace.FromString(next(Path(folder).rglob("*.xplane.pb")).read_bytes())
    events = defaultdict(list)
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                # Operations are named "name:Type", perhaps followed by "#details#". Other events
                # have no type.
                name = plane.event_metadata[event.metadata_id].name.partition("#")[0]
                if re.fullmatch(r"[\w./]+:\w+", name):
                    events[name].append(
                        (
                            line.timestamp_ns * 1e-6 + event.offset_ps * 1e-9,
                            event.duration_ps * 1e-9,
                        )
                    )
    return {name: [duration for _, duration in sorted(runs)] for name, runs in events.items()}


def shortest(profiles: list[Durations]) -> dict[str, tuple[int, float]]:
    """Returns for each operation its number of runs, and their milliseconds. A run counts as in its
    fastest profile.
    """
    common = [
        name
        for name in profiles[0]
        if len({len(durations.get(name, [])) for durations in profiles}) == 1
    ]
    return {
        name: (
            len(profiles[0][name]),
            float(np.min([durations[name] for durations in profiles], axis=0).sum()),
        )
        for name in common
    }


def describe(name: str) -> str:
    """Returns the operation's type and the part of decoding to which it belongs."""
    node, _, operation_type = name.rpartition(":")
    part = "search" if node.startswith("while/") else "encoder"
    return f"{operation_type.removeprefix('_Mkl')}, {part}"


def main(argv: list[str]) -> None:
    """Prints the table."""
    devices.set_threads(1, 1)
    lines = list(itertools.islice(read_lines(LINES.value), COUNT.value))
    translator = Translator.from_dir(
        MODEL.value,
        precision=PRECISION.value,
        beam_size=BEAM_SIZE.value,
        extra_length=EXTRA_LENGTH.value,
        batch_size=BATCH_SIZE.value,
    )
    texts = [[line] for line in lines] if ONE_AT_A_TIME.value else [lines]

    def run() -> None:
        for text in texts:
            translator.translate(text)

    run()  # builds the graph
    cpu = []
    profiles = []
    for _ in range(REPETITIONS.value):
        start = time.process_time()
        run()
        cpu.append((time.process_time() - start) * 1e3)
        profiles.append(profile(run))
    total = float(np.median(cpu))
    operations = defaultdict[str, list[tuple[int, float]]](list)
    for name, (runs, duration) in shortest(profiles).items():
        operations[describe(name)].append((runs, duration))
    sums = {
        label: sum(duration for _, duration in members) for label, members in operations.items()
    }
    print(f"{len(lines)} lines, beam {BEAM_SIZE.value}, {PRECISION.value}: {total:,.0f} CPU-ms\n")
    print(
        "| operation | runs | ms | share | largest single operation, ms |\n| --- | ---: | ---: | "
        "---: | ---: |"
    )
    for label in sorted(sums, key=lambda label: -sums[label])[: ROWS.value]:
        members = operations[label]
        runs = sum(runs for runs, _ in members)
        longest = max(duration for _, duration in members)
        print(
            f"| {label} | {runs:,} | {sums[label]:,.0f} | {sums[label] / total:.0%} | "
            f"{longest:,.0f} |"
        )
    remainder = total - sum(sorted(sums.values())[-ROWS.value :])
    print(f"| all else | | {remainder:,.0f} | {remainder / total:.0%} | |")


if __name__ == "__main__":
    app.run(main)
