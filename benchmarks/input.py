"""Measures how fast the input pipeline prepares batches for training. See docs/performance.md.

    python benchmarks/input.py --data_dir=FOLDER --problem=NAME [--epochs=5] [--workers=8]
    [--subword_alpha=0.1]

The script prints a Markdown table: target tokens of the batches of all workers, divided by the CPU
seconds (all threads together) in which one process prepares its share. The process is the only one,
or one of --workers processes that train together. Before the measurement, the script prepares one
epoch, which reads the files into memory. The table also has the share of padding in the positions
of all batches.
"""

from __future__ import annotations

import time

from absl import app, flags

from t2t_repro.data.batching import padding_share
from t2t_repro.data.dataset import Data, load_data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.hparam import HParams
from t2t_repro.training.config import RunConfig

DATA_DIR = flags.DEFINE_string("data_dir", None, "folder that t2t-datagen wrote", required=True)
PROBLEM = flags.DEFINE_string("problem", "text_files", "name of the problem")
EPOCHS = flags.DEFINE_integer("epochs", 5, "number of epochs to prepare", lower_bound=1)
WORKERS = flags.DEFINE_integer(
    "workers", 8, "number of processes that train together", lower_bound=1
)
ALPHA = flags.DEFINE_float(
    "subword_alpha", 0.0, "the hparam subword_alpha; 0 for no subword sampling"
)
BATCH_SIZES = (4096, 25_000)


def measure(data: Data, batch_size: int, workers: int) -> tuple[float, float]:
    """Returns the target tokens of all workers' batches divided by the CPU seconds of the first
    worker, and padding.
    """
    hparams = HParams(batch_size=batch_size, subword_alpha=ALPHA.value)
    max_tokens = RunConfig().max_tokens_per_replica
    pipeline = Pipeline(data.records["train"], hparams, 1, max_tokens, workers, data.vocabulary)
    steps = pipeline.steps_per_epoch
    for _ in pipeline.batches(0, steps, range(1)):
        pass
    start = time.process_time()
    targets = 0
    tokens = 0
    positions = 0
    for batch in pipeline.batches(steps, (1 + EPOCHS.value) * steps, range(1)):
        targets += batch.target_tokens
        tokens += batch.source_tokens + batch.target_tokens
        positions += batch.positions
    return targets / (time.process_time() - start), padding_share(tokens, positions)


def main(argv: list[str]) -> None:
    """Prints target tokens per CPU second and padding for each batch size."""
    data = load_data(DATA_DIR.value, PROBLEM.value)
    records = data.records["train"]
    print(f"{len(records):,} pairs, {records.lengths[1].mean():.1f} target tokens a pair\n")
    print(
        f"| batch_size | one process | one of {WORKERS.value} workers | padding |\n| ---: | ---: "
        "| ---: | ---: |"
    )
    for batch_size in BATCH_SIZES:
        speeds, paddings = zip(
            *(measure(data, batch_size, workers) for workers in (1, WORKERS.value)), strict=True
        )
        print(
            f"| {batch_size:,} | {' | '.join(f'{speed / 1e6:.2f} M' for speed in speeds)} | "
            f"{paddings[0]:.1%} |"
        )


if __name__ == "__main__":
    app.run(main)
