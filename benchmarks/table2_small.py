r"""Compares the families of the paper's Table 2 on Multi30k EN-DE, with models of about the same
number of parameters.

    python benchmarks/table2_small.py --data=FOLDER --work=FOLDER [--families=gnmt_tiny,...] \
        [--results=FILE]
    python benchmarks/table2_small.py --results=docs/table2_small.json --table \
        [--picture=docs/table2_small.png]

The second command only prints the tables. See docs/table2_small.md. The --data folder holds train,
val and test_2016_flickr as .en.gz and .de.gz files. All families have the same data, vocabulary,
batches, schedule, precision, search and score, and the same number of trials: short runs for the
learning rate and the initial gain (`RATES`, `GAINS`), then a full run for each dropout rate
(`DROPOUTS`). A full run ends when the dev loss has not fallen for `PATIENCE` epochs. The best
dropout rate gets a second full run with another seed. The script writes each run to the results
file, by default results.json in the work folder, and skips runs that this file has. So the same
command continues after an interruption.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import math
import resource
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
RESULTS = flags.DEFINE_string(
    "results", "", "results file; several processes of this script may share it"
)
TABLE = flags.DEFINE_bool("table", False, "only print the tables, from the results file")
PICTURE = flags.DEFINE_string(
    "picture", "", "path of a picture of BLEU against training operations"
)

RATES = (0.0025, 0.005, 0.01, 0.02)
GAINS = (0.25, 1.0, 4.0)
DROPOUTS = (0.2, 0.3)
"""The values that are tried of the highest learning rate, of initializer_gain and of
layer_prepostprocess_dropout.
"""
EPOCH = 224
TRIAL_EPOCHS = 4
EPOCHS = 40
PATIENCE = 3
"""Steps of an epoch; epochs of a short trial; largest number of epochs of a full run; number of
epochs without a lower dev loss that end it.
"""
WARMUP = 400
"""Number of steps in which the learning rate rises. Afterwards it falls with the inverse square
root of the step.
"""
CHECKPOINTS = 5
"""Number of last checkpoints, one of each epoch, whose average is scored."""
THRESHOLD = 30.0
"""BLEU of an epoch's checkpoint on the dev split, as t2t-trainer computes it (alpha 0.6), for which
the table has the number of operations.
"""
VOCAB_SIZE = 8000
SEEDS = ("1", "2")
SEARCH = "--decode_hparams=alpha=1.0"
PATHS = {
    **dict.fromkeys(("transformer", "transformer_moe"), ("1", "1")),
    **dict.fromkeys(("gnmt", "deep_att", "moe"), ("n", "n")),
    "convs2s": ("1", "n / k"),
    "bytenet": ("1", "log_k n"),
}
"""For each model, the columns of the paper's Table 1 up to a constant factor: sequential operations
of a layer, and the maximum path length between two of n positions, with kernels of width k.
ConvS2S's is from the text of section 4.
"""


def text_file(split: str, language: str) -> str:
    """Returns the path of a split's text in the work folder. Unpacks the text if necessary."""
    path = Path(WORK.value) / f"{split}.{language}"
    if not path.exists():
        path.write_bytes(gzip.decompress((Path(DATA.value) / f"{path.name}.gz").read_bytes()))
    return str(path)


class Settings(NamedTuple):
    """The tuned values. The defaults are those of the first trials."""

    rate: float = 0.005
    gain: float = 1.0
    dropout: float = 0.2


Measured = Callable[[str, Callable[[], Any]], Any]
"""A function that returns the measurements of the run of a name. The second argument, called, takes
the run.
"""


class Best(NamedTuple):
    """The best settings of a family, and its full runs with them, one for each seed."""

    settings: Settings
    runs: list[dict[str, Any]]


def bleu(model: str, split: str) -> float:
    """Returns the BLEU of a model's average on a split."""
    output = f"{model}.{split}"
    run("decoder", f"--output_dir={model}", SEARCH, f"--decode_from_file={text_file(split, 'en')}",
        f"--decode_to_file={output}")  # fmt: skip
    reference = text_file(split, "de")
    return float(run("bleu", f"--translation={output}", f"--reference={reference}")[0].split()[0])


def cpu_seconds() -> float:
    """Returns the user and system time of all finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def overrides(settings: Settings) -> str:
    """Returns the hparams in which a run differs from its hparams set."""
    return (
        "batch_size=2048,learning_rate_schedule=constant*linear_warmup*rsqrt_decay,"
        f"learning_rate_warmup_steps={WARMUP},learning_rate_constant={settings.rate * WARMUP**0.5},"
        f"initializer_gain={settings.gain},layer_prepostprocess_dropout={settings.dropout}"
    )


def train(
    model: str, name: str, settings: Settings, seed: str, *arguments: str
) -> list[dict[str, Any]]:
    """Trains a family in the folder `model`. Returns its evaluations. `arguments` are further flags
    of t2t-trainer.
    """
    return run_trainer(
        model,
        "--problem=text_files",
        f"--hparams_set={name}",
        f"--data_dir={WORK.value}/data",
        f"--random_seed={seed}",
        f"--hparams={overrides(settings)}",
        f"--keep_checkpoint_max={CHECKPOINTS}",
        "--precision=mixed_bfloat16",
        "--intra_op_parallelism_threads=1",
        "--inter_op_parallelism_threads=1",
        *arguments,
    )


def measure_trial(name: str, settings: Settings) -> float | None:
    """Returns the dev loss of a family after a short training; None if its loss or gradient was not
    finite.
    """
    steps = TRIAL_EPOCHS * EPOCH
    arguments = f"--train_steps={steps}", f"--local_eval_frequency={steps}", "--eval_decode_lines=0"
    model = f"{WORK.value}/{run_name(name, settings)}"
    try:
        return round(train(model, name, settings, SEEDS[0], *arguments)[-1]["dev_loss"], 3)
    except SystemExit:
        if list(Path(model).glob("not_finite-*")):
            return None
        raise


def measure(name: str, settings: Settings, seed: str) -> dict[str, Any]:
    """Trains a family until its dev loss stops falling, averages the last checkpoints, and scores
    them.

    Returns the lowest dev loss, the BLEU of the average on val and on test_2016_flickr, [step, dev
    loss, dev BLEU] of each epoch, the CPU minutes of training (None if another process did a part
    of it), the CPU seconds of decoding the test set, and the operations of a step.
    """
    model = f"{WORK.value}/{run_name(name, settings, seed)}"
    is_new = not Path(model).exists()
    before = cpu_seconds()
    evaluations = train(model, name, settings, seed, f"--train_steps={EPOCHS * EPOCH}",
        f"--local_eval_frequency={EPOCH}", "--eval_decode_lines=1014",
        f"--early_stopping_patience={PATIENCE}")  # fmt: skip
    training = cpu_seconds() - before
    run(
        "avg-checkpoints",
        f"--output_dir={model}",
        f"--num_last_checkpoints={CHECKPOINTS}",
        "--nocompare",
    )
    val = bleu(model, "val")
    before = cpu_seconds()
    test = bleu(model, "test_2016_flickr")
    return {
        "loss": round(min(line["dev_loss"] for line in evaluations), 3),
        "val": val,
        "test": test,
        "curve": [
            [line["step"], round(line["dev_loss"], 3), round(line["dev_bleu"], 2)]
            for line in evaluations
        ],
        "train_minutes": round(training / 60, 1) if is_new else None,
        "decode_seconds": round(cpu_seconds() - before, 1),
        "flops": step_flops(name),
    }


def step_flops(name: str) -> int:
    """Returns the operations of a training step by products, for the mean lengths of the training
    pairs.
    """
    lengths = Records(find_shards(f"{WORK.value}/data", "text_files", "train")).lengths
    source, target = (round(float(side.mean())) for side in lengths)
    return size.step_flops(registry.hparams(name), VOCAB_SIZE, source, target)


def run_name(name: str, settings: Settings, seed: str = "") -> str:
    """Returns the name of a full run, or without a seed that of a short trial, in the results
    file.
    """
    values = f"{name}, rate {settings.rate:g}, gain {settings.gain:g}, dropout {settings.dropout:g}"
    return f"{values}, seed {seed}" if seed else f"{values}, trial"


def short_trials(name: str, measured: Measured) -> Settings:
    """Returns the settings with the lowest dev loss of the short trials: of each rate, then of each
    gain.
    """

    def loss(settings: Settings) -> float:
        loss = measured(run_name(name, settings), functools.partial(measure_trial, name, settings))
        return math.inf if loss is None else loss

    settings = min((Settings(rate=rate) for rate in RATES), key=loss)
    return min((settings._replace(gain=gain) for gain in GAINS), key=loss)


def tune(name: str, measured: Measured) -> Best:
    """Returns the best settings of a family with its full runs."""

    def full_run(settings: Settings, seed: str = SEEDS[0]) -> dict[str, Any]:
        return measured(
            run_name(name, settings, seed), functools.partial(measure, name, settings, seed)
        )

    settings = short_trials(name, measured)
    settings = min(
        (settings._replace(dropout=rate) for rate in DROPOUTS),
        key=lambda tried: full_run(tried)["loss"],
    )
    return Best(settings, [full_run(settings, seed) for seed in SEEDS])


def operations_to(score: float, run: dict[str, Any]) -> float | None:
    """Returns the training operations at which a run's dev BLEU first reaches `score`; None if it
    does not.

    Between two epochs, BLEU is interpolated linearly.
    """
    for (step, _, bleu), (next_step, _, next_bleu) in itertools.pairwise(
        [[0, 0, 0.0], *run["curve"]]
    ):
        if next_bleu >= score:
            return run["flops"] * (step + (next_step - step) * (score - bleu) / (next_bleu - bleu))
    return None


def print_families(families: dict[str, Best]) -> None:
    """Prints a table of the families with their best settings, as means over seeds."""
    columns = (
        "parameters",
        "BLEU val",
        "BLEU test",
        "test by seed",
        "epochs",
        "FLOPs",
        f"FLOPs to {THRESHOLD:g} BLEU",
    )
    more_columns = "CPU minutes", "decoding, s", "sequential operations", "maximum path"
    print(f"| hparams set | {' | '.join(columns + more_columns)} |")
    print(f"| --- |{' ---: |' * 3} --- |{' ---: |' * 5} --- | --- |")
    for name, (_, runs) in families.items():
        minutes = [run["train_minutes"] for run in runs if run["train_minutes"] is not None]
        reached = [flops for run in runs if (flops := operations_to(THRESHOLD, run)) is not None]
        cells = [
            f"{size.parameters(registry.hparams(name), VOCAB_SIZE):,}",
            *(f"{statistics.mean(run[split] for run in runs):.2f}" for split in ("val", "test")),
            ", ".join(f"{run['test']:.2f}" for run in runs),
            ", ".join(f"{run['curve'][-1][0] // EPOCH}" for run in runs),
            f"{statistics.mean(run['flops'] * run['curve'][-1][0] for run in runs):.1e}",
            f"{statistics.mean(reached):.1e}" if len(reached) == len(runs) else "-",
            f"{statistics.mean(minutes):.0f}" if minutes else "-",
            f"{statistics.mean(run['decode_seconds'] for run in runs):.0f}",
            *PATHS[registry.hparams(name).model],
        ]
        print(f"| `{name}` | {' | '.join(cells)} |")


def print_full_runs(results: dict[str, Any]) -> None:
    """Prints a table of the families' full runs. The results file also has runs of variants, by
    other names.
    """
    columns = (
        "rate",
        "gain",
        "dropout",
        "seed",
        "epochs",
        "lowest dev loss",
        "BLEU val",
        "BLEU test",
    )
    print(f"\n| hparams set | {' | '.join(columns)} | {THRESHOLD:g} BLEU after |")
    print(f"| --- |{' ---: |' * len(columns)} --- |")
    for label, full_run in sorted(results.items()):
        name, *values = label.split(", ")
        if name not in FAMILIES.value or values[-1] == "trial":
            continue
        best = 1 + min(range(len(full_run["curve"])), key=lambda epoch: full_run["curve"][epoch][1])
        flops = operations_to(THRESHOLD, full_run)
        cells = [
            f"`{name}`",
            *(value.split()[1] for value in values),
            str(full_run["curve"][-1][0] // EPOCH),
            f"{full_run['loss']:.2f} (epoch {best})",
            *(f"{full_run[split]:.2f}" for split in ("val", "test")),
            f"{flops:.1e} FLOPs, {flops / full_run['flops'] / EPOCH:.1f} epochs" if flops else "-",
        ]
        print(f"| {' | '.join(cells)} |")


def print_trials(results: dict[str, Any]) -> None:
    """Prints a table of the dev losses of all short trials: for each rate, and for the other gains
    at the best rate.
    """
    other_gains = [gain for gain in GAINS if gain != Settings().gain]
    columns = [*(f"rate {rate:g}" for rate in RATES), *(f"gain {gain:g}" for gain in other_gains)]
    print(f"\n| hparams set | {' | '.join(columns)} |\n| --- |{' ---: |' * len(columns)}")
    for name in FAMILIES.value:
        losses = {
            label: loss
            for label, loss in results.items()
            if label.startswith(f"{name}, ") and "trial" in label
        }
        gain_1 = [losses.get(run_name(name, Settings(rate=rate)), "") for rate in RATES]
        others = [
            [loss for label, loss in losses.items() if f"gain {gain:g}," in label]
            for gain in other_gains
        ]
        cells = [*gain_1, *(loss[0] if loss else "" for loss in others)]
        print(
            f"| `{name}` | "
            f"{' | '.join('not finite' if cell is None else str(cell) for cell in cells)} |"
        )


def draw(families: dict[str, Best], path: str) -> None:
    """Draws BLEU on val against training operations for each family, as a mean over seeds; saves
    the picture.
    """
    from matplotlib.figure import Figure

    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, (_, runs) in families.items():
        # Up to the end of the shorter run.
        epochs = list(zip(*(run["curve"] for run in runs), strict=False))
        operations = [runs[0]["flops"] * points[0][0] for points in epochs]
        scores = [statistics.mean(score for _, _, score in points) for points in epochs]
        axes.plot(operations, scores, ".-", label=name.replace("_tiny", ""))
    axes.axhline(THRESHOLD, color="gray", linewidth=0.8)
    axes.set(
        xlabel="training operations (matrix products)",
        ylabel="BLEU on val",
        xlim=(0, None),
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)


def main(argv: list[str]) -> None:
    """Tunes and trains all families, and prints the tables."""
    if not (DATA.value and WORK.value) and not (TABLE.value and (RESULTS.value or WORK.value)):
        raise app.UsageError("give --data and --work, or --table and --results")
    results = Results(RESULTS.value or Path(WORK.value) / "results.json")
    if not TABLE.value:
        work = Path(WORK.value)
        work.mkdir(parents=True, exist_ok=True)
        train, dev = (
            ",".join(text_file(split, side) for side in ("en", "de")) for split in ("train", "val")
        )
        run(
            "datagen",
            "--problem=text_files",
            f"--train={train}",
            f"--dev={dev}",
            f"--vocab_size={VOCAB_SIZE}",
            f"--data_dir={work}/data",
        )
    finished = results.read()
    families = {}
    measured: Measured = (lambda label, _: finished[label]) if TABLE.value else results.measure
    for name in FAMILIES.value:
        with contextlib.suppress(*[KeyError] if TABLE.value else []):  # a run is missing
            families[name] = tune(name, measured)
    print_families(families)
    print_full_runs(results.read())
    print_trials(results.read())
    if PICTURE.value:
        draw(families, PICTURE.value)


if __name__ == "__main__":
    app.run(main)
