"""Measures the paper's Table 3 for a small model: its variations, scaled to three layers, and
trained on Multi30k.

    python benchmarks/table3_small.py --data=FOLDER --work=FOLDER [--seeds=1,2] [--results=FILE]
    python benchmarks/table3_small.py --results=docs/table3_small.json --table

The second command only prints the table. See docs/table3_small.md. The --data folder holds train
and val as .en.gz and .de.gz files. The script writes perplexity and BLEU of each run to the results
file, by default results.json in the work folder, and skips runs that this file has. So the same
command continues after an interruption. As in the paper, checkpoints are not averaged, dev
perplexity is per subword, dev BLEU uses beam 4 and alpha 0.6, and the learning rate is proportional
to the inverse square root of d_model (equation 3).
"""

from __future__ import annotations

import functools
import re
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from commands import run, run_trainer
from results import Results
from t2t_repro.paper import rows as paper

DATA = flags.DEFINE_string("data", "", "folder of the .gz files")
WORK = flags.DEFINE_string("work", "", "folder of data, models and outputs")
SEEDS = flags.DEFINE_list("seeds", ["1", "2"], "random seeds")
RESULTS = flags.DEFINE_string(
    "results", "", "results file; several processes of this script may share it"
)
TABLE = flags.DEFINE_bool("table", False, "only print the table, from the results file")
TRAIN_STEPS = 2880
BASE = (
    "num_hidden_layers=3,hidden_size=96,filter_size=384,initializer_gain=0.5,"
    "learning_rate_constant=0.00577"
)
"""Overrides of transformer_tiny for all rows. With three layers, the paper's 2, 4 and 8 layers are
1, 2 and 4 here.
"""
EQUAL = 0.005
"""In the paper, a row whose perplexity differs from base by at most this share counts as equal."""

ROWS = {
    "base": ("base", ""),
    "A: h 1": ("h1", "num_heads=1"),
    "A: h 4": ("h4", "num_heads=2"),
    "A: h 16": ("h16", "num_heads=8"),
    "A: h 32": ("h32", "num_heads=16"),
    "B: d_k 16": ("k128", "attention_key_channels=24"),
    "B: d_k 32": ("k256", "attention_key_channels=48"),
    "C: N 2": ("l2", "num_hidden_layers=1"),
    "C: N 4": ("l4", "num_hidden_layers=2"),
    "C: N 8": ("l8", "num_hidden_layers=4"),
    "C: d_model 256": ("hs256", "hidden_size=48,learning_rate_constant=0.00816"),
    "C: d_model 1024": ("hs1024", "hidden_size=192,learning_rate_constant=0.00408"),
    "C: d_ff 1024": ("ff1024", "filter_size=192"),
    "C: d_ff 4096": ("ff4096", "filter_size=768"),
    "D: P_drop 0.0": ("dr0", "layer_prepostprocess_dropout=0.0"),
    "D: P_drop 0.2": ("dr2", "layer_prepostprocess_dropout=0.2"),
    "D: eps_ls 0.0": ("ls0", "label_smoothing=0.0"),
    "D: eps_ls 0.2": ("ls2", "label_smoothing=0.2"),
    "E: learned positions": ("pos_emb", "pos=emb"),
}
"""For each row of the paper's table: the name of its hparams set without "transformer_", and the
hparams in which this script's model for the row differs from its base model.
"""
PAPER = {
    row.experiments[0].hparams_set.removeprefix(paper.PREFIX): row.figures
    for row in paper.ROWS
    if row.table == 3
}


def measure(row: str, change: str, seed: str) -> tuple[float, float]:
    """Trains and scores a model. Returns its dev perplexity and its BLEU on the dev set."""
    work = Path(WORK.value)
    model = work / f"{re.sub('[^a-zA-Z0-9.]+', '_', row)}_seed_{seed}"
    overrides = dict(part.split("=") for part in f"{BASE},{change}".strip(",").split(","))
    hparams = ",".join(f"{name}={value}" for name, value in overrides.items())
    evaluations = run_trainer(
        model,
        "--problem=text_files",
        "--hparams_set=transformer_tiny",
        f"--data_dir={work}/data",
        f"--random_seed={seed}",
        f"--train_steps={TRAIN_STEPS}",
        f"--local_eval_frequency={TRAIN_STEPS // 4}",
        "--eval_decode_lines=0",
        f"--hparams={hparams}",
        "--precision=mixed_bfloat16",
        "--intra_op_parallelism_threads=1",
        "--inter_op_parallelism_threads=1",
    )
    run(
        "decoder",
        f"--output_dir={model}",
        f"--decode_from_file={work}/val.en",
        f"--decode_to_file={model}.de",
    )
    bleu, _ = run("bleu", f"--translation={model}.de", f"--reference={work}/val.de")
    return round(evaluations[-1]["dev_perplexity"], 3), float(bleu.split()[0])


def sign(figures: Sequence[float], base: Sequence[float], equal: float = 0.0) -> str:
    """Returns "+" if all `figures` are higher than all figures of `base`, "-" if all are lower,
    else "=".

    Args:
        equal: a difference of at most this share of the base figure does not count.
    """
    if min(figures) > max(base) * (1.0 + equal):
        return "+"
    return "-" if max(figures) < min(base) * (1.0 - equal) else "="


def print_table(runs: dict[str, tuple[float, float]]) -> None:
    """Prints a Markdown table: each row's perplexity and BLEU, and whether the row beats base in
    the paper and here.

    Then prints how many of the variations that were run agree with the paper. A sign is "+" if the
    row is better than base.

    Args:
        runs: for each run, its perplexity and its BLEU.
    """
    figures = {}
    for row in ROWS:
        if row_runs := [runs[name] for name in runs if name.startswith(f"{row}, seed ")]:
            figures[row] = list(zip(*row_runs, strict=True))
    perplexity = PAPER["base"]["perplexity"]
    bleu = PAPER["base"]["bleu_dev"]
    assert perplexity and bleu
    print(
        "| paper's row | our change | PPL | BLEU | PPL by seed | BLEU by seed | PPL: paper, here "
        "| BLEU: paper, here |"
    )
    print("| --- | --- | ---: | ---: | --- | --- | --- | --- |")
    agreements = [0, 0]
    compared = 0
    for row, (name, change) in ROWS.items():
        cells = ["not run", *[""] * 5]
        if row in figures:
            means = [f"{statistics.mean(values):.2f}" for values in figures[row]]
            seed_figures = [
                ", ".join(f"{value:.2f}" for value in values) for values in figures[row]
            ]
            cells = [*means, *seed_figures, "", ""]
        if row in figures and row != "base":
            ours = figures[row]
            base = figures["base"]
            printed = PAPER[name]["perplexity"], PAPER[name]["bleu_dev"]
            pairs = [
                sign([perplexity], [printed[0]], EQUAL) + sign(base[0], ours[0]),
                sign([printed[1]], [bleu]) + sign(ours[1], base[1]),
            ]
            agreements = [
                count + (pair[0] == pair[1]) for count, pair in zip(agreements, pairs, strict=True)
            ]
            compared += 1
            cells[-2:] = [" ".join(pair) for pair in pairs]
        change = (
            change.replace("pos=emb", "learned position embeddings")
            .replace("=", " ")
            .replace(",", ", ")
        )
        print(f"| {' | '.join([row, change or 'none', *cells])} |")
    print(
        f"\nagreement: {agreements[0]} of {compared} variations in perplexity, {agreements[1]} in "
        "BLEU"
    )


def main(argv: list[str]) -> None:
    """Trains and scores all rows with the first seed, then with the next seeds, and prints the
    table.
    """
    if not (DATA.value and WORK.value) and not (TABLE.value and (RESULTS.value or WORK.value)):
        raise app.UsageError("give --data and --work, or --table and --results")
    results = Results(RESULTS.value or Path(WORK.value) / "results.json")
    if not TABLE.value:
        data = Path(DATA.value)
        work = Path(WORK.value)
        work.mkdir(parents=True, exist_ok=True)
        for side in ("en", "de"):
            (work / f"val.{side}").write_bytes(
                subprocess.check_output(["gzip", "-dc", str(data / f"val.{side}.gz")])
            )
        if not (work / "data" / "text_files.json").exists():
            run(
                "datagen",
                "--problem=text_files",
                f"--train={data}/train.en.gz,{data}/train.de.gz",
                f"--dev={data}/val.en.gz,{data}/val.de.gz",
                "--vocab_size=4000",
                f"--data_dir={work}/data",
            )
        for seed in SEEDS.value:
            for row, (_, change) in ROWS.items():
                results.measure(
                    f"{row}, seed {seed}", functools.partial(measure, row, change, seed)
                )
    print_table(results.read())


if __name__ == "__main__":
    app.run(main)
