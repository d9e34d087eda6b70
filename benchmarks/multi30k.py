"""Trains, averages, decodes and scores Multi30k EN-DE as docs/multi30k.md says; prints a row for each run.

    python benchmarks/multi30k.py --data=FOLDER --work=FOLDER [--seeds=1,2] [--norm_before=false,true]

FOLDER holds train, val and test_2016_flickr as .en.gz and .de.gz. CPU minutes are user and system time of the whole
t2t-trainer process, as the kernel counts them.
"""

from __future__ import annotations

import gzip
import resource
import time
from pathlib import Path

from absl import app, flags

from commands import run
from t2t_repro.data.batching import plan
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.summary import padding

DATA = flags.DEFINE_string("data", None, "folder of the .gz files", required=True)
WORK = flags.DEFINE_string("work", None, "folder for everything that is made", required=True)
SEEDS = flags.DEFINE_list("seeds", ["1", "2"], "random seeds")
NORM_BEFORE = flags.DEFINE_list("norm_before", ["false", "true"], "pre-norm, post-norm, or both")
PRECISION = flags.DEFINE_string("precision", "mixed_bfloat16", "of the training")


def text(name: str) -> tuple[str, str]:
    """The English and German files of a split, unpacked into the work folder."""
    paths = []
    for language in ("en", "de"):
        path = Path(WORK.value) / f"{name}.{language}"
        path.write_bytes(gzip.decompress((Path(DATA.value) / f"{name}.{language}.gz").read_bytes()))
        paths.append(str(path))
    return paths[0], paths[1]


def main(argv: list[str]) -> None:
    """Runs everything."""
    Path(WORK.value).mkdir(parents=True, exist_ok=True)
    data = f"{WORK.value}/data"
    splits = {name: text(name) for name in ("train", "val", "test_2016_flickr")}
    run("datagen", "--problem=text_files", f"--train={','.join(splits['train'])}", f"--dev={','.join(splits['val'])}",
        "--vocab_size=8000", f"--data_dir={data}")  # fmt: skip
    rows = []
    for norm_before in NORM_BEFORE.value:
        for seed in SEEDS.value:
            model = f"{WORK.value}/norm_before_{norm_before}_seed_{seed}"
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            run("trainer", "--problem=text_files", "--hparams_set=transformer_tiny", f"--data_dir={data}",
                f"--output_dir={model}", f"--random_seed={seed}",
                f"--precision={PRECISION.value}", "--intra_op_parallelism_threads=1",
                "--inter_op_parallelism_threads=1",
                f"--hparams=norm_before={norm_before}")  # fmt: skip
            wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            run("avg-checkpoints", f"--output_dir={model}")
            scores = []
            for name in ("val", "test_2016_flickr"):
                source, reference = splits[name]
                output = f"{model}.{name}"
                run("decoder", f"--output_dir={model}", f"--decode_from_file={source}", f"--decode_to_file={output}")
                scores.append(run("bleu", f"--translation={output}", f"--reference={reference}")[0].split()[0])
            name = "pre-norm" if norm_before == "true" else "post-norm"
            rows.append(f"| {name} | {seed} | {' | '.join(scores)} | {cpu / 60:.1f} | {wall / 60:.1f} |")
            print(rows[-1], flush=True)
    print("\n| norm | seed | BLEU val | BLEU test_2016_flickr | CPU minutes | minutes |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join(rows))
    lengths = Records(find_shards(data, "text_files", "train")).lengths
    for batch_size, max_tokens in ((2048, 4096), (4096, 2048), (4096, 4096)):
        share = padding(lengths, plan(lengths, batch_size, 256, seed=1, epoch=0), max_tokens)
        print(f"padding, batch_size={batch_size}, max_tokens_per_replica={max_tokens}: {share:.2%}")


if __name__ == "__main__":
    app.run(main)
