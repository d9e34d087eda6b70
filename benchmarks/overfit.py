"""Lets the smallest hparams set of each built-in model learn 50 sentence pairs by heart; prints a
table row for each.

    python benchmarks/overfit.py [--models=gnmt,convs2s]

The pairs are random, so a model can only remember them. Dropout and label smoothing are off. A
model trains until its loss is below `NEAR_ZERO`, or for `STEPS` steps. Then greedy search, which
uses the cache, decodes all 50 sources.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

from t2t_repro import registry
from t2t_repro.data.pipeline import MicroBatch
from t2t_repro.models.model import make_model
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import TrainStep

MODELS = flags.DEFINE_list("models", [], "names of models; default: all")
VOCAB = 40
PAIRS = 50
STEPS = 800
NEAR_ZERO = 0.01
RATE = 0.002
"""Largest learning rate. Sets with a lower learning_rate_constant use that."""


def texts(seed: int) -> np.ndarray:
    """Returns 50 texts [50, 9] of 3 to 8 random ids, each ended by the end token and padded with
    0.
    """
    random = np.random.default_rng(seed)
    rows = np.zeros((PAIRS, 9), np.int64)
    for row in rows:
        length = random.integers(3, 9)
        row[:length] = random.integers(2, VOCAB, length)
        row[length] = 1
    return rows


def greedy(model: Any, inputs: np.ndarray, length: int) -> np.ndarray:
    """Returns the ids [B, length] of greedy search by `decode_step`."""
    memory = model.encode(inputs)
    cache = model.start(len(inputs))
    ids = [np.zeros(len(inputs), np.int64)]
    for t in range(length):
        logits, cache = model.decode_step(ids[-1][:, None], t, cache, memory)
        ids.append(np.argmax(logits[:, 0], axis=1))
    return np.stack(ids[1:], axis=1)


def row(name: str) -> str:
    """Trains the smallest hparams set of a model. Returns a Markdown row."""
    sets = {
        key: hparams
        for key in registry._hparams.names()
        if (hparams := registry.hparams(key)).model == name
    }
    set_name = min(sets, key=lambda key: sets[key].hidden_size)
    hparams = replace(
        sets[set_name],
        **{name: 0.0 for name in vars(sets[set_name]) if name.endswith("dropout")},  # type: ignore[arg-type]
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=min(RATE, sets[set_name].learning_rate_constant),
        learning_rate_warmup_steps=20,
        label_smoothing=0.0,
    )
    keras.utils.set_random_seed(1)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = make_model(hparams, VOCAB)
        optimizer = make_optimizer(hparams)
    inputs = texts(1)
    targets = texts(2)
    step = TrainStep(model, optimizer, hparams, strategy)
    batch = MicroBatch(inputs, targets, np.arange(PAIRS, dtype=np.uint32))
    tokens = int(np.count_nonzero(targets))
    for number in range(STEPS):
        loss = TrainStep.read(step([batch], tokens, (1, number))).loss
        if loss < NEAR_ZERO:
            break
    correct = np.all(
        np.where(targets, greedy(model, inputs, targets.shape[1]), 0) == targets, axis=1
    ).sum()
    return f"| `{set_name}` | {number + 1} | {loss:.3f} | {correct} of {PAIRS} |"


def main(argv: list[str]) -> None:
    """Prints the table."""
    print("| hparams set | steps | loss | targets found |\n| --- | ---: | ---: | ---: |")
    for name in MODELS.value or registry._models.names():
        print(row(name), flush=True)


if __name__ == "__main__":
    app.run(main)
