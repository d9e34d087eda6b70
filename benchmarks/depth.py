"""Trains a Transformer of 4 + 4 layers on Multi30k for a few epochs in many variants, to see which
of them learn.

    python benchmarks/depth.py --data=D --work=FOLDER [--variant=NAME ...] [--results=FILE]
    python benchmarks/depth.py --results=docs/depth.json --table

See docs/depth.md. D is a data directory of t2t-datagen: problem text_files, a vocabulary of 8,000,
Multi30k EN-DE. Each variant changes one thing in SETTINGS. The script writes its measurements to
the results file, by default depth.json in the work folder, and skips variants that the file has. So
the same command continues after an interruption. The variants of `pytorch_transformer.py` need the
package torch.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if importlib.util.find_spec("torch"):
    import torch._dynamo  # noqa: F401, before TensorFlow; otherwise their two copies of LLVM end the process

import numpy as np
import tensorflow as tf
from absl import app, flags

from learning import EVAL_TOKENS, SEED, VOCAB_SIZE, Run, measured
from results import Results
from t2t_repro.data.pipeline import Pipeline, batches_once
from t2t_repro.data.records import Records, find_shards
from t2t_repro.hparam import HParams, override
from t2t_repro.training.loss import smoothed_cross_entropy

DATA = flags.DEFINE_string("data", "", "data directory of t2t-datagen")
WORK = flags.DEFINE_string("work", "", "folder of the results file")
RESULTS = flags.DEFINE_string("results", "", "results file")
TABLE = flags.DEFINE_bool("table", False, "only print the tables, from the results file")

SETTINGS = (
    "hidden_size=128,filter_size=256,num_hidden_layers=4,num_heads=4,"
    "layer_prepostprocess_dropout=0.3,attention_dropout=0.1,relu_dropout=0.1,batch_size=4096,"
    "train_steps=4000,learning_rate_constant=0.005,"
    "learning_rate_schedule=constant*linear_warmup*linear_decay,learning_rate_warmup_steps=1500"
)
TOKENS = 448 * 4096
MEASURED_AT = 4
"""Number of target tokens in each training run, and number of measurements during the run, at equal
distances.
"""


@dataclass(frozen=True)
class Variant:
    """A training run."""

    hparams: str = ""
    """Hparams in which the run differs from SETTINGS."""
    precision: str = "mixed_bfloat16"
    scaled: str = ""
    """Part of the names of the kernels whose initial values are multiplied by `factor`."""
    factor: float = 1.0
    pytorch: str = ""
    """Name of an initialization of `pytorch_transformer.py`, whose model is then trained; empty for
    our model.
    """


VARIANTS_BY_NAME = {
    "as SETTINGS": Variant(),
    "PyTorch with our initialization": Variant(pytorch="glorot"),
    "PyTorch with fairseq's initialization": Variant(pytorch="fairseq"),
    "initializer_gain 0.5": Variant("initializer_gain=0.5"),
    "initializer_gain 0.25": Variant("initializer_gain=0.25"),
    "initializer_gain 0.1": Variant("initializer_gain=0.1"),
    "smaller feed-forward kernels": Variant(scaled="feed_forward", factor=0.5**0.5),
    "smaller attention kernels": Variant(scaled="attention", factor=0.5**0.5),
    "smaller embeddings": Variant(scaled="embedding", factor=0.5),
    "pre-norm": Variant("norm_before=true"),
    "pre-norm with initializer_gain 0.5": Variant("norm_before=true,initializer_gain=0.5"),
    "2 layers": Variant("num_hidden_layers=2"),
    "2 layers with initializer_gain 0.5": Variant("num_hidden_layers=2,initializer_gain=0.5"),
    "6 layers": Variant("num_hidden_layers=6"),
    "6 layers with initializer_gain 0.5": Variant("num_hidden_layers=6,initializer_gain=0.5"),
    "dropout 0.1": Variant(
        "layer_prepostprocess_dropout=0.1,attention_dropout=0.0,relu_dropout=0.0"
    ),
    "no dropout inside sub-layers": Variant("attention_dropout=0.0,relu_dropout=0.0"),
    "peak rate 0.002": Variant("learning_rate_constant=0.002"),
    "warmup 500": Variant("learning_rate_warmup_steps=500"),
    "no label smoothing": Variant("label_smoothing=0.0"),
    "batch 2048": Variant("batch_size=2048"),
    "float32": Variant(precision="float32"),
}
VARIANTS = flags.DEFINE_multi_enum(
    "variant", list(VARIANTS_BY_NAME), list(VARIANTS_BY_NAME), "variants to train"
)
COMPARED = ("as SETTINGS", "initializer_gain 0.5")
"""Variants whose sub-layers the second table compares."""


class Recorder:
    """Computes like a Residual, and appends to `branches` the norm of the sub-layer's output
    relative to its input.
    """

    def __init__(self, residual: Any, branches: list[float]) -> None:
        self._residual = residual
        self._branches = branches
        self.sublayer_input = residual.sublayer_input

    def __call__(self, x: tf.Tensor, y: tf.Tensor, seeds: None) -> tf.Tensor:
        """Returns the residual connection of the sub-layer's output y for x, both [B, T, D]."""
        self._branches.append(float(tf.norm(y) / tf.norm(x)))
        return self._residual(x, y, seeds=seeds)


def layers(run: Run, sources: np.ndarray, targets: np.ndarray) -> dict[str, dict[str, float]]:
    """Returns figures of each sub-layer, by name, without dropout, for sources [B, S] and targets
    [B, T].

    "branch" is the norm of the sub-layer's output, divided by the norm of the residual input to
    which it is added. "gradient" is the norm of the gradients of the sub-layer's kernels.
    """
    branches: list[float] = []
    stacks = [*run.model.encoder, *run.model.decoder]
    residuals = [layer.residuals for layer in stacks]
    for layer in stacks:
        object.__setattr__(
            layer, "residuals", [Recorder(residual, branches) for residual in layer.residuals]
        )
    with tf.GradientTape() as tape:
        loss = (
            smoothed_cross_entropy(run.model(sources, targets), targets, 0.0) / (targets != 0).sum()
        )
    gradients = tape.gradient(loss, [weight.value for weight in run.model.trainable_variables])
    for layer, layer_residuals in zip(stacks, residuals, strict=True):
        object.__setattr__(layer, "residuals", layer_residuals)
    norms: dict[str, float] = {}
    for weight, gradient in zip(run.model.trainable_variables, gradients, strict=True):
        if "/layer_" in weight.path and len(weight.shape) == 2:
            name = "/".join(weight.path.split("/")[1:-1])
            norms[name] = math.hypot(norms.get(name, 0.0), float(tf.norm(gradient)))
    figures = zip(branches, norms.items(), strict=True)
    return {
        name: {"branch": round(branch, 3), "gradient": round(norm, 4)}
        for branch, (name, norm) in figures
    }


def train(name: str, data: str) -> list[dict[str, Any]]:
    """Trains a variant of VARIANTS_BY_NAME. Prints its measurements during the run, and returns
    them.
    """
    variant = VARIANTS_BY_NAME[name]
    lines = []
    hparams = override(override(HParams(), SETTINGS), variant.hparams)
    records = {split: Records(find_shards(data, "text_files", split)) for split in ("train", "dev")}
    dev = list(batches_once(records["dev"], EVAL_TOKENS))
    run: Any
    if variant.pytorch:
        from pytorch_transformer import Model, PyTorchRun

        run = PyTorchRun(lambda: Model(hparams, VOCAB_SIZE, variant.pytorch == "fairseq"), hparams)
    else:
        run = Run(
            hparams, variant.precision, {variant.scaled: variant.factor} if variant.scaled else {}
        )
    steps = TOKENS // hparams.batch_size
    start = time.process_time()
    if isinstance(run, Run):
        lines.append(
            {"step": 0, "layers": layers(run, *dev[len(dev) // 2][:2]), **measured(run, dev)}
        )
    for batch in Pipeline(records["train"], hparams, SEED, EVAL_TOKENS, replicas=1).batches(
        0, steps
    ):
        run.take_step(batch)
        if (batch.step + 1) % (steps // MEASURED_AT) == 0:
            seconds = {"cpu_seconds": round(time.process_time() - start)}
            figures = (
                {"layers": layers(run, *dev[len(dev) // 2][:2])} if isinstance(run, Run) else {}
            )
            lines.append({"step": batch.step + 1, **figures, **measured(run, dev), **seconds})
            print(name, lines[-1], flush=True)
    return lines


def print_table(results: dict[str, list[dict[str, Any]]]) -> None:
    """Prints a Markdown table of the variants in `results`, in the order of VARIANTS_BY_NAME."""
    print(
        "| variant | steps | dev loss | rise with another source | entropy, first to last layer | "
        "CPU minutes |"
    )
    print("| --- | ---: | --- | --- | --- | ---: |")
    for name in VARIANTS_BY_NAME:
        lines = [line for line in results.get(name, []) if line["step"]]
        if lines:
            losses = ", ".join(f"{line['loss']:.2f}" for line in lines)
            rises = ", ".join(f"{line['rise']:.2f}" for line in lines)
            entropies = ", ".join(f"{entropy:.2f}" for entropy in lines[-1]["entropy"])
            minutes = lines[-1]["cpu_seconds"] / 60
            print(
                f"| {name} | {lines[-1]['step']} | {losses} | {rises} | {entropies} | "
                f"{minutes:.1f} |"
            )


def print_layers(results: dict[str, list[dict[str, Any]]], names: Sequence[str]) -> None:
    """Prints a Markdown table of the sub-layers of the variants `names`, before the first step and
    after the last.
    """
    print("| sub-layer | " + " | ".join(f"{name}: branch | gradient" for name in names) + " |")
    print("| --- |" + " ---: | ---: |" * len(names))
    for layer in results[names[0]][0]["layers"]:
        cells = []
        for name in names:
            ends = [results[name][number]["layers"][layer] for number in (0, -1)]
            cells += [f"{ends[0][key]:.2f}, {ends[1][key]:.2f}" for key in ("branch", "gradient")]
        print(f"| {layer} | {' | '.join(cells)} |")


def main(argv: list[str]) -> None:
    """Trains the variants that the results file does not have, and prints the tables."""
    results = Results(RESULTS.value or Path(WORK.value) / "depth.json")
    if not TABLE.value:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        for name in VARIANTS.value:
            if not VARIANTS_BY_NAME[name].pytorch or importlib.util.find_spec("torch"):
                results.measure(name, functools.partial(train, name, DATA.value))
    print_table(results.read())
    if all(name in results.read() for name in COMPARED):
        print_layers(results.read(), COMPARED)


if __name__ == "__main__":
    app.run(main)
