"""Compares a served model that several clients ask for single sentences with t2t-decoder. See
docs/performance.md.

    python benchmarks/serving.py --output_dir=M --lines=FILE [--clients=8] [--max_batch_size=8]
    [--num_batch_threads=1]
        [--server=HOST:PORT --servable_name=NAME]

By default, the script exports the model, loads the SavedModel and joins the clients' requests with
TensorFlow's batch operation, which has the same scheduler as TensorFlow Serving. The clients are
threads of the script, so no network is involved. With --server, the clients ask a running
TensorFlow Serving over gRPC instead; then only wall time counts.

The script prints the sentences per second of CPU time and of wall time, as median over the
repetitions (lowest to highest), their ratio to the first row, and the share of equal translations.
The engines take turns.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from absl import app, flags

from spread import spread
from t2t_repro import devices
from t2t_repro.decoding.translator import Translator
from t2t_repro.files.textfile import read_lines
from t2t_repro.serving.client import Client
from t2t_repro.serving.export import export

OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "model folder", required=True)
LINES = flags.DEFINE_string(
    "lines", None, "text to translate; empty lines are skipped", required=True
)
COUNT = flags.DEFINE_integer("count", 200, "number of lines to translate", lower_bound=1)
CLIENTS = flags.DEFINE_integer("clients", 8, "number of clients", lower_bound=1)
THREADS = flags.DEFINE_integer("threads", 1, "TensorFlow's threads", lower_bound=1)
MAX_BATCH_SIZE = flags.DEFINE_integer(
    "max_batch_size", 8, "most sentences that are joined", lower_bound=1
)
NUM_BATCH_THREADS = flags.DEFINE_integer(
    "num_batch_threads", 1, "batches translated at the same time", lower_bound=1
)
BATCH_TIMEOUT = flags.DEFINE_integer(
    "batch_timeout_micros", 5000, "longest wait for other requests", lower_bound=0
)
SERVER = flags.DEFINE_string(
    "server", "", "host:port of a TensorFlow Serving; empty: serve in this process"
)
SERVABLE_NAME = flags.DEFINE_string("servable_name", "", "name of the model on --server")
REPETITIONS = flags.DEFINE_integer(
    "repetitions", 5, "number of measurements of each engine", lower_bound=1
)

Engine = Callable[[Sequence[str]], list[str]]
"""Function that translates lines."""


def decoders() -> dict[str, Engine]:
    """Returns two engines, by name, that use t2t-decoder's translator.

    The first engine translates all lines together, the second as many lines at a time as there are
    clients.
    """
    translator = Translator.from_dir(OUTPUT_DIR.value)

    def together(lines: Sequence[str]) -> list[str]:
        return [translation.hypotheses[0].text for translation in translator.translate(lines)]

    def in_groups(lines: Sequence[str]) -> list[str]:
        starts = range(0, len(lines), CLIENTS.value)
        return [text for start in starts for text in together(lines[start : start + CLIENTS.value])]

    return {
        "t2t-decoder, all lines": together,
        f"t2t-decoder, {CLIENTS.value} lines at a time": in_groups,
    }


def from_clients(requests: Sequence[Callable[[str], str]]) -> Engine:
    """Returns an engine that divides the lines among clients. Each client waits for an answer
    before it asks again.

    Args:
        requests: each client's function that translates one line.
    """

    def translate(lines: Sequence[str]) -> list[str]:
        outputs = [""] * len(lines)

        def run(client: int) -> None:
            for place in range(client, len(lines), len(requests)):
                outputs[place] = requests[client](lines[place])

        with ThreadPoolExecutor(len(requests)) as pool:
            list(pool.map(run, range(len(requests))))
        return outputs

    return translate


def server(batches: tf.Variable) -> tuple[str, Engine]:
    """Returns the served model as an engine, and its name in the table. Without --server, `batches`
    counts batches.
    """
    if SERVER.value:
        clients = [
            Client(SERVER.value, SERVABLE_NAME.value, timeout_secs=60) for _ in range(CLIENTS.value)
        ]
        requests = [
            lambda line, client=client: client.translate([line])[0].text for client in clients
        ]
        return f"TensorFlow Serving, {CLIENTS.value} clients", from_clients(requests)
    with tempfile.TemporaryDirectory() as folder:
        served = tf.saved_model.load(str(export(Translator.from_dir(OUTPUT_DIR.value), folder)))

    def translate(inputs: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([batches.assign_add(1)]):
            return served.signatures["serving_default"](inputs=inputs)["outputs"]

    batching = tf.nondifferentiable_batch_function(
        NUM_BATCH_THREADS.value,
        MAX_BATCH_SIZE.value,
        BATCH_TIMEOUT.value,
        max_enqueued_batches=100,
        autograph=False,
    )
    # Outside a graph, the batch operation would build its graph in every call.
    batched = tf.function(
        batching(translate), input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )

    def ask(line: str) -> str:
        return batched(tf.constant([line])).numpy()[0].decode()

    return f"SavedModel, {CLIENTS.value} clients", from_clients([ask] * CLIENTS.value)


def measure(engine: Engine, lines: Sequence[str]) -> tuple[list[str], float, float]:
    """Returns the engine's translations, and its lines per second of CPU time and of wall time."""
    cpu = time.process_time()
    wall = time.perf_counter()
    outputs = engine(lines)
    return (
        outputs,
        len(lines) / (time.process_time() - cpu),
        len(lines) / (time.perf_counter() - wall),
    )


def main(argv: list[str]) -> None:
    """Prints the table."""
    devices.set_threads(THREADS.value, THREADS.value)
    lines = [line for line in read_lines(LINES.value) if line.strip()][: COUNT.value]
    batches = tf.Variable(0)
    engines = decoders() | dict([server(batches)])
    # Builds the graphs, does not count.
    outputs = {name: engine(lines) for name, engine in engines.items()}
    batches.assign(0)
    speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    for _ in range(REPETITIONS.value):
        for name, engine in engines.items():
            speeds[name].append(measure(engine, lines)[1:])
    reference = next(iter(engines))
    print(
        "| | lines per CPU second | of the first row | lines per second of wall time | equal "
        "lines |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, pairs in speeds.items():
        cpu, wall = zip(*pairs, strict=True)
        ratios = [
            speed / reference_speed
            for speed, (reference_speed, _) in zip(cpu, speeds[reference], strict=True)
        ]
        equal = np.mean(
            [ours == theirs for ours, theirs in zip(outputs[name], outputs[reference], strict=True)]
        )
        print(f"| {name} | {spread(cpu)} | {spread(ratios, 2)} | {spread(wall)} | {equal:.1%} |")
    if not SERVER.value:
        print(
            f"\n{len(lines) * REPETITIONS.value / batches.numpy():.1f} lines in a batch of the "
            "server, on average"
        )


if __name__ == "__main__":
    app.run(main)
