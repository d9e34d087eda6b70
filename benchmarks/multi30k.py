"""Trains, averages, decodes and scores models on Multi30k as in docs/multi30k.md; prints a table
row per run.

    python benchmarks/multi30k.py --data=FOLDER --work=FOLDER [--hparams_set=transformer_tiny]
    [--seeds=1,2] python benchmarks/multi30k.py --data=FOLDER --work=FOLDER --language=fr
    --hparams_set=transformer_multi30k python benchmarks/multi30k.py --data=FOLDER --work=FOLDER
    --seeds=1 --precision=float32,mixed_bfloat16 \\
        --picture=loss.png

The --data folder holds train, val and the test sets as .en.gz and .de.gz or .fr.gz files. The
script writes the scores to results.json in the work folder and skips runs that this file has, so
the same command continues after an interruption. For another search, it decodes the trained models
again. CPU minutes are the user and system time of the t2t-trainer process, as the kernel counts
them; "-" if an earlier process did a part of the training. --picture saves the loss curves of all
runs.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import resource
import statistics
import time
from pathlib import Path
from typing import Any

from absl import app, flags

from commands import run, run_trainer
from results import Results
from t2t_repro.data.batching import first_steps, padding, plan
from t2t_repro.data.records import Records, find_shards
from t2t_repro.training.metrics_log import read_metrics

DATA = flags.DEFINE_string("data", None, "folder of the .gz files", required=True)
WORK = flags.DEFINE_string("work", None, "folder of all output", required=True)
LANGUAGE = flags.DEFINE_enum("language", "de", ["de", "fr"], "target language")
HPARAMS_SET = flags.DEFINE_string("hparams_set", "transformer_tiny", "hparams set")
HPARAMS = flags.DEFINE_multi_string(
    "hparams", [""], "changes of the hparams set; repeat the flag for several runs"
)
DECODE_HPARAMS = flags.DEFINE_string("decode_hparams", "", "settings of the search")
VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 8000, "size of the vocabulary", lower_bound=1)
SEEDS = flags.DEFINE_list("seeds", ["1", "2"], "random seeds")
PRECISION = flags.DEFINE_list("precision", ["mixed_bfloat16"], "precisions of the runs")
PICTURE = flags.DEFINE_string("picture", "", "path of a picture of the loss curves")
SPLITS = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
SCORED = SPLITS[1:]


def text_file(split: str, language: str) -> str:
    """Returns the path of a split's text in one language, in the work folder. Unpacks the text if
    necessary.
    """
    path = Path(WORK.value) / f"{split}.{language}"
    if not path.exists():
        path.write_bytes(gzip.decompress((Path(DATA.value) / f"{path.name}.gz").read_bytes()))
    return str(path)


def measure(
    data: str, model: str, hparams: str, precision: str, seed: str
) -> dict[str, float | None]:
    """Trains and scores a model.

    Returns its dev loss, its BLEU on each split of SCORED, and the CPU minutes and elapsed minutes
    of the training.
    """
    is_new = not Path(model).exists()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    evaluations = run_trainer(
        model,
        "--problem=text_files",
        f"--hparams_set={HPARAMS_SET.value}",
        f"--data_dir={data}",
        f"--random_seed={seed}",
        f"--precision={precision}",
        "--eval_decode_lines=0",
        "--intra_op_parallelism_threads=1",
        "--inter_op_parallelism_threads=1",
        f"--hparams={hparams}",
    )
    elapsed = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    run("avg-checkpoints", f"--output_dir={model}")
    scores = {}
    for split in SCORED:
        output = f"{model}.{split}"
        run("decoder", f"--output_dir={model}", f"--decode_from_file={text_file(split, 'en')}",
            f"--decode_to_file={output}", f"--decode_hparams={DECODE_HPARAMS.value}")  # fmt: skip
        reference = text_file(split, LANGUAGE.value)
        scores[split] = float(
            run("bleu", f"--translation={output}", f"--reference={reference}")[0].split()[0]
        )
    return {
        "loss": evaluations[-1]["dev_loss"],
        **scores,
        "cpu": cpu / 60 if is_new else None,
        "elapsed": elapsed / 60 if is_new else None,
    }


def row(name: str, runs: list[dict[str, Any]]) -> str:
    """Returns a Markdown row with the means of `runs`. A mean is "-" if a run does not have the
    figure.
    """
    cells = []
    for key, digits in (("loss", 3), *((split, 2) for split in SCORED), ("cpu", 1), ("elapsed", 1)):
        figures = [run[key] for run in runs]
        cells.append("-" if None in figures else f"{statistics.mean(figures):.{digits}f}")
    return f"| {name} | {' | '.join(cells)} |"


def draw(models: dict[str, str], path: str) -> None:
    """Draws the training loss (solid) and the dev loss (dashed) of each model folder; saves the
    picture to `path`.
    """
    from matplotlib.figure import Figure

    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, (name, folder) in enumerate(models.items()):
        lines = read_metrics(folder)
        for key, style in (("train_loss", "-"), ("dev_loss", "o--")):
            points = [(line["step"], line[key]) for line in lines if key in line]
            label = f"{name}: {key.replace('_', ' ')}"
            axes.plot(
                *zip(*points, strict=True),
                style,
                color=f"C{number}",
                linewidth=1,
                markersize=3,
                label=label,
            )
    axes.set(xlabel="steps", ylabel="nats per target token", ylim=(None, 6))
    axes.legend()
    figure.savefig(path, dpi=120)


def print_padding(data: str) -> None:
    """Prints the share of padding in the first epoch, for three choices of the batch size and the
    micro-batch size.
    """
    lengths = Records(find_shards(data, "text_files", "train")).lengths
    for batch_size, max_tokens in ((2048, 4096), (4096, 2048), (4096, 4096)):
        epoch = plan(lengths, batch_size, 256, seed=1, epoch=0)
        share = padding(lengths, first_steps(lengths, epoch, max_tokens))
        print(f"padding, batch_size={batch_size}, max_tokens_per_replica={max_tokens}: {share:.2%}")


def main(argv: list[str]) -> None:
    """Generates the data, trains and scores each run, and prints a table of scores and the share of
    padding.
    """
    work = Path(WORK.value)
    work.mkdir(parents=True, exist_ok=True)
    data = f"{work}/data_{LANGUAGE.value}_{VOCAB_SIZE.value}"
    train, dev = (
        ",".join(text_file(split, language) for language in ("en", LANGUAGE.value))
        for split in SPLITS[:2]
    )
    run(
        "datagen",
        "--problem=text_files",
        f"--train={train}",
        f"--dev={dev}",
        f"--vocab_size={VOCAB_SIZE.value}",
        f"--data_dir={data}",
    )
    results = Results(work / "results.json")
    rows = []
    models = {}
    for hparams, precision in itertools.product(HPARAMS.value, PRECISION.value):
        runs = []
        for seed in SEEDS.value:
            vocabulary = f"{VOCAB_SIZE.value} subwords"
            parts = (
                HPARAMS_SET.value,
                f"en-{LANGUAGE.value}",
                vocabulary,
                hparams,
                precision,
                f"seed {seed}",
            )
            name = ", ".join(filter(None, parts))
            model = models[name] = (
                f"{work}/{name.replace(', ', '_').replace(' ', '_').replace(',', '_')}"
            )
            run_name = f"{name}, {DECODE_HPARAMS.value or 'default search'}"
            runs.append(
                results.measure(
                    run_name, functools.partial(measure, data, model, hparams, precision, seed)
                )
            )
            rows.append(row(name, runs[-1:]))
            print(rows[-1], flush=True)
        if len(runs) > 1:
            rows.append(row(f"mean of {len(runs)}", runs))
    print(
        f"\n| run | dev loss | {' | '.join(f'BLEU {split}' for split in SCORED)} | CPU minutes | "
        "elapsed minutes |"
    )
    print("| --- |" + " ---: |" * (len(SCORED) + 3), *rows, sep="\n")
    if PICTURE.value:
        draw(models, PICTURE.value)
    print_padding(data)


if __name__ == "__main__":
    app.run(main)
