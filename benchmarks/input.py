"""Measures how fast the input pipeline prepares batches for training. See docs/performance.md.

    python benchmarks/input.py --data_dir=FOLDER --problem=NAME [--epochs=5] [--workers=8]

The script prints a Markdown table: target tokens of the batches of all workers, divided by the CPU seconds (all threads
together) in which one process prepares its share. The process is the only one, or one of --workers processes that train
together. Before the measurement, the script prepares one epoch, which reads the files into memory.
"""

from __future__ import annotations

import time

from absl import app, flags

from t2t_repro.data.dataset import load_data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.records import Records
from t2t_repro.hparam import HParams
from t2t_repro.training.config import RunConfig

DATA_DIR = flags.DEFINE_string("data_dir", None, "folder that t2t-datagen wrote", required=True)
PROBLEM = flags.DEFINE_string("problem", "text_files", "name of the problem")
EPOCHS = flags.DEFINE_integer("epochs", 5, "number of epochs to prepare", lower_bound=1)
WORKERS = flags.DEFINE_integer("workers", 8, "number of processes that train together", lower_bound=1)
BATCH_SIZES = (4096, 25_000)


def tokens_per_second(records: Records, batch_size: int, workers: int) -> float:
    """Returns the target tokens of all workers' batches, divided by the CPU seconds of the first worker."""
    pipeline = Pipeline(records, HParams(batch_size=batch_size), 1, RunConfig().max_tokens_per_replica, workers)
    steps = pipeline.steps_per_epoch
    for _ in pipeline.batches(0, steps, range(1)):
        pass
    start = time.process_time()
    tokens = sum(batch.target_tokens for batch in pipeline.batches(steps, (1 + EPOCHS.value) * steps, range(1)))
    return tokens / (time.process_time() - start)


def main(argv: list[str]) -> None:
    """Prints target tokens per CPU second for each batch size."""
    records = load_data(DATA_DIR.value, PROBLEM.value).records["train"]
    print(f"{len(records):,} pairs, {records.lengths[1].mean():.1f} target tokens a pair\n")
    print(f"| batch_size | one process | one of {WORKERS.value} workers |\n| ---: | ---: | ---: |")
    for batch_size in BATCH_SIZES:
        speeds = [tokens_per_second(records, batch_size, workers) for workers in (1, WORKERS.value)]
        print(f"| {batch_size:,} | {' | '.join(f'{speed / 1e6:.1f} M' for speed in speeds)} |")


if __name__ == "__main__":
    app.run(main)
