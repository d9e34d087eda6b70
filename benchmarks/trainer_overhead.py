"""Compares t2t-trainer's speed with that of a bare training step. See docs/performance.md.

    python benchmarks/trainer_overhead.py --data_dir=D --problem=NAME --hparams_set=transformer_tiny
    --work=FOLDER
        [--hparams=batch_size=512] [--precision=mixed_bfloat16] [--steps=100] [--threads=1]

The script runs the trainer's loop: input, step, log, progress line and the checks after each step.
Before or after each of its steps, the script takes a bare step with the same micro-batches: one
TensorFlow graph with the forward and backward passes of a second model, and Adam. It prints the
milliseconds of both and their ratio, by CPU time and by wall time, as median over 5 parts of the
run (lowest to highest). The first steps, in which TensorFlow builds the graphs, and the last step,
after which the trainer saves and evaluates, do not count. FOLDER must not exist.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from absl import app, flags

from spread import spread
from t2t_repro import devices, registry
from t2t_repro.data.dataset import Data, load_data
from t2t_repro.data.pipeline import Batch
from t2t_repro.hparam import HParams, override
from t2t_repro.models.model import make_model
from t2t_repro.training.config import RunConfig
from t2t_repro.training.distribution import make_strategy
from t2t_repro.training.loop import Loop
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.preparation import prepare
from t2t_repro.training.run import Run
from t2t_repro.training.step import EXAMPLES, IDS, SCALAR

DATA_DIR = flags.DEFINE_string("data_dir", None, "folder that t2t-datagen wrote", required=True)
PROBLEM = flags.DEFINE_string("problem", "text_files", "name of the problem")
HPARAMS_SET = flags.DEFINE_string("hparams_set", "transformer_tiny", "name of an hparams set")
HPARAMS = flags.DEFINE_string("hparams", "", "changes to the hparams set")
PRECISION = flags.DEFINE_enum(
    "precision", "float32", ["float32", "mixed_bfloat16"], "as for t2t-trainer"
)
WORK = flags.DEFINE_string("work", None, "model folder to write", required=True)
STEPS = flags.DEFINE_integer("steps", 100, "number of steps that count", lower_bound=5)
THREADS = flags.DEFINE_integer("threads", 1, "TensorFlow's threads; 0: automatic", lower_bound=0)

FIRST_STEPS = 3
PARTS = 5


def clock() -> np.ndarray:
    """Returns the seconds of CPU time, of all threads of this process, and of wall time."""
    return np.array([time.process_time(), time.perf_counter()])


def bare_step(hparams: HParams, vocab_size: int) -> Callable[[Batch], None]:
    """Returns a function that trains a new model with a batch of two micro-batches."""
    model = make_model(hparams, vocab_size, precision=PRECISION.value)
    optimizer = make_optimizer(hparams)
    optimizer.build(model.trainable_variables)

    @tf.function(autograph=False, input_signature=[[[IDS, IDS, EXAMPLES]] * 2, SCALAR])
    def step(micro_batches: Any, tokens: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = [
                smoothed_cross_entropy(
                    model(inputs, targets, examples), targets, hparams.label_smoothing
                )
                for inputs, targets, examples in micro_batches
            ]
            loss = tf.add_n(losses) / tokens
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        step_size = optimizer.step_size(optimizer.learning_rate)
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
            optimizer.update(variable.value, tf.convert_to_tensor(gradient), step_size)
        optimizer.iterations.assign_add(1)
        return loss

    def take(batch: Batch) -> None:
        step(list(map(list, batch.micro_batches)), float(batch.target_tokens)).numpy()

    return take


class TimedPipeline:
    """A pipeline that takes a bare step before or after each of the trainer's steps, and times
    both.

    They take turns to be first, because a batch whose sizes are new to TensorFlow takes a little
    longer.

    Args:
        batches: the method `batches` of the trainer's pipeline.
        bare: function that takes a bare step.
    """

    def __init__(
        self, batches: Callable[..., Iterator[Batch]], bare: Callable[[Batch], None]
    ) -> None:
        self._batches = batches
        self._bare = bare
        self.times: list[list[np.ndarray]] = []
        """For each step: the trainer's CPU and wall seconds, and those of the bare step."""

    def batches(self, *arguments: Any) -> Iterator[Batch]:
        """Yields the batches. The trainer takes its step before it asks for the next batch."""
        start = clock()
        for number, batch in enumerate(self._batches(*arguments)):
            trainer = clock() - start
            bare = np.zeros(2)
            # In even steps, the trainer is first. Its thread begins to build the next batches in
            # some of them.
            if number % 2:
                bare = self._time_bare(batch)
            start = clock()
            yield batch
            trainer += clock() - start
            if not number % 2:
                bare = self._time_bare(batch)
            self.times.append([trainer, bare])
            start = clock()

    def _time_bare(self, batch: Batch) -> np.ndarray:
        start = clock()
        self._bare(batch)
        return clock() - start


def run_trainer(data: Data, hparams: HParams) -> np.ndarray:
    """Trains, and returns seconds [steps, trainer or bare step, CPU or wall] of the steps that
    count.
    """
    hparams = dataclasses.replace(hparams, local_eval_frequency=hparams.train_steps)
    # The log is written as often as in a run of 100 steps for each of the parts.
    config = RunConfig(
        eval_steps=1,
        log_step_count_steps=STEPS.value // PARTS,
        precision=PRECISION.value,
    )
    run = Run(WORK.value, data, hparams, 1, config, make_strategy())
    with contextlib.ExitStack() as at_end:
        prepared = prepare(run, at_end)
        timed: Any = TimedPipeline(
            prepared.pipeline.batches, bare_step(hparams, data.vocabulary.size)
        )
        Loop(dataclasses.replace(prepared, pipeline=timed)).run()
    return np.array(timed.times[FIRST_STEPS:-1])


def main(argv: list[str]) -> None:
    """Prints the table."""
    if os.path.exists(WORK.value):
        raise app.UsageError(f"--work={WORK.value} exists; give a new folder")
    devices.keep_freed_memory()
    devices.set_threads(THREADS.value, THREADS.value)
    hparams = override(registry.hparams(HPARAMS_SET.value), HPARAMS.value)
    steps = FIRST_STEPS + STEPS.value + 1
    hparams = dataclasses.replace(hparams, train_steps=steps, local_eval_frequency=steps)
    seconds = run_trainer(load_data(DATA_DIR.value, PROBLEM.value), hparams)
    parts = np.array([part.sum(axis=0) for part in np.array_split(seconds, PARTS)])
    steps = np.array([len(part) for part in np.array_split(seconds, PARTS)])[:, None, None]
    print(
        "| | ms of t2t-trainer | ms of the bare step | bare / t2t-trainer |\n| --- | ---: | ---: "
        "| ---: |"
    )
    for column, kind in enumerate(("CPU", "wall")):
        trainer, bare = (1000 * parts / steps)[:, :, column].T
        print(
            f"| {kind} | {spread(trainer, 1)} | {spread(bare, 1)} | {spread(bare / trainer, 3)} |"
        )


if __name__ == "__main__":
    app.run(main)
