"""Measures t2t-datagen on millions of sentence pairs, and the planning of the training steps for 36
million pairs.

    python benchmarks/datagen_scale.py --data=FOLDER --work=FOLDER [--pairs=4500000] [--processes=0]
        [--vocab_size=37000]

The script prints the time and the peak memory of both. The --data folder holds the folder wmt_news
with news test sets. The script copies the pairs of these test sets until it has --pairs pairs. In
each copy, it replaces one word on each side by a word of another pair and appends a number. The
speed of t2t-datagen is --pairs divided by the seconds from the end of vocabulary learning to the
end of the program: seconds of wall time, and CPU seconds of all its processes. Its memory is the
resident memory of t2t-datagen and its child processes, sampled ten times per second.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from absl import app, flags

from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data.batching import plan
from t2t_repro.files.output_files import UNFINISHED
from t2t_repro.files.textfile import read_lines

DATA = flags.DEFINE_string("data", None, "folder that holds wmt_news", required=True)
WORK = flags.DEFINE_string("work", None, "folder to write to", required=True)
PAIRS = flags.DEFINE_integer("pairs", 4_500_000, "number of pairs")
VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 37_000, "number of subwords in the vocabulary")
PROCESSES = flags.DEFINE_integer(
    "processes", 0, "number of processes of t2t-datagen; 0: one per core"
)
PLANNED = 36_000_000
NEWS = (
    "news-test2008",
    "newstest2009",
    "newstest2010",
    "newstest2011",
    "newstest2012",
    "newstest2015.en-de",
    "newstest2016.en-de",
    "newstest2017.en-de",
    "newstest2018.en-de",
)


def make_text(folder: Path) -> None:
    """Writes --pairs changed copies of the news test sets' sentence pairs to train.en and train.de
    in `folder`.
    """
    real = [
        [text.split(" ") for text in pair]
        for name in NEWS
        for pair in zip(
            *(read_lines(f"{DATA.value}/wmt_news/{name}.{side}") for side in ("en", "de")),
            strict=True,
        )
    ]
    draw = random.Random(2017).randrange
    with open(folder / "train.en", "w") as english, open(folder / "train.de", "w") as german:
        for number in range(PAIRS.value):
            other = real[draw(len(real))]
            for side, file in enumerate((english, german)):
                words = list(real[number % len(real)][side])
                words[draw(len(words))] = other[side][draw(len(other[side]))]
                file.write(f"{' '.join(words)} {number % 100_003}\n")


def processes(process: int) -> Iterator[Path]:
    """Yields the folders in /proc of the process with id `process` and of its descendants."""
    waiting = [process]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):  # a process may end at any time
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
            yield folder


def resident(process: int) -> int:
    """Returns the resident memory, in bytes, of a process and its descendants."""
    pages = 0
    for folder in processes(process):
        with contextlib.suppress(OSError):
            pages += int((folder / "statm").read_text().split()[1])
    return pages * resource.getpagesize()


def cpu_seconds(process: int) -> float:
    """Returns the CPU seconds that a process and its descendants have used."""
    ticks = 0
    for folder in processes(process):
        with contextlib.suppress(OSError):
            # Fields 14 to 17 are the user and system time of the process, and of its children that
            # have ended.
            ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def time_datagen(folder: Path) -> None:
    """Runs t2t-datagen on train.en and train.de in `folder`; prints the time and peak memory of
    t2t-datagen.
    """
    sides = [f"{DATA.value}/wmt_news/newstest2013.{side}" for side in ("en", "de")]
    command = [
        str(Path(sys.executable).parent / "t2t-datagen"),
        "--problem=text_files",
        f"--data_dir={folder}/data",
        f"--train={folder}/train.en,{folder}/train.de",
        f"--dev={','.join(sides)}",
        f"--vocab_size={VOCAB_SIZE.value}",
        f"--num_concurrent_processes={PROCESSES.value}",
    ]
    start = time.monotonic()
    process = subprocess.Popen(command)
    peak = 0
    learned = 0.0
    learned_cpu = 0.0
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        if not learned and any((folder / "data" / UNFINISHED).glob("vocab.*")):
            learned = time.monotonic()
            learned_cpu = cpu_seconds(process.pid)
        time.sleep(0.1)
    if process.returncode:
        sys.exit(process.returncode)
    wall = time.monotonic() - learned
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime - learned_cpu
    print(
        f"{PAIRS.value:,} pairs: {(learned - start):.0f} s to read them and learn the vocabulary, "
        f"then {wall:.0f} s: {PAIRS.value / wall:,.0f} pairs/s, {PAIRS.value / cpu:,.0f} pairs "
        f"per CPU second; peak memory {peak / 2**30:.2f} GiB"
    )


def time_plan() -> None:
    """Prints the time and peak memory of planning an epoch of 36 million pairs, whose lengths are
    drawn at random.

    Then prints them for five corpora with weights.
    """
    draws = np.random.default_rng(1)
    lengths = np.empty((2, PLANNED), np.int32)
    for part in np.split(lengths, 100, axis=1):
        part[0] = np.clip(draws.gamma(2.2, 13.0, part.shape[1]), 1, 250)
        part[1] = np.clip(part[0] * draws.normal(1.1, 0.15, part.shape[1]), 1, 250)
    ends = (0, 20_000_000, 30_000_000, 33_000_000, 35_000_000, PLANNED)
    weighted = [
        StoredCorpus("", 2 if start else 1, "", start, stop)
        for start, stop in itertools.pairwise(ends)
    ]
    for corpora, name in (((), "without weights"), (weighted, "with weights")):
        start = time.process_time()
        steps = plan(
            lengths, batch_size=25_000, max_length=256, seed=1, epoch=3, corpora=corpora
        ).steps
        print(
            f"the plan of {PLANNED:,} pairs, {steps:,} steps, {name}: "
            f"{time.process_time() - start:.1f} CPU s; peak memory "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"
        )


def main(argv: list[str]) -> None:
    """Measures the planning of an epoch, then t2t-datagen."""
    time_plan()
    folder = Path(WORK.value)
    folder.mkdir(parents=True, exist_ok=True)
    make_text(folder)
    time_datagen(folder)


if __name__ == "__main__":
    app.run(main)
