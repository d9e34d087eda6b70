"""Compares t2t-datagen on Apache Beam's local runners with the local program.

    python benchmarks/datagen_beam.py --data=FOLDER --work=FOLDER [--pairs=600000] [--rounds=3]

The text is that of datagen_scale.py. A first run learns a vocabulary, with which all measured runs
encode. The script prints the pairs per CPU second of each program, the CPU time of all its
processes together; the median of the rounds. It also compares all files.
"""

from __future__ import annotations

import filecmp
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from absl import app, flags

import datagen_scale

ROUNDS = flags.DEFINE_integer("rounds", 3, "number of runs of each program")
PROGRAMS = {
    "local, one process": "--num_concurrent_processes=1",
    "Beam, FnApiRunner": "--beam_options=--runner=FnApiRunner",
    "Beam, 1 worker process": (
        "--beam_options=--direct_num_workers=1 --direct_running_mode=multi_processing"
    ),
    "Beam, 2 worker processes": (
        "--beam_options=--direct_num_workers=2 --direct_running_mode=multi_processing"
    ),
}


def datagen(folder: Path, data: str, *more: str) -> float:
    """Runs t2t-datagen. Returns the CPU seconds of its processes."""
    dev = ",".join(
        f"{datagen_scale.DATA.value}/wmt_news/newstest2013.{side}" for side in ("en", "de")
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [
            str(Path(sys.executable).parent / "t2t-datagen"),
            "--problem=text_files",
            f"--data_dir={folder}/{data}",
            f"--train={folder}/train.en,{folder}/train.de",
            f"--dev={dev}",
            "--clean_duplicates",
            "--overwrite",
            *more,
        ],
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: list[str]) -> None:
    """Measures all programs."""
    folder = Path(datagen_scale.WORK.value)
    pairs = datagen_scale.PAIRS.value
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "train.en").exists():
        datagen_scale.make_text(folder)
    datagen(folder, "first", f"--vocab_size={datagen_scale.VOCAB_SIZE.value}")
    (vocabulary,) = (folder / "first").glob("vocab.*")
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(ROUNDS.value):
        for number, (name, options) in enumerate(PROGRAMS.items()):
            seconds[name].append(
                datagen(folder, f"data{number}", f"--vocab_file={vocabulary}", options)
            )
    local = statistics.median(seconds["local, one process"])
    print("| program | pairs per CPU second | CPU time per pair, relative |\n| --- | ---: | ---: |")
    for number, (name, values) in enumerate(seconds.items()):
        files = [
            path.name
            for path in (folder / "data0").iterdir()
            if path.is_file() and path.name[0] != "."
        ]
        different = filecmp.cmpfiles(
            folder / "data0", folder / f"data{number}", files, shallow=False
        )[1:]
        assert different == ([], []), different
        print(
            f"| {name} | {pairs / statistics.median(values):,.0f} | "
            f"{statistics.median(values) / local:.2f} |"
        )


if __name__ == "__main__":
    app.run(main)
