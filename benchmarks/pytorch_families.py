"""Compares the speed of training steps with PyTorch's, for the small hparams sets of the other
families of models.

    python benchmarks/pytorch_families.py [--hparams_set=gnmt_tiny] [--steps=20] [--rounds=5]

It needs `pip install ".[benchmarks]"`. Both models have the same sizes and the same batches: random
pairs with lengths like those of Multi30k, 1,024 target tokens in each of a step's two
micro-batches. Both use one thread. The script first copies our weights into the PyTorch model and
checks that both compute the same logits. Then it measures the CPU time of some steps of ours, some
of PyTorch's, and so on. It prints the target tokens per CPU second of the fastest round of each. A
step is complete: dropout, forward and backward pass, and Adam.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch._dynamo  # isort: skip  # before TensorFlow; otherwise their two copies of LLVM end the process

import keras
import numpy as np
import tensorflow as tf
import torch
from torch.nn import functional

import pytorch_convs2s
import pytorch_gnmt
from t2t_repro import devices, registry
from t2t_repro.data.pipeline import MicroBatch
from t2t_repro.hparam import HParams
from t2t_repro.models.model import make_model
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import TrainStep

VOCAB_SIZE = 8000
MODELS: dict[str, Any] = {"convs2s": pytorch_convs2s.Model, "gnmt": pytorch_gnmt.Model}
"""Our models' names, and the PyTorch models."""


def micro_batches(tokens: int) -> list[MicroBatch]:
    """Returns two micro-batches of random pairs of similar lengths, each with about `tokens` target
    tokens.
    """
    draw = np.random.default_rng(1)
    batches = []
    for mean in (12, 18):
        lengths = np.sort(draw.normal(mean, 1, (2, tokens // mean)).astype(int), axis=1)
        sides = []
        for side in lengths:
            ids = draw.integers(3, VOCAB_SIZE, (len(side), side.max()))
            positions = np.arange(side.max())
            ids[positions == side[:, None] - 1] = 1
            sides.append(np.where(positions < side[:, None], ids, 0).astype(np.int64))
        inputs, targets = sides
        batches.append(MicroBatch(inputs, targets, np.arange(len(inputs), dtype=np.uint32)))
    return batches


def ours(
    model: Any, hparams: HParams, batches: list[MicroBatch], tokens: int
) -> Callable[[], None]:
    """Returns a function that takes a training step with our model."""
    step = TrainStep(model, make_optimizer(hparams), hparams, tf.distribute.get_strategy())
    return lambda: TrainStep.read(step(batches, tokens, (1, 1))) and None


def pytorchs(
    model: Any, hparams: HParams, batches: list[MicroBatch], tokens: int
) -> Callable[[], None]:
    """Returns a function that takes a training step with the PyTorch model."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)

    def step() -> None:
        optimizer.zero_grad()
        for batch in batches:
            sources, targets = (torch.from_numpy(ids) for ids in batch[:2])
            logits = model(sources, targets).flatten(0, 1)
            smoothing = hparams.label_smoothing
            loss = functional.cross_entropy(
                logits,
                targets.flatten(),
                ignore_index=0,
                reduction="sum",
                label_smoothing=smoothing,
            )
            (loss / tokens).backward()
        optimizer.step()

    return step


def check_equal(our_model: Any, pytorch_model: Any) -> None:
    """Copies our weights into the PyTorch model, and raises AssertionError if the logits differ."""
    weights = {weight.path: weight.numpy() for weight in our_model.trainable_variables}
    draw = np.random.default_rng(2)
    weights = {
        path: weight + draw.normal(0, 0.1, weight.shape).astype("f")
        for path, weight in weights.items()
    }
    for weight in our_model.trainable_variables:
        weight.assign(weights[weight.path])
    pytorch_model.copy(weights)
    sources, targets = draw.integers(1, VOCAB_SIZE, (2, 3, 7))
    logits = pytorch_model.eval()(*map(torch.from_numpy, (sources, targets))).detach().numpy()
    np.testing.assert_allclose(our_model(sources, targets), logits, atol=1e-3)
    pytorch_model.train()


def main() -> None:
    """Compares the speeds of one hparams set and prints them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hparams_set", default="gnmt_tiny")
    parser.add_argument("--steps", type=int, default=20, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    devices.keep_freed_memory()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(1)
    hparams = registry.hparams(flags.hparams_set)
    models = make_model(hparams, VOCAB_SIZE), MODELS[hparams.model](hparams, VOCAB_SIZE)
    check_equal(*models)
    batches = micro_batches(hparams.batch_size // 2)
    tokens = sum(int(np.count_nonzero(batch.targets)) for batch in batches)
    steps = [
        make(model, hparams, batches, tokens)
        for make, model in zip((ours, pytorchs), models, strict=True)
    ]
    for step in steps:
        step()  # not measured: it builds the graph
    seconds = np.zeros((flags.rounds, 2))
    for one_round in seconds:
        for i, step in enumerate(steps):
            start = time.process_time()
            for _ in range(flags.steps):
                step()
            one_round[i] = (time.process_time() - start) / flags.steps
    speeds = tokens / seconds.min(axis=0)
    print(f"{flags.hparams_set}: target tokens per CPU second")
    print(f"ours {speeds[0]:,.0f}, PyTorch {speeds[1]:,.0f}, ratio {speeds[0] / speeds[1]:.2f}")


if __name__ == "__main__":
    main()
