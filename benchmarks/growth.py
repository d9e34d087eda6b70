"""Measures how cost grows with the size of model, sentences and corpus, and draws it. See
docs/performance.md.

    python benchmarks/growth.py --work=FOLDER [--results=docs/performance_growth.json]
    [--pictures=docs]

All figures are CPU seconds, so the script also works on a busy machine. It needs no data: models
have random weights, and sentences have random tokens or words. The script writes each measurement
to the results file and skips those that the file has. So the same command continues after an
interruption, and with the complete file it only draws. The script leaves its temporary data in
FOLDER.
"""

from __future__ import annotations

import functools
import os
import resource
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import matplotlib
import numpy as np
import tensorflow as tf
from absl import app, flags

from commands import run
from results import Results
from t2t_repro import devices
from t2t_repro.data import batching
from t2t_repro.data.pipeline import MicroBatch, Pipeline
from t2t_repro.data.records import Records, chunk, find_shards, shard_path, write_chunks
from t2t_repro.decoding.search import Sources, generate_outputs
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models import variants
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import TrainStep

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

WORK = flags.DEFINE_string("work", None, "folder for temporary data", required=True)
RESULTS = flags.DEFINE_string("results", "docs/performance_growth.json", "results file")
PICTURES = flags.DEFINE_string("pictures", "docs", "folder of the pictures")

VOCAB_SIZE = 8000
TOKENS = 1024
SENTENCES = 32


def repeat(work: Callable[[], Any], factor: float = 1.0, repetitions: int = 5) -> list[float]:
    """Returns the CPU seconds of each call of `work`, with its child processes, times `factor`.

    Calls `work` once more than `repetitions`. The first call does not count.
    """
    times = [0.0]
    for _ in range(repetitions + 1):
        work()
        usages = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        times.append(sum(usage.ru_utime + usage.ru_stime for usage in usages))
    return [float(f"{factor * seconds:.4g}") for seconds in np.diff(times)[1:]]


def sentences(count: int, length: int) -> np.ndarray:
    """Returns random token ids, int32 [count, length]. Each row ends with the end token."""
    ids = np.random.default_rng(length).integers(3, VOCAB_SIZE, (count, length)).astype(np.int32)
    ids[:, -1] = 1
    return ids


def shape(width: int = 128, depth: int = 2) -> HParams:
    """Returns the hparams of a model with heads of width 32."""
    return HParams(
        hidden_size=width, filter_size=4 * width, num_heads=width // 32, num_hidden_layers=depth
    )


def time_training(length: int = 16, **size: int) -> list[float]:
    """Returns microseconds of a training step for each target token. A step has `TOKENS` tokens on
    each side.
    """
    hparams = shape(**size)
    model = variants.transformer(hparams, VOCAB_SIZE)
    step = TrainStep(model, make_optimizer(hparams), hparams, tf.distribute.get_strategy())
    ids = sentences(TOKENS // length, length)
    micro_batches = [MicroBatch(ids, ids, np.arange(len(ids)))]
    step(micro_batches, TOKENS, (1, 0))
    return repeat(lambda: step.read(step(micro_batches, TOKENS, (1, 1))), 1e6 / TOKENS)


def time_decoding(length: int = 16, beam_size: int = 4) -> list[float]:
    """Returns milliseconds for each of `SENTENCES` sentences. Sources and outputs have the same
    length.
    """
    model = variants.transformer(shape(), VOCAB_SIZE)
    params = DecodeHParams(beam_size=beam_size, extra_length=0)
    search = tf.function(
        lambda ids: generate_outputs(model, params, Sources(inputs=ids)).ids, autograph=False
    )
    ids = tf.constant(sentences(SENTENCES, length))
    assert search(ids).shape[2] == length
    return repeat(lambda: search(ids).numpy(), 1e3 / SENTENCES)


def time_datagen(pairs: int) -> list[float]:
    """Returns seconds of t2t-datagen for random text with 15 words a sentence. Some words are
    frequent, others rare.
    """
    draw = np.random.default_rng(1)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    words = [draw.choice(letters, size).tobytes().decode() for size in draw.integers(2, 10, 20_000)]
    folder = Path(WORK.value) / f"text{pairs}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", pairs), ("dev", 100)):
        for side in ("en", "de"):
            lines = np.minimum(draw.zipf(1.2, (count, 15)), len(words)) - 1
            text = "\n".join(" ".join(words[word] for word in line) for line in lines.tolist())
            (folder / f"{name}.{side}").write_text(f"{text}\n")
    options = [f"--{name}={folder}/{name}.en,{folder}/{name}.de" for name in ("train", "dev")]
    options += [
        f"--data_dir={folder}/data",
        "--problem=text_files",
        "--vocab_size=1000",
        "--overwrite",
    ]
    return repeat(lambda: run("datagen", *options, "--num_concurrent_processes=1"), repetitions=3)


def time_plan(pairs: int) -> list[float]:
    """Returns seconds of planning an epoch."""
    lengths = np.random.default_rng(1).integers(4, 40, (2, pairs), np.int32)
    return repeat(lambda: batching.plan(lengths, 4096, 256, 1, 0))


def time_resume(pairs: int) -> list[float]:
    """Returns seconds in which a run that resumes after 2.5 epochs opens the records and prepares
    its first batches.
    """
    rows = enumerate(sentences(10_000, 40).tolist())
    examples = [(row[: 4 + number % 37], row[: 4 + number % 31]) for number, row in rows]
    path = shard_path(WORK.value, f"records{pairs}", "train", 0, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    contents, index = chunk(examples)
    write_chunks(path, ((contents, index.copy()) for _ in range(pairs // len(examples))))

    def resume() -> None:
        records = Records(find_shards(WORK.value, f"records{pairs}", "train"))
        pipeline = Pipeline(records, HParams(batch_size=4096), 1, 4096, 1)
        next(pipeline.batches(int(2.5 * pipeline.steps_per_epoch), 3 * pipeline.steps_per_epoch))

    return repeat(resume)


@dataclass(frozen=True)
class Panel:
    """A panel of a picture: its title, the name and the values of its x axis, and how to measure a
    value.
    """

    title: str
    label: str
    sizes: tuple[int, ...]
    measure: Callable[[int], list[float]]


STEP = "training: µs a target token"
SEARCH = "decoding: ms a sentence"
ALL_PANELS = {
    "training": [
        Panel(
            STEP, "width d (d_ff = 4d)", (64, 128, 256, 512), lambda size: time_training(width=size)
        ),
        Panel(STEP, "layers in each stack", (1, 2, 4, 8), lambda size: time_training(depth=size)),
        Panel(STEP, "tokens a sentence", (4, 16, 64, 256), time_training),
    ],
    "decoding": [
        Panel(SEARCH, "tokens of source and of output", (4, 16, 64), time_decoding),
        Panel(SEARCH, "beam size", (1, 4, 16), lambda size: time_decoding(beam_size=size)),
    ],
    "data": [
        Panel("t2t-datagen: s", "pairs", (1_000, 10_000, 100_000), time_datagen),
        Panel("planning an epoch: s", "pairs", (10_000, 100_000, 1_000_000, 10_000_000), time_plan),
        Panel(
            "resuming, until the first batch: s", "pairs", (10_000, 100_000, 1_000_000), time_resume
        ),
    ],
}
"""The panels of each picture, by the picture's name."""


def draw_panel(axis: Any, panel: Panel, results: Results) -> None:
    """Measures what is missing and draws a panel.

    A point is a median, its bar shows the lowest and highest value. The dashed line is proportional
    to x.
    """
    times = []
    for size in panel.sizes:
        values = results.measure(
            f"{panel.title}; {panel.label}: {size}", functools.partial(panel.measure, size)
        )
        times.append(statistics.median(values))
        axis.errorbar(
            size,
            times[-1],
            [[times[-1] - min(values)], [max(values) - times[-1]]],
            fmt="oC0",
            capsize=3,
        )
        label = f"{float(f'{times[-1]:.3g}'):,g}"
        axis.annotate(
            label, (size, times[-1]), (-5, 4), textcoords="offset points", ha="right", fontsize=9
        )
    proportional = [times[-1] * size / panel.sizes[-1] for size in panel.sizes]
    axis.add_artist(Line2D(panel.sizes, proportional, color="gray", linestyle="--", linewidth=1))
    axis.plot(panel.sizes, times, "C0")
    axis.set(title=panel.title, xlabel=panel.label, xscale="log", yscale="log")
    axis.set_xticks(panel.sizes, map(EngFormatter(sep=""), panel.sizes))
    axis.minorticks_off()
    axis.margins(0.3, 0.2)
    axis.grid(alpha=0.3)


def main(argv: list[str]) -> None:
    """Measures what is missing and draws the pictures."""
    devices.set_threads(1, 1)
    results = Results(RESULTS.value)
    for name, panels in ALL_PANELS.items():
        size = (3.6 * len(panels), 3.3)
        figure, axes = pyplot.subplots(
            1, len(panels), sharey=name != "data", figsize=size, layout="constrained"
        )
        for axis, panel in zip(axes, panels, strict=True):
            draw_panel(axis, panel, results)
        figure.savefig(Path(PICTURES.value) / f"performance_{name}.png", dpi=90)


if __name__ == "__main__":
    app.run(main)
