"""Trains recurrent models on Multi30k for two epochs, to see why some learn slowly, beside models
in PyTorch.

    python benchmarks/recurrent.py --data=D --work=FOLDER [--variant=NAME ...] [--results=FILE]
    python benchmarks/recurrent.py --results=docs/recurrent.json --table

See docs/rivals.md. D is a data directory of t2t-datagen: problem text_files, a vocabulary of 8,000,
Multi30k EN-DE. The script writes its measurements to the results file, by default recurrent.json in
the work folder, and skips variants that the file has. It needs `pip install ".[benchmarks]"`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import torch._dynamo  # isort: skip  # noqa: F401, before TensorFlow; otherwise their copies of LLVM end the process

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import learning
import pytorch_gnmt
import pytorch_lstm
from pytorch_transformer import PyTorchRun
from results import Results
from t2t_repro import registry
from t2t_repro.data.pipeline import Pipeline, batches_once
from t2t_repro.data.records import Records, find_shards
from t2t_repro.hparam import HParams, override
from t2t_repro.models.model import make_model

SETTINGS = (
    "batch_size=2048,learning_rate_schedule=constant*linear_warmup,learning_rate_constant=0.005,"
    "learning_rate_warmup_steps=300,layer_prepostprocess_dropout=0.2,initializer_gain=1.0"
)
PLAIN = "multiply_embedding_mode=none,output_factor=1"
FACTOR = "multiply_embedding_mode=sqrt_depth,output_factor=1"
BOTH = "multiply_embedding_mode=sqrt_depth,output_factor=4"
ADDITIVE = "attention_mechanism=bahdanau"
STEPS = 448
MEASURED_EVERY = 112


class Variant(NamedTuple):
    """A training run."""

    hparams_set: str
    hparams: str = ""
    """Hparams in which the run differs from SETTINGS."""
    pytorch: str = ""
    """"plain" for `pytorch_lstm.py`; "ours" or "default" for `pytorch_gnmt.py` with our initial
    weights or PyTorch's; empty for our model.
    """
    scaled: tuple[str, ...] = ()
    """Parts of the names of the kernels that are multiplied by the square root of the width before
    training.
    """


FIRST_KERNELS = (
    "layer_0_forward/input_kernel",
    "layer_0_backward/input_kernel",
    "decoder/layer_0/input_kernel",
)
VARIANTS_BY_NAME = {
    "GNMT": Variant("gnmt_tiny", PLAIN),
    "GNMT in PyTorch, our initial weights": Variant("gnmt_tiny", PLAIN, pytorch="ours"),
    "GNMT in PyTorch, its initial weights": Variant("gnmt_tiny", PLAIN, pytorch="default"),
    "GNMT, initializer_gain=4": Variant("gnmt_tiny", f"{PLAIN},initializer_gain=4"),
    "GNMT, larger kernels above the embeddings": Variant("gnmt_tiny", PLAIN, scaled=FIRST_KERNELS),
    "GNMT with the factor": Variant("gnmt_tiny", FACTOR),
    "GNMT with both factors": Variant("gnmt_tiny", BOTH),
    "plain LSTM in PyTorch": Variant("gnmt_tiny", PLAIN, pytorch="plain"),
    "plain LSTM in PyTorch with the factor": Variant("gnmt_tiny", FACTOR, pytorch="plain"),
    "MoE": Variant("moe_tiny", f"{PLAIN},{ADDITIVE}"),
    "MoE with the factor": Variant("moe_tiny", f"{FACTOR},{ADDITIVE}"),
    "MoE with both factors": Variant("moe_tiny", f"{BOTH},{ADDITIVE}"),
    "Deep-Att": Variant("deep_att_tiny", f"{PLAIN},sums_activation=linear"),
    "Deep-Att with the factor": Variant("deep_att_tiny", f"{FACTOR},sums_activation=linear"),
    "Deep-Att with the factor and tanh": Variant("deep_att_tiny", FACTOR),
    "Deep-Att with both factors and tanh": Variant("deep_att_tiny", BOTH),
}
DATA = flags.DEFINE_string("data", "", "data directory of t2t-datagen")
WORK = flags.DEFINE_string("work", "", "folder of the results file")
RESULTS = flags.DEFINE_string("results", "", "results file")
TABLE = flags.DEFINE_bool("table", False, "only print the table, from the results file")
VARIANTS = flags.DEFINE_multi_enum(
    "variant", list(VARIANTS_BY_NAME), list(VARIANTS_BY_NAME), "variants to train"
)


def pytorch_model(variant: Variant, hparams: HParams) -> Any:
    """Returns the PyTorch model of a variant."""
    if variant.pytorch == "plain":
        return pytorch_lstm.Model(hparams, learning.VOCAB_SIZE)
    model = pytorch_gnmt.Model(hparams, learning.VOCAB_SIZE)
    if variant.pytorch == "ours":
        keras.utils.set_random_seed(learning.SEED)
        weights = make_model(hparams, learning.VOCAB_SIZE).trainable_variables
        model.copy({weight.path: weight.numpy() for weight in weights})
    return model


def train(name: str, data: str) -> list[dict[str, Any]]:
    """Trains a variant of VARIANTS_BY_NAME. Prints its measurements during the run, and returns
    them.
    """
    variant = VARIANTS_BY_NAME[name]
    lines = []
    hparams = override(override(registry.hparams(variant.hparams_set), SETTINGS), variant.hparams)
    records = {split: Records(find_shards(data, "text_files", split)) for split in ("train", "dev")}
    dev = list(batches_once(records["dev"], learning.EVAL_TOKENS))
    run: Any
    if variant.pytorch:
        run = PyTorchRun(functools.partial(pytorch_model, variant, hparams), hparams)
    else:
        run = learning.Run(
            hparams, "mixed_bfloat16", dict.fromkeys(variant.scaled, hparams.hidden_size**0.5)
        )
    norms: list[float] = []
    for batch in Pipeline(
        records["train"], hparams, learning.SEED, learning.EVAL_TOKENS, replicas=1
    ).batches(0, STEPS):
        run.take_step(batch)
        norms.append(run.gradient_norm)
        if (batch.step + 1) % MEASURED_EVERY == 0:
            norm = {
                "gradient_norm": round(float(np.mean(norms[-MEASURED_EVERY:])), 2),
                "largest": round(max(norms), 2),
            }
            lines.append({"step": batch.step + 1, **learning.measured(run, dev), **norm})
            print(name, lines[-1], flush=True)
    return lines


def print_table(results: dict[str, list[dict[str, Any]]]) -> None:
    """Prints a Markdown table of the variants in `results`, in the order of VARIANTS_BY_NAME."""
    steps = ", ".join(str(step) for step in range(MEASURED_EVERY, STEPS + 1, MEASURED_EVERY))
    print(f"| variant | dev loss after {steps} steps | rise | entropy | gradient norm, largest |")
    print("| --- | --- | ---: | --- | --- |")
    for name, lines in ((name, results[name]) for name in VARIANTS_BY_NAME if name in results):
        losses = ", ".join(f"{line['loss']:.2f}" for line in lines)
        entropy = ", ".join(f"{entropy:.2f}" for entropy in lines[-1]["entropy"])
        norms = f"{lines[-1]['gradient_norm']:.2f}, {lines[-1]['largest']:.1f}"
        print(f"| {name} | {losses} | {lines[-1]['rise']:.2f} | {entropy} | {norms} |")


def main(argv: list[str]) -> None:
    """Trains the variants that the results file does not have, and prints the table."""
    results = Results(RESULTS.value or Path(WORK.value) / "recurrent.json")
    if not TABLE.value:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        for name in VARIANTS.value:
            results.measure(name, functools.partial(train, name, DATA.value))
    print_table(results.read())


if __name__ == "__main__":
    app.run(main)
