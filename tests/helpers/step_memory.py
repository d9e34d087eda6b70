"""Measures the memory of training steps in a process of its own, in which TensorFlow counts the memory of the CPU."""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

from t2t_repro import devices, registry
from t2t_repro.hparam import HParams
from t2t_repro.training.optimizer import adam
from t2t_repro.training.step import TrainStep


def peak(hparams: HParams, vocab_size: int, shape: list[int], precision: str) -> int:
    """Returns the peak memory of a training step, in bytes, without that of weights and Adam's moments.

    Args:
        shape: number of examples, source length and target length of the step's only micro-batch.
    """
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model, optimizer = registry.model(hparams.model)(hparams, vocab_size, 0, precision), adam(hparams)
    step = TrainStep(model, optimizer, 0.1, strategy)

    def step_peak(examples: int, source: int, target: int) -> int:
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        micro_batch = (*(np.ones((examples, length), np.int32) for length in (source, target)), np.arange(examples))
        for _ in range(3):  # the highest of 3 steps counts: TensorFlow may free the logits before or after the gradient
            TrainStep.read(step([micro_batch], examples * target, (1, 1)))
        return int(tf.config.experimental.get_memory_info("CPU:0")["peak"] - before)

    step_peak(1, 2, 2)  # result ignored, because the first step also builds the graph
    return step_peak(*shape)


def main() -> None:
    """Prints the peak of each case in sys.argv[1], a JSON list of [hparams, vocabulary size, shape, precision]."""
    devices.set_threads(1, 1)  # with more threads, operations run in parallel, and the peak varies
    for changes, *case in json.loads(sys.argv[1]):
        print(peak(HParams(**changes), *case), flush=True)
