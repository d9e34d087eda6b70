"""Compares the families of the paper's Table 2 on Multi30k EN-DE, with models of about the same number of parameters.

    python benchmarks/table2_small.py --data=FOLDER --work=FOLDER [--families=gnmt_tiny,convs2s_tiny] [--results=FILE]
    python benchmarks/table2_small.py --results=docs/table2_small.json --table [--picture=docs/table2_small.png]

The second command only prints the tables. See docs/table2_small.md. The --data folder holds train, val and
test_2016_flickr as .en.gz and .de.gz files. All families have the same data, vocabulary, batches, steps, precision,
search and score. For each family, the script tries the learning rates in `FACTORS` in short runs, and trains with
the rate of the lowest dev loss, twice with different seeds. It also tries the higher rates in `ALL_FACTORS`. If one of
them has the lowest dev loss of all trials, the script trains the family with that rate, too, once. It writes each run
to the results file, by default results.json in the work folder, and skips runs that this file has. So the same command
continues after an interruption.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

from commands import run, run_trainer
from results import Results
from t2t_repro import registry
from t2t_repro.data.records import Records, find_shards
from t2t_repro.paper import size

DATA = flags.DEFINE_string("data", "", "folder of the .gz files")
WORK = flags.DEFINE_string("work", "", "folder of data, models and outputs")
FAMILIES = flags.DEFINE_list(
    "families",
    [
        "transformer_tiny",
        "transformer_moe_tiny",
        "gnmt_tiny",
        "convs2s_tiny",
        "bytenet_tiny",
        "moe_tiny",
        "deep_att_tiny",
    ],
    "hparams sets",
)
RESULTS = flags.DEFINE_string("results", "", "results file; several processes of this script may share it")
TABLE = flags.DEFINE_bool("table", False, "only print the tables, from the results file")
PICTURE = flags.DEFINE_string("picture", "", "path of a picture of BLEU against training operations")

FACTORS = (0.5, 1.0, 2.0)
"""The tuning trials: factors of the set's learning_rate_constant."""
ALL_FACTORS = (*FACTORS, 4.0, 8.0, 16.0)
"""All trials. Those with the higher rates do not choose the rate; they show whether a higher one would be better."""
TRIAL_STEPS, STEPS, POINTS = 336, 1008, 4
"""Steps of a trial and of a full run, and the number of checkpoints of a full run that are decoded for the curve."""
WARMUP = 0.3
"""Share of a run's steps in which the learning rate rises; afterwards it falls linearly to 0."""
VOCAB_SIZE = 8000
SEEDS = ("1", "2")
SEARCH = "--decode_hparams=alpha=1.0"
PATHS = {
    "transformer": ("1", "1"),
    "transformer_moe": ("1", "1"),
    "gnmt": ("n", "n"),
    "deep_att": ("n", "n"),
    "moe": ("n", "n"),
    "convs2s": ("1", "n / k"),
    "bytenet": ("1", "log_k n"),
}
"""For each model, the columns of the paper's Table 1 up to a constant factor: sequential operations of a layer, and the
maximum path length between two of n positions, with kernels of width k. ConvS2S's is from the text of section 4."""


def text_file(split: str, language: str) -> str:
    """Returns the path of a split's text in the work folder. Unpacks the text if necessary."""
    path = Path(WORK.value) / f"{split}.{language}"
    if not path.exists():
        path.write_bytes(gzip.decompress((Path(DATA.value) / f"{path.name}.gz").read_bytes()))
    return str(path)


def bleu(model: str, split: str, checkpoint: str = "") -> float:
    """Returns the BLEU of a model, or of one of its checkpoints, on a split."""
    output = f"{model}.{split}{Path(checkpoint).suffix}"
    run("decoder", f"--output_dir={model}", f"--checkpoint_path={checkpoint}", SEARCH,
        f"--decode_from_file={text_file(split, 'en')}", f"--decode_to_file={output}")  # fmt: skip
    reference = text_file(split, "de")
    return float(run("bleu", f"--translation={output}", f"--reference={reference}")[0].split()[0])


def cpu_seconds() -> float:
    """Returns the user and system time of all finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(model: str, name: str, factor: float, seed: str, steps: int, points: int) -> float:
    """Trains a family with a learning rate and saves `points` checkpoints. Returns the dev loss after the last step."""
    rate = factor * registry.hparams(name).learning_rate_constant
    overrides = f"learning_rate_constant={rate},learning_rate_warmup_steps={round(WARMUP * steps)},batch_size=2048"
    evaluations = run_trainer(model, "--problem=text_files", f"--hparams_set={name}", f"--data_dir={WORK.value}/data",
        f"--random_seed={seed}", f"--train_steps={steps}", "--eval_decode_lines=0",
        f"--local_eval_frequency={steps // points}", f"--hparams={overrides}",
        "--precision=mixed_bfloat16", "--intra_op_parallelism_threads=1",
        "--inter_op_parallelism_threads=1")  # fmt: skip
    return round(evaluations[-1]["dev_loss"], 3)


def measure_trial(name: str, factor: float) -> float:
    """Returns the dev loss of a family after a short training with a learning rate."""
    return train(f"{WORK.value}/{name}_trial_{factor}", name, factor, "1", TRIAL_STEPS, 1)


def measure(name: str, factor: float, seed: str) -> dict[str, Any]:
    """Trains a family with a learning rate, and scores it.

    Returns its dev loss, BLEU on val and on test_2016_flickr, [step, BLEU on val] of each decoded checkpoint, the CPU
    minutes of training (None if another process did a part of it), and the CPU seconds of decoding the test set.
    """
    model = f"{WORK.value}/{name}_{factor}_seed_{seed}"
    is_new, before = not Path(model).exists(), cpu_seconds()
    loss = train(model, name, factor, seed, STEPS, POINTS)
    training = cpu_seconds() - before
    steps = [STEPS * number // POINTS for number in range(1, POINTS + 1)]
    curve = [(step, bleu(model, "val", f"{model}/model.ckpt-{step}")) for step in steps]
    before = cpu_seconds()
    test = bleu(model, "test_2016_flickr")
    return {
        "loss": loss,
        "val": curve[-1][1],
        "test": test,
        "curve": curve,
        "train_minutes": round(training / 60, 1) if is_new else None,
        "decode_seconds": round(cpu_seconds() - before, 1),
        "flops": step_flops(name),
    }


def step_flops(name: str) -> int:
    """Returns the operations of a training step by products, for the mean lengths of the training pairs."""
    lengths = Records(find_shards(f"{WORK.value}/data", "text_files", "train")).lengths
    source, target = (round(float(side.mean())) for side in lengths)
    return size.step_flops(registry.hparams(name), VOCAB_SIZE, source, target)


def trial_name(name: str, factor: float) -> str:
    """Returns the name of a trial in the results file."""
    return f"{name}, rate x {factor:g}, trial"


def run_name(name: str, factor: float, seed: str) -> str:
    """Returns the name of a full run in the results file."""
    return f"{name}, rate x {factor:g}, seed {seed}"


def best_factor(name: str, runs: dict[str, Any], factors: Sequence[float] = FACTORS) -> float | None:
    """Returns the factor of the trial with the lowest dev loss, or None if a trial is missing."""
    losses = {factor: runs[trial] for factor in factors if (trial := trial_name(name, factor)) in runs}
    return min(factors, key=lambda factor: losses[factor]) if len(losses) == len(factors) else None


def better_factor(name: str, runs: dict[str, Any]) -> float | None:
    """Returns the factor of the trial with the lowest dev loss of all, or None if it is a tuning trial."""
    factor = best_factor(name, runs, ALL_FACTORS)
    return None if factor in FACTORS else factor


def full_runs(name: str, runs: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a family's finished full runs with the best learning rate."""
    factor = best_factor(name, runs)
    names = [] if factor is None else [run_name(name, factor, seed) for seed in SEEDS]
    return [runs[full_run] for full_run in names if full_run in runs]


def print_tables(runs: dict[str, Any]) -> None:
    """Prints tables of the families with their best learning rates, of the trials, and of runs with higher rates."""
    print_families(runs)
    print(f"\n| dev loss | {' | '.join(f'rate x {factor:g}' for factor in ALL_FACTORS)} |")
    print(f"| --- |{' ---: |' * len(ALL_FACTORS)}")
    for name in FAMILIES.value:
        trials = (runs.get(trial_name(name, factor)) for factor in ALL_FACTORS)
        cells = ["not run" if loss is None else f"{loss:.2f}" for loss in trials]
        print(f"| `{name}` | {' | '.join(cells)} |")
    print("\n| family | rate | BLEU val | BLEU test | higher rate | BLEU val | BLEU test |")
    print("| --- |" + " ---: |" * 6)
    for name in FAMILIES.value:
        factors = [factor for factor in (best_factor(name, runs), better_factor(name, runs)) if factor]
        pair = [(factor, runs[run]) for factor in factors if (run := run_name(name, factor, SEEDS[0])) in runs]
        if len(pair) == 2:
            base = registry.hparams(name).learning_rate_constant
            cells = [f"{factor * base:g} | {run['val']:.2f} | {run['test']:.2f}" for factor, run in pair]
            print(f"| `{name}` | {' | '.join(cells)} |")


def print_families(runs: dict[str, Any]) -> None:
    """Prints a table of the families with their best learning rates."""
    columns = ("parameters", "rate", "BLEU val", "BLEU test", "test by seed", "training FLOPs", "CPU minutes")
    print(f"| family | {' | '.join(columns)} | decoding, s | sequential operations | maximum path |")
    print(f"| --- |{' ---: |' * 3} ---: | --- |{' ---: |' * 3} --- | --- |")
    for name in FAMILIES.value:
        factor, seeds = best_factor(name, runs), full_runs(name, runs)
        if factor is None or not seeds:
            continue
        hparams = registry.hparams(name)
        minutes = [run["train_minutes"] for run in seeds if run["train_minutes"] is not None]
        cells = [
            f"{size.parameters(hparams, VOCAB_SIZE):,}",
            f"{factor * hparams.learning_rate_constant:g}",
            *(f"{statistics.mean(run[split] for run in seeds):.2f}" for split in ("val", "test")),
            ", ".join(f"{run['test']:.2f}" for run in seeds),
            f"{STEPS * seeds[0]['flops']:.1e}",
            f"{statistics.mean(minutes):.1f}" if minutes else "-",
            f"{statistics.mean(run['decode_seconds'] for run in seeds):.0f}",
            *PATHS[hparams.model],
        ]
        print(f"| `{name}` | {' | '.join(cells)} |")


def draw(runs: dict[str, Any], path: str) -> None:
    """Draws BLEU on val against training operations for each family, as a mean over seeds; saves the picture."""
    from matplotlib.figure import Figure

    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name in FAMILIES.value:
        if not (seeds := full_runs(name, runs)):
            continue
        steps = [step for step, _ in seeds[0]["curve"]]
        scores = [
            statistics.mean(score for _, score in point) for point in zip(*(run["curve"] for run in seeds), strict=True)
        ]
        axes.plot([step * seeds[0]["flops"] for step in steps], scores, "o-", label=name.removesuffix("_tiny"))
    axes.set(xlabel="training operations (matrix products)", ylabel="BLEU on val", xlim=(0, None), ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)


def main(argv: list[str]) -> None:
    """Tunes and trains all families, and prints the tables."""
    if not (DATA.value and WORK.value) and not (TABLE.value and (RESULTS.value or WORK.value)):
        raise app.UsageError("give --data and --work, or --table and --results")
    results = Results(RESULTS.value or Path(WORK.value) / "results.json")
    if not TABLE.value:
        work, start = Path(WORK.value), time.monotonic()
        work.mkdir(parents=True, exist_ok=True)
        train, dev = (",".join(text_file(split, side) for side in ("en", "de")) for split in ("train", "val"))
        run("datagen", "--problem=text_files", f"--train={train}", f"--dev={dev}", f"--vocab_size={VOCAB_SIZE}",
            f"--data_dir={work}/data")  # fmt: skip
        for name in FAMILIES.value:
            for factor in ALL_FACTORS:
                results.measure(trial_name(name, factor), functools.partial(measure_trial, name, factor))
            best = best_factor(name, results.read())
            assert best
            for seed in SEEDS:
                results.measure(run_name(name, best, seed), functools.partial(measure, name, best, seed))
            if better := better_factor(name, results.read()):
                higher = functools.partial(measure, name, better, SEEDS[0])
                with contextlib.suppress(SystemExit):  # t2t-trainer fails if the loss is not finite at such a rate
                    results.measure(run_name(name, better, SEEDS[0]), higher)
            print(f"{name}: done after {(time.monotonic() - start) / 60:.0f} minutes", flush=True)
    print_tables(results.read())
    if PICTURE.value:
        draw(results.read(), PICTURE.value)


if __name__ == "__main__":
    app.run(main)
