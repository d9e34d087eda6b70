"""Measures how long the programs take to start. See docs/performance.md.

    python benchmarks/startup.py --output_dir=M [--output_dir=M2 ...] [--repetitions=5]

The script prints a Markdown table of wall seconds and CPU seconds, each as median (lowest to
highest):

- t2t-decoder with one sentence, for each model folder and engine: wall seconds until the first line
  of output, and CPU seconds of the whole process.
- --help of each program.

The repetitions of all commands alternate. The first run of each command, which may convert a model
for CTranslate2, does not count. Each process uses one processor core.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from absl import app, flags

from spread import spread
from t2t_repro.decoding.engine import ENGINES

OUTPUT_DIR = flags.DEFINE_multi_string("output_dir", [], "model folder")
REPETITIONS = flags.DEFINE_integer(
    "repetitions", 5, "number of runs of each command", lower_bound=1
)
DECODE_HPARAMS = flags.DEFINE_string("decode_hparams", "", "--decode_hparams of t2t-decoder")
SENTENCE = b"A dog runs.\n"


def cpu_seconds() -> float:
    """Returns the CPU seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(command: list[str]) -> tuple[float, float]:
    """Runs a command. Returns wall seconds until the first line of its output, and CPU seconds
    until its end.
    """
    wall_start = time.monotonic()
    cpu_start = cpu_seconds()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(SENTENCE)
        process.stdin.close()
        process.stdout.readline()
        wall = time.monotonic() - wall_start
        process.stdout.read()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return wall, cpu_seconds() - cpu_start


def main(argv: list[str]) -> None:
    """Prints the table."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    programs = sorted(Path(sys.executable).parent.glob("t2t-*"))
    decoder = [
        str(Path(sys.executable).parent / "t2t-decoder"),
        f"--decode_hparams={DECODE_HPARAMS.value}",
    ]
    commands = {
        f"t2t-decoder, {Path(folder).name}, {engine}": [
            *decoder,
            f"--output_dir={folder}",
            f"--engine={engine}",
        ]
        for folder in OUTPUT_DIR.value
        for engine in ENGINES.names()
    }
    commands |= {f"{program.name} --help": [str(program), "--help"] for program in programs}
    times = defaultdict[str, list[tuple[float, float]]](list)
    for repetition in range(REPETITIONS.value + 1):
        for name, command in commands.items():
            run = measure(command)
            times[name] += [run] if repetition else []
    print("| command | first line, wall s | CPU s |\n| --- | ---: | ---: |")
    for name, measured in times.items():
        wall, cpu = zip(*measured, strict=True)
        print(f"| {name} | {spread(wall, 2)} | {spread(cpu, 2)} |")


if __name__ == "__main__":
    app.run(main)
