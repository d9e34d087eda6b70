"""Measures how long writing a checkpoint holds up training. See docs/performance.md.

    python benchmarks/checkpoint_pause.py --folder=FOLDER [--vocab_size=37000] [--repetitions=5]

The script makes the paper's base model and Adam's variables, and writes them as checkpoints into
FOLDER, which must not exist. It prints the wall seconds and CPU seconds of each write, which
includes waiting for the disk, and then deletes FOLDER.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import tensorflow as tf
from absl import app, flags

from t2t_repro import registry
from t2t_repro.checkpoints.checkpoint_files import write_checkpoint
from t2t_repro.models.model import make_model, parameter_count

FOLDER = flags.DEFINE_string("folder", None, "folder for the checkpoints", required=True)
VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size", 37_000, "number of entries in the vocabulary", lower_bound=1
)
REPETITIONS = flags.DEFINE_integer("repetitions", 5, "number of checkpoints", lower_bound=1)


def main(argv: list[str]) -> None:
    """Prints a line for each checkpoint."""
    folder = Path(FOLDER.value)
    folder.mkdir(parents=True)
    model = make_model(registry.hparams("transformer_base"), VOCAB_SIZE.value)
    variables = {
        f"weights/{variable.path}": variable.value for variable in model.trainable_variables
    }
    for number in range(2):  # Adam's averages of the gradient and of its square
        adam = {
            f"adam{number}/{variable.path}": variable.value
            for variable in model.trainable_variables
        }
        variables |= {
            name: tf.Variable(tf.random.normal(value.shape)) for name, value in adam.items()
        }
    checkpoint = tf.train.Checkpoint(**variables)
    print(f"{parameter_count(model):,} weights")
    for step in range(REPETITIONS.value):
        wall_start = time.monotonic()
        cpu_start = time.process_time()
        write_checkpoint(checkpoint, folder, step)
        wall = time.monotonic() - wall_start
        cpu = time.process_time() - cpu_start
        size = sum(file.stat().st_size for file in folder.glob(f"model.ckpt-{step}.*"))
        print(f"{size / 1e6:,.0f} MB: {wall:.2f} s, {cpu:.2f} CPU s")
    shutil.rmtree(folder)


if __name__ == "__main__":
    app.run(main)
