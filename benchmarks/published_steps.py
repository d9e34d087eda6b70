"""Takes one training step of each model at its published size; prints a table row for each, as in
docs/rivals.md.

    python benchmarks/published_steps.py [--hparams_sets=gnmt,deep_att]

The batch has 2 random pairs of 8 tokens. Weights and products are float32, and the learning rate is
0.00001. The loss is that of the batch without dropout, per target token. Seconds are those of the
step and its graph. Each set runs in its own process, so that peak memory is that of one model.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

from t2t_repro import registry
from t2t_repro.data.pipeline import MicroBatch
from t2t_repro.models.model import make_model, parameter_count
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import TrainStep

VOCABULARIES = {
    "bytenet": 258,
    "convs2s_ende": 40_000,
    "convs2s_enfr": 40_000,
    "deep_att": 32_000,
    "gnmt": 32_000,
    "moe": 32_000,
    "transformer_moe": 37_000,
}
"""Number of vocabulary entries by hparams set."""
CHANGES: dict[str, dict[str, Any]] = {"moe": {"moe_num_experts": 9, "moe_groups": 3}}
"""Changed hparams by set. All 2,048 experts would need 139 GB."""
SETS = flags.DEFINE_list("hparams_sets", sorted(VOCABULARIES), "names of hparams sets")
ONLY = flags.DEFINE_string("only", "", "name of the set of this process")
PAIRS = 2
LENGTH = 8
RATE = 1e-5
"""Learning rate. The first step of a set's own warmup would hardly change the loss."""


def texts(vocab_size: int, seed: int) -> np.ndarray:
    """Returns random ids [PAIRS, LENGTH], which end with the end token."""
    ids = np.random.default_rng(seed).integers(2, vocab_size, (PAIRS, LENGTH))
    ids[:, -1] = 1
    return ids


def row(name: str) -> str:
    """Takes a step of an hparams set. Returns a Markdown row."""
    changes = CHANGES.get(name, {})
    vocab_size = VOCABULARIES[name]
    rate: dict[str, Any] = {"learning_rate_schedule": "constant", "learning_rate_constant": RATE}
    hparams = replace(registry.hparams(name), **rate, **changes)
    keras.utils.set_random_seed(1)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = make_model(hparams, vocab_size)
        optimizer = make_optimizer(hparams)
    inputs = texts(vocab_size, 1)
    targets = texts(vocab_size, 2)

    def loss() -> float:
        return float(smoothed_cross_entropy(model(inputs, targets), targets, 0.0)) / targets.size

    before = loss()
    start = time.perf_counter()
    step = TrainStep(model, optimizer, hparams, strategy)
    batch = MicroBatch(inputs, targets, np.arange(PAIRS, dtype=np.uint32))
    norm = TrainStep.read(step([batch], targets.size, (1, 0))).gradient_norm
    seconds = time.perf_counter() - start
    after = loss()
    label = " ".join(
        [f"`{name}`", *(f"with {hparam}={value}" for hparam, value in changes.items())]
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    cells = (
        f"{parameter_count(model):,} | {seconds:.0f} | {memory:.1f} | {norm:.3g} | {before:.4f} → "
        f"{after:.4f}"
    )
    return f"| {label} | {cells} |"


def main(_: list[str]) -> None:
    """Prints the table."""
    if ONLY.value:
        print(row(ONLY.value))
        return
    print(
        "| set | parameters | seconds | peak memory in GiB | gradient norm | loss before and "
        "after |"
    )
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in SETS.value:
        subprocess.run([sys.executable, __file__, f"--only={name}"], check=True)


if __name__ == "__main__":
    app.run(main)
