"""Describes a run for t2t-trainer --dry_run: its model, steps, micro-batches, memory and disk space.

A dry run trains and writes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from t2t_repro import devices
from t2t_repro.console.tables import Column, Table, to_text
from t2t_repro.data import batching
from t2t_repro.data.dataset import Data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.hparam import HParams
from t2t_repro.models import size
from t2t_repro.models.model import check_vocabularies, make_model, parameter_count
from t2t_repro.models.size_formulas import Shape
from t2t_repro.training.config import RunConfig
from t2t_repro.training.disk import DiskNeed, gigabytes
from t2t_repro.training.distribution import count_replicas, workers
from t2t_repro.training.schedule import Schedule
from t2t_repro.training.step import ROUNDS_AT_ONCE

COLUMNS = [
    Column("micro_batches", "micro-batches", "{:,}".format),
    Column("steps", "steps", "{:,}".format),
    Column("share", "share", "{:.1%}".format),
    Column("positions", "largest micro-batch", "{:,} positions".format),
    Column("memory of", ""),
    Column("bytes", "MB", lambda value: f"{value / 1e6:,.0f}"),
    Column("disk", "checkpoints"),
    Column("disk_bytes", "GB", gigabytes),
]


@dataclass(frozen=True)
class Hardware:
    """The devices of a training run, and the precision in which they compute."""

    device: str
    """Name of the GPUs, or of the processor if there is no GPU."""
    replicas: int
    """Number of replicas on each machine."""
    precision: str
    workers: int = 1
    memory: int = 0
    """Bytes of memory that this process may use if the run trains on the processor; 0 if the run trains on GPUs."""

    def __str__(self) -> str:
        workers = f"{self.workers} workers, each " if self.workers > 1 else ""
        return f"{workers}{self.replicas} x {self.device}, {self.precision}"


def dry_run(data: Data, hparams: HParams, random_seed: int, config: RunConfig) -> str:
    """Returns a description of the training run that `train` would start. Does not wait for other workers.

    Raises:
        UserError: if all training pairs are too long, the vocabularies do not fit the hparams, TF_CONFIG is wrong, or
            this machine has fewer GPUs than `config` requires.
    """
    vocab_size, source_size = data.vocabulary.size, data.vocabulary.separate_source_size
    check_vocabularies(hparams, source_size)
    replicas = count_replicas(config.worker_gpu)
    memory = 0 if tf.config.get_visible_devices("GPU") else devices.memory_limit()
    hardware = Hardware(devices.names()[0], replicas, config.precision, workers(), memory)
    devices.hide_gpus()  # a dry run must not allocate their memory
    max_tokens = config.max_tokens_per_replica
    pipeline = Pipeline(data.records["train"], hparams, random_seed, max_tokens, replicas * workers())
    if hparams.model in size.BUILT_IN:
        parameters = size.parameters(hparams, vocab_size, source_size)
    else:
        model = make_model(hparams, vocab_size, data.problem.target_space_id, config.model_precision, source_size)
        parameters = parameter_count(model)
    disk = to_text([DiskNeed.of(parameters, hparams, config).table()], COLUMNS)
    return "\n\n".join([describe(hparams, vocab_size, parameters, pipeline, hardware), disk])


def describe(hparams: HParams, vocab_size: int, parameters: int, pipeline: Pipeline, hardware: Hardware) -> str:
    """Returns the text of a dry run: facts about the run, and tables of its micro-batches and its memory.

    Args:
        hparams: how the model is built and trained.
        vocab_size: number of entries in the vocabulary.
        parameters: number of the model's parameters.
        pipeline: source of the run's batches.
        hardware: devices of the training run.
    """
    epoch, lengths = pipeline.first_epoch, pipeline.lengths
    micro_batches = MicroBatchShapes.of(pipeline)
    largest = max(
        micro_batches.at_once(),
        key=lambda shapes: sum(size.activations(hparams, vocab_size, shape, hardware.precision) for shape in shapes),
    )
    accumulates = micro_batches.rounds > ROUNDS_AT_ONCE
    memory = size.step_memory(hparams, parameters, vocab_size, largest, hardware.precision, accumulates)
    tokens = np.add.reduceat(lengths[1, epoch.order], epoch.ends[:-1], dtype=np.int64)[epoch.shuffle].sum(axis=1)
    sample = f" of the first {len(micro_batches.steps):,} steps" if len(micro_batches.steps) < epoch.steps else ""
    facts = {
        "model": f"{hparams.model}, {parameters:,} parameters",
        "trained on": str(hardware),
        "examples": f"{len(epoch.order):,} an epoch; {pipeline.too_long:,} longer than {hparams.max_length} tokens are "
        "skipped",
        "steps": f"{epoch.steps:,} an epoch; {hparams.train_steps:,} steps are "
        f"{hparams.train_steps / epoch.steps:,.1f} epochs",
        "target tokens a step": f"{tokens.min():,} to {tokens.max():,}, {tokens.mean():,.0f} on average",
        "learning rate": _learning_rates(hparams),
        "padding": f"{micro_batches.padding:.1%} of all positions{sample}",
        "micro-batches": f"at most {pipeline.max_tokens:,} positions (--max_tokens_per_replica)",
    }
    width = max(map(len, facts))
    lines = [f"{name.ljust(width)}  {value}" for name, value in facts.items()]
    tables = [micro_batches.table(sample), _memory_table(memory, largest, hardware, size.described_model(hparams))]
    return "\n".join([*lines, "", to_text(tables, COLUMNS)])


def _learning_rates(hparams: HParams) -> str:
    """Returns the highest learning rate with the steps that have it, and the learning rate of the last step."""
    last_step, warmup = hparams.train_steps, hparams.learning_rate_warmup_steps
    # No factor of the schedule falls before the end of the warm-up or rises after it, so one of these steps has the
    # highest rate.
    steps = sorted({1, min(warmup, last_step), min(warmup + 1, last_step), last_step})
    rates = [float(Schedule(hparams)(step - 1)) for step in steps]
    peak = max(rates)
    peak_steps = [step for step, rate in zip(steps, rates, strict=True) if math.isclose(rate, peak, rel_tol=1e-6)]
    start, end = peak_steps[0], peak_steps[-1]
    span = f"step {start:,}" if start == end else f"steps {start:,} to {end:,}"
    return f"at most {peak:.3g} ({span}); {rates[-1]:.3g} at the last step ({last_step:,})"


@dataclass(frozen=True)
class MicroBatchShapes:
    """Shapes of the micro-batches of the first epoch's steps, of at most the first `batching.COUNTED_STEPS` steps."""

    steps: list[list[Shape]]
    """For each step, the shape of each micro-batch: number of examples (it may be 0), source length, target length."""
    replicas: int
    """Number of replicas of all workers together."""
    padding: float
    """Number of padding positions divided by the number of all positions."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> MicroBatchShapes:
        """Returns the micro-batches of a pipeline's first epoch."""
        epoch, lengths = pipeline.first_epoch, pipeline.lengths
        steps = batching.first_steps(lengths, epoch, pipeline.max_tokens, pipeline.replicas)
        shapes = [
            [(len(examples), *lengths[:, examples].max(axis=1, initial=0).tolist()) for examples in step]
            for step in steps
        ]
        return cls(shapes, pipeline.replicas, batching.padding(lengths, steps))

    @property
    def rounds(self) -> int:
        """Largest number of micro-batches that one replica computes in a step."""
        return max(map(len, self.steps)) // self.replicas

    def at_once(self) -> Iterator[list[Shape]]:
        """Yields lists of micro-batch shapes: in each list, what one replica holds in memory at the same time."""
        for shapes in self.steps:
            if len(shapes) <= ROUNDS_AT_ONCE * self.replicas:
                yield from (shapes[replica :: self.replicas] for replica in range(self.replicas))
            else:
                yield from ([shape] for shape in shapes)

    def table(self, sample: str) -> Table:
        """Returns a table that shows how many steps have one micro-batch, two micro-batches, and so on.

        Args:
            sample: end of the table's title, which says how many steps were counted; empty if all steps were counted.
        """
        steps = Counter(map(len, self.steps))
        largest: Counter[int] = Counter()
        for shapes in self.steps:
            for examples, source, target in shapes:
                largest[len(shapes)] = max(largest[len(shapes)], examples * max(source, target))
        lines = [
            {"micro_batches": number, "steps": steps[number], "share": steps[number] / len(self.steps),
             "positions": positions}
            for number, positions in sorted(largest.items())
        ]  # fmt: skip
        return Table("micro_batches", f"Micro-batches of a step{sample}", lines)


def _memory_table(memory: size.StepMemory, shapes: list[Shape], hardware: Hardware, model: str) -> Table:
    """Returns the table of the memory that a replica needs, by the formulas of the built-in model `model`."""
    positions = " and ".join(f"{examples:,} x ({source:,} + {target:,})" for examples, source, target in shapes)
    parts = {
        "weights": memory.weights,
        "Adam's moments": memory.moments,
        "gradients": memory.gradients,
        f"activations of {positions} positions": memory.activations,
        "together": memory.total,
        **({"this machine": hardware.memory} if hardware.memory else {}),
    }
    lines = [{"memory of": name, "bytes": count} for name, count in parts.items()]
    return Table("memory", f"Memory of a replica, estimated by the formulas of {model}, without the program", lines)
