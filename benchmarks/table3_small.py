"""Table 3 in miniature: its rows scaled to the size of transformer_tiny, on Multi30k, as docs/table3_small.md has it.

    python benchmarks/table3_small.py --data=FOLDER --work=FOLDER [--seeds=1,2] [--results=FILE]
    python benchmarks/table3_small.py --results=docs/table3_small.json --table

FOLDER holds train and val as .en.gz and .de.gz. Runs whose figures are in the results file (by default results.json in
the work folder) are not made again, so that the same command goes on where it was; the second command prints the table
of those that are there. As in the paper: no averaging, dev perplexity per subword, dev BLEU with beam
4 and alpha 0.6, and a learning rate that goes with the inverse square root of d_model (equation 3).
"""

from __future__ import annotations

import fcntl
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from commands import run
from t2t_repro.textfile import whole_file
from t2t_repro.training.metrics_log import read_metrics

DATA = flags.DEFINE_string("data", "", "folder of the .gz files")
WORK = flags.DEFINE_string("work", "", "folder for everything that is made")
SEEDS = flags.DEFINE_list("seeds", ["1", "2"], "random seeds")
RESULTS = flags.DEFINE_string("results", "", "where the figures are kept; several of these programs may share it")
TABLE = flags.DEFINE_bool("table", False, "only print the table of what is there")
TRAIN_STEPS = 1008

ROWS = {  # the paper's row, its change to base: what it is here, the paper's perplexity and BLEU
    "base": ("", 4.92, 25.8),
    "A: h 1": ("num_heads=1", 5.29, 24.9),
    "A: h 4": ("num_heads=2", 5.00, 25.5),
    "A: h 16": ("num_heads=8", 4.91, 25.8),
    "A: h 32": ("num_heads=16", 5.01, 25.4),
    "B: d_k 16": ("attention_key_channels=32", 5.16, 25.1),
    "B: d_k 32": ("attention_key_channels=64", 5.01, 25.4),
    "C: N 2": ("num_hidden_layers=1", 6.11, 23.7),
    "C: N 8": ("num_hidden_layers=3", 4.88, 25.5),
    "C: d_model 256": ("hidden_size=64,learning_rate_constant=0.00707", 5.75, 24.5),
    "C: d_model 1024": ("hidden_size=256,learning_rate_constant=0.00354", 4.66, 26.0),
    "C: d_ff 1024": ("filter_size=256", 5.12, 25.4),
    "C: d_ff 4096": ("filter_size=1024", 4.75, 26.2),
    "D: P_drop 0.0": ("layer_prepostprocess_dropout=0.0", 5.77, 24.6),
    "D: P_drop 0.2": ("layer_prepostprocess_dropout=0.2", 4.95, 25.5),
    "D: eps_ls 0.0": ("label_smoothing=0.0", 4.67, 25.3),
    "D: eps_ls 0.2": ("label_smoothing=0.2", 5.47, 25.7),
    "E: learned positions": ("pos=emb", 4.92, 25.7),
}
"""N 4 has no counterpart: four of six layers would be one and a third of two. Big changes four things at once, and
trains three times as long; it is no ablation."""


def results_path() -> Path:
    """The results file."""
    return Path(RESULTS.value or Path(WORK.value) / "results.json")


def known() -> dict[str, dict[str, list[float]]]:
    """Perplexity and BLEU of the runs made so far, by row and seed."""
    return json.loads(results_path().read_text("utf-8")) if results_path().exists() else {}


def keep(row: str, seed: str, perplexity: float, bleu: float) -> None:
    """Adds a run to the results file, to which others may be adding theirs."""
    with open(f"{results_path()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = known()
        runs.setdefault(row, {})[seed] = [perplexity, bleu]
        with whole_file(results_path(), "w") as file:
            file.write("{\n" + ",\n".join(f'"{name}": {json.dumps(found)}' for name, found in runs.items()) + "\n}\n")


def measure(row: str, change: str, seed: str) -> None:
    """Makes a run, unless its dev perplexity and BLEU are in the results file."""
    if seed not in known().get(row, {}):
        work = Path(WORK.value)
        model = work / f"{re.sub('[^a-zA-Z0-9.]+', '_', row)}_seed_{seed}"
        hparams = ",".join(filter(None, ("learning_rate_warmup_steps=400", change)))
        run("trainer", "--problem=text_files", "--hparams_set=transformer_tiny", f"--data_dir={work}/data",
            f"--output_dir={model}", f"--random_seed={seed}", f"--train_steps={TRAIN_STEPS}",
            f"--local_eval_frequency={TRAIN_STEPS}", "--eval_decode_lines=0", f"--hparams={hparams}",
            "--precision=mixed_bfloat16", "--intra_op_parallelism_threads=1",
            "--inter_op_parallelism_threads=1")  # fmt: skip
        run("decoder", f"--output_dir={model}", f"--decode_from_file={work}/val.en", f"--decode_to_file={model}.de")
        bleu, _ = run("bleu", f"--translation={model}.de", f"--reference={work}/val.de")
        perplexities = [line["dev_perplexity"] for line in read_metrics(model) if "dev_perplexity" in line]
        keep(row, seed, round(perplexities[-1], 3), float(bleu.split()[0]))
    perplexity, score = known()[row][seed]
    print(f"{row}, seed {seed}: perplexity {perplexity}, BLEU {score}", file=sys.stderr, flush=True)


def sign(found: Sequence[float], base: Sequence[float]) -> str:
    """Whether all of a row's figures are higher (+) or lower (-) than all of base's; = where they overlap."""
    return "+" if min(found) > max(base) else "-" if max(found) < min(base) else "="


def signs(found: Sequence[Sequence[float]], base: Sequence[Sequence[float]]) -> str:
    """`sign` of perplexity, where lower is better, and of BLEU; each is (perplexities, BLEUs)."""
    return f"{sign(base[0], found[0])} {sign(found[1], base[1])}"


def print_table() -> None:
    """Prints what is in the results file: means, then each seed's, then the paper's direction and the one here."""
    found = {row: list(zip(*runs.values(), strict=True)) for row, runs in known().items()}
    print("| paper's row | here | PPL | BLEU | PPLs | BLEUs | paper's PPL, BLEU | here |")
    print("| --- | --- | ---: | ---: | --- | --- | --- | --- |")
    for row, (change, *paper) in ROWS.items():
        theirs = signs([[figure] for figure in paper], [[figure] for figure in ROWS["base"][1:]])
        cells = ["", "", "not run", "", theirs, ""]
        if row in found:
            means = [f"{statistics.mean(figures):.2f}" for figures in found[row]]
            each = [", ".join(f"{figure:.2f}" for figure in figures) for figures in found[row]]
            cells = [*means, *each, theirs, signs(found[row], found["base"]) if "base" in found else ""]
        print(f"| {' | '.join([row, change.replace('=', ' ').replace(',', ', ') or 'transformer_tiny', *cells])} |")


def main(argv: list[str]) -> None:
    """Makes all runs, seed by seed, and prints the table."""
    if not (DATA.value and WORK.value) and not (TABLE.value and (RESULTS.value or WORK.value)):
        raise app.UsageError("give --data and --work, or --table and --results")
    if not TABLE.value:
        data, work = Path(DATA.value), Path(WORK.value)
        work.mkdir(parents=True, exist_ok=True)
        for side in ("en", "de"):
            (work / f"val.{side}").write_bytes(subprocess.check_output(["gzip", "-dc", str(data / f"val.{side}.gz")]))
        if not (work / "data" / "text_files.json").exists():
            run("datagen", "--problem=text_files", f"--train={data}/train.en.gz,{data}/train.de.gz",
                f"--dev={data}/val.en.gz,{data}/val.de.gz", "--vocab_size=8000", f"--data_dir={work}/data")  # fmt: skip
        for seed in SEEDS.value:
            for row, (change, _, _) in ROWS.items():
                measure(row, change, seed)
    print_table()


if __name__ == "__main__":
    app.run(main)
