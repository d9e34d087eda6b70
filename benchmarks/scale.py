"""Estimates what limits a training run on 1 to 512 GPUs. See docs/scale.md.

    python benchmarks/scale.py --work=FOLDER [--gpu_tokens=82059] [--gpu_links=200] [--network=12.5]
    [--launch=4]

The script measures on one core how long it takes to prepare a step's input and to plan an epoch,
and counts the operations of a step and the bytes that GPUs exchange. The flags are the speed of the
hardware, which was not available. The script prints Markdown tables, and leaves its random data in
FOLDER.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from absl import app, flags

from random_pairs import random_lengths, random_records
from t2t_repro import registry
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import pipeline
from t2t_repro.data.large_split import open_records
from t2t_repro.data.pipeline import MicroBatch, Pipeline
from t2t_repro.data.records import ANY_SIZES, INDEX, Records, index_path, shard_path
from t2t_repro.hparam import HParams
from t2t_repro.paper import size

WORK = flags.DEFINE_string("work", None, "folder of random data", required=True)
GPU_TOKENS = flags.DEFINE_float(
    "gpu_tokens", 82_059, "target tokens per second of a big model on one GPU"
)
GPU_LINKS = flags.DEFINE_float(
    "gpu_links", 200, "GB/s of an all-reduce between the GPUs of a machine"
)
NETWORK = flags.DEFINE_float(
    "network", 12.5, "GB/s of the network of a machine; 12.5 are 100 Gbit/s"
)
LAUNCH = flags.DEFINE_float(
    "launch", 4, "microseconds in which the host starts an operation on a GPU"
)
PLAN = flags.DEFINE_integer(
    "plan", 0, "for the script's own use: opens and plans a split of so many pairs"
)
CORPORA = flags.DEFINE_integer(
    "corpora", 1, "with --plan: number of corpora in the split; several have weights"
)

VOCAB_SIZE = 37_000
MEAN_LENGTH = 28
GPUS_OF_A_MACHINE = 8
RECORDS = 2_000_000
WITHOUT_WORK = {
    "_Arg",
    "_Retval",
    "Const",
    "Identity",
    "NoOp",
    "ReadVariableOp",
    "Reshape",
    "Shape",
    "StridedSlice",
    "Pack",
    "BroadcastGradientArgs",
    "Range",
    "ExpandDims",
    "Squeeze",
}
"""Operations that compute nothing on a GPU: they read or describe tensors, or compute shapes on the
host.
"""
GPUS = (1, 8, 64, 512)
BATCH_SIZES = (25_000, 400_000)
SPLITS = (1_000_000, 1), (36_000_000, 1), (100_000_000, 1), (100_000_000, 40)
"""Numbers of pairs and of corpora."""


def input_seconds(data: Records, batch_size: int, gpus: int) -> float:
    """Returns the CPU seconds in which the process of one machine prepares its part of a step."""
    steps_of_data = Pipeline(data, HParams(batch_size=batch_size), 1, 4096, gpus)
    local = range(min(gpus, GPUS_OF_A_MACHINE))
    steps = 40
    batches = steps_of_data.batches(0, steps_of_data.steps_per_epoch, local)
    next(batches)
    start = time.process_time()
    for _ in range(steps):
        next(batches)
    return (time.process_time() - start) / steps


def large_split(pairs: int) -> list[Path]:
    """Returns the paths of shards of a million pairs, whose indexes have random lengths. The
    records are holes.

    A hole in a file needs no disk space.
    """
    count = -(-pairs // 1_000_000)
    paths = [
        shard_path(WORK.value, f"holes_{pairs}", "train", shard, count) for shard in range(count)
    ]
    lengths = random_lengths(1_000_000)
    index = np.empty(1_000_000, INDEX)
    index["source"], index["target"] = lengths
    index["size"] = 4 * lengths.sum(axis=0) + 10
    ends = np.cumsum(index["size"].astype(np.int64) + 16)
    index["offset"] = ends - index["size"] - 4
    for path in paths:
        if not index_path(path).exists():
            with open(path, "wb") as file:
                file.truncate(int(ends[-1]))
            np.save(index_path(path).with_suffix(".npy"), index)
            index_path(path).with_suffix(".npy").rename(index_path(path))
    return paths


def weighted_corpora(pairs: int, count: int) -> tuple[StoredCorpus, ...]:
    """Returns `count` corpora of about equal numbers of pairs and shards, with the weights 1 and 2
    in turn.
    """
    shards = pairs // 1_000_000
    bounds = itertools.pairwise(shards * number // count for number in range(count + 1))
    return tuple(
        StoredCorpus(
            start=1_000_000 * start,
            stop=1_000_000 * stop,
            shards=stop - start,
            weight=1 + number % 2,
        )
        for number, (start, stop) in enumerate(bounds)
    )


def print_plan(pairs: int, corpora: int) -> None:
    """Opens a split and finds the batch of a step in the middle of its third epoch, as a run that
    resumes does.

    Prints the seconds of both, and the bytes of memory that both take at most.
    """
    before = peak_memory()
    start = time.monotonic()
    stored = weighted_corpora(pairs, corpora) if corpora > 1 else ()
    split = open_records(pairs, large_split(pairs), False, ANY_SIZES, stored)
    opened = time.monotonic()
    ids = np.zeros((1, 1), np.int32)
    with mock.patch.object(
        pipeline, "pad", lambda _, groups: [MicroBatch(ids, ids, group) for group in groups]
    ):
        data = Pipeline(split, HParams(batch_size=25_000), 1, 4096, 8)
        step = int(2.5 * data.steps_per_epoch)
        next(data.batches(step, step + 1))
    print(opened - start, time.monotonic() - opened, peak_memory() - before)


def peak_memory() -> int:
    """Returns the largest memory that this process has had, in bytes."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return 1024 * int(line.split()[1])


def plan(pairs: int, corpora: int) -> tuple[float, float, float]:
    """Returns what `print_plan` prints in a new process. An earlier process has counted the lengths
    of all shards.
    """
    command = [sys.executable, *sys.argv, f"--plan={pairs}", f"--corpora={corpora}"]
    subprocess.check_output(command)
    opening, planning, memory = map(float, subprocess.check_output(command, text=True).split())
    return opening, planning, memory


def operations() -> int:
    """Returns how many operations a GPU runs in a training step of a model with 6 layers and two
    micro-batches.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    from t2t_repro.models import variants
    from t2t_repro.training.optimizer import make_optimizer
    from t2t_repro.training.step import TrainStep

    # The width does not change the number.
    hparams = HParams(hidden_size=16, filter_size=32, num_heads=2)
    model = variants.transformer(hparams, 100)
    step = TrainStep(model, make_optimizer(hparams), hparams, tf.distribute.get_strategy())
    ids = np.ones((2, 3), np.int64)
    context.enable_graph_collection()
    step([MicroBatch(ids, ids, np.arange(2))] * 2, 12, (1, 0))
    graphs = [
        graph.post_optimization_graph.node
        for graph in context.export_run_metadata().function_graphs
    ]
    return sum(node.op not in WITHOUT_WORK for node in max(graphs, key=len))


def all_reduce_seconds(parameters: int, gpus: int) -> float:
    """Returns the seconds in which GPUs sum gradients in float32, first within machines and then
    between them.
    """
    within = min(gpus, GPUS_OF_A_MACHINE)
    machines = -(-gpus // GPUS_OF_A_MACHINE)
    traffic = [2 * (count - 1) / count * 4 * parameters for count in (within, machines)]
    return traffic[0] / (GPU_LINKS.value * 1e9) + traffic[1] / (NETWORK.value * 1e9)


def main(argv: list[str]) -> None:
    """Prints the tables."""
    if PLAN.value:
        print_plan(PLAN.value, CORPORA.value)
        return
    data = random_records(WORK.value, RECORDS, VOCAB_SIZE)
    count = operations()
    hparams = {name: registry.hparams(f"transformer_{name}") for name in ("base", "big")}
    flops = {
        name: size.step_flops(hparams[name], VOCAB_SIZE, MEAN_LENGTH, MEAN_LENGTH)
        for name in hparams
    }
    launch = count * LAUNCH.value * 1e-6
    print(f"operations in a step: {count:,}, started in {1e3 * launch:.0f} ms\n")
    columns = [
        "model",
        "tokens a step",
        "GPUs",
        "compute, ms",
        "exchange, ms",
        "input, ms",
        "tokens/s",
        "of ideal",
    ]
    print(f"| {' | '.join(columns)} | limit |\n| --- |{' ---: |' * 7} --- |")
    for batch_size in BATCH_SIZES:
        inputs = {gpus: input_seconds(data, batch_size, gpus) for gpus in GPUS}
        for name, model in hparams.items():
            speed = (
                GPU_TOKENS.value
                * flops["big"]
                / flops[name]
                * hparams[name].batch_size
                / hparams["big"].batch_size
            )
            for gpus in GPUS:
                compute = batch_size / gpus / speed
                exchange = all_reduce_seconds(size.parameters(model, VOCAB_SIZE), gpus)
                parts = {"compute": compute, "start of operations": launch, "input": inputs[gpus]}
                limit = max(parts, key=lambda part: parts[part])
                step = parts[limit] + exchange
                limit = "exchange" if exchange > parts[limit] else limit
                milliseconds = [f"{1e3 * part:.1f}" for part in (compute, exchange, inputs[gpus])]
                cells = [
                    name,
                    f"{batch_size:,}",
                    str(gpus),
                    *milliseconds,
                    f"{batch_size / step:,.0f}",
                ]
                print(f"| {' | '.join([*cells, f'{compute / step:.0%}', limit])} |")
    print(
        "\n| pairs | corpora | open, s | find a step, s | memory, GB |\n| ---: | ---: | ---: | "
        "---: | ---: |"
    )
    for pairs, corpora in SPLITS:
        opening, planning, memory = plan(pairs, corpora)
        print(f"| {pairs:,} | {corpora} | {opening:.1f} | {planning:.1f} | {memory / 1e9:.2f} |")


if __name__ == "__main__":
    app.run(main)
