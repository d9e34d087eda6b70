"""Trains, averages, decodes and scores models on Multi30k EN-DE as in docs/multi30k.md; prints a table row per run.

    python benchmarks/multi30k.py --data=FOLDER --work=FOLDER [--seeds=1,2] [--norm_before=false,true]
    python benchmarks/multi30k.py --data=FOLDER --work=FOLDER --seeds=1 --norm_before=false \\
        --precision=float32,mixed_bfloat16 --picture=loss.png

The --data folder holds train, val and test_2016_flickr as .en.gz and .de.gz files. CPU minutes are the user and system
time of the t2t-trainer process, as the kernel counts them. --picture saves the loss curves of all runs.
"""

from __future__ import annotations

import gzip
import itertools
import resource
import time
from pathlib import Path

from absl import app, flags

from commands import run
from t2t_repro.data.batching import first_steps, padding, plan
from t2t_repro.data.records import Records, find_shards
from t2t_repro.training.metrics_log import read_metrics

DATA = flags.DEFINE_string("data", None, "folder of the .gz files", required=True)
WORK = flags.DEFINE_string("work", None, "folder of all output", required=True)
SEEDS = flags.DEFINE_list("seeds", ["1", "2"], "random seeds")
NORM_BEFORE = flags.DEFINE_list("norm_before", ["false", "true"], "false: post-norm, true: pre-norm")
PRECISION = flags.DEFINE_list("precision", ["mixed_bfloat16"], "precisions of the runs")
PICTURE = flags.DEFINE_string("picture", "", "path of a picture of the loss curves")


def unpack(name: str) -> tuple[str, str]:
    """Unpacks the English and the German file of split `name` into the work folder and returns both paths."""
    paths = []
    for language in ("en", "de"):
        path = Path(WORK.value) / f"{name}.{language}"
        path.write_bytes(gzip.decompress((Path(DATA.value) / f"{name}.{language}.gz").read_bytes()))
        paths.append(str(path))
    return paths[0], paths[1]


def draw(models: dict[str, str], path: str) -> None:
    """Draws the training loss (solid) and the dev loss (dashed) of each model folder; saves the picture to `path`."""
    from matplotlib.figure import Figure

    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, (name, folder) in enumerate(models.items()):
        lines = read_metrics(folder)
        for key, style in (("train_loss", "-"), ("dev_loss", "o--")):
            points = [(line["step"], line[key]) for line in lines if key in line]
            label = f"{name}: {key.replace('_', ' ')}"
            axes.plot(*zip(*points, strict=True), style, color=f"C{number}", linewidth=1, markersize=3, label=label)
    axes.set(xlabel="steps", ylabel="nats per target token", ylim=(None, 6))
    axes.legend()
    figure.savefig(path, dpi=120)


def main(argv: list[str]) -> None:
    """Generates the data, trains and scores each run, and prints a table of scores and the share of padding."""
    Path(WORK.value).mkdir(parents=True, exist_ok=True)
    data = f"{WORK.value}/data"
    splits = {name: unpack(name) for name in ("train", "val", "test_2016_flickr")}
    run("datagen", "--problem=text_files", f"--train={','.join(splits['train'])}", f"--dev={','.join(splits['val'])}",
        "--vocab_size=8000", f"--data_dir={data}")  # fmt: skip
    rows, models = [], {}
    for norm_before, precision, seed in itertools.product(NORM_BEFORE.value, PRECISION.value, SEEDS.value):
        name = f"{'pre' if norm_before == 'true' else 'post'}-norm, {precision}, seed {seed}"
        model = models[name] = f"{WORK.value}/{name.replace(', ', '_').replace(' ', '_')}"
        start_usage, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        run("trainer", "--problem=text_files", "--hparams_set=transformer_tiny", f"--data_dir={data}",
            f"--output_dir={model}", f"--random_seed={seed}", f"--precision={precision}", "--eval_decode_lines=0",
            "--intra_op_parallelism_threads=1", "--inter_op_parallelism_threads=1",
            f"--hparams=norm_before={norm_before}")  # fmt: skip
        wall, usage = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = usage.ru_utime + usage.ru_stime - start_usage.ru_utime - start_usage.ru_stime
        run("avg-checkpoints", f"--output_dir={model}")
        scores = []
        for split in ("val", "test_2016_flickr"):
            source, reference = splits[split]
            output = f"{model}.{split}"
            run("decoder", f"--output_dir={model}", f"--decode_from_file={source}", f"--decode_to_file={output}")
            scores.append(run("bleu", f"--translation={output}", f"--reference={reference}")[0].split()[0])
        rows.append(f"| {name} | {' | '.join(scores)} | {cpu / 60:.1f} | {wall / 60:.1f} |")
        print(rows[-1], flush=True)
    print("\n| run | BLEU val | BLEU test_2016_flickr | CPU minutes | elapsed minutes |")
    print("| --- | --- | --- | --- | --- |")
    print("\n".join(rows))
    if PICTURE.value:
        draw(models, PICTURE.value)
    lengths = Records(find_shards(data, "text_files", "train")).lengths
    for batch_size, max_tokens in ((2048, 4096), (4096, 2048), (4096, 4096)):
        epoch = plan(lengths, batch_size, 256, seed=1, epoch=0)
        share = padding(lengths, first_steps(lengths, epoch, max_tokens))
        print(f"padding, batch_size={batch_size}, max_tokens_per_replica={max_tokens}: {share:.2%}")


if __name__ == "__main__":
    app.run(main)
