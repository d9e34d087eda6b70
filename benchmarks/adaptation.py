"""Adapts a general English-German model to news or captions, as in docs/adaptation.md; prints a
table of BLEU.

    python benchmarks/adaptation.py --data=FOLDER --work=FOLDER --to=news|captions
    [--runs=NAME,NAME]

The --data folder has the folders multi30k (train, val and test_2016_flickr as .en.gz and .de.gz
files), tatoeba (tatoeba-test-v2021-08-07.en-de.en and .de) and wmt_news (news-test2008 to
newstest2018, .en and .de). The general text is Tatoeba with the captions or with the news, the one
of the two to which the model is not adapted. The script writes the scores to results.json in the
work folder and skips runs that this file has, so the same command continues after an interruption.
The model of the run "general" must be trained before those that start from it.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable
from pathlib import Path

from absl import app, flags

from commands import run, run_trainer
from results import Results
from t2t_repro.files.output_files import write_file
from t2t_repro.files.textfile import read_lines

DATA = flags.DEFINE_string("data", None, "folder of the data", required=True)
WORK = flags.DEFINE_string("work", None, "folder of all output", required=True)
TO = flags.DEFINE_enum(
    "to", "news", ["news", "captions"], "kind of text to which the model is adapted"
)
NAMES = flags.DEFINE_list("runs", [], "names of the runs; default: all")
NEWS = ["news-test2008", *(f"newstest{year}" for year in range(2009, 2014)),
        *(f"newstest{year}.en-de" for year in range(2014, 2018))]  # fmt: skip
TESTS = ("captions", "tatoeba", "news")
DATA_SETS = {
    "general": {"train": ["general"], "dev": ["general_dev"]},
    "new": {"train": ["train"], "dev": ["dev", "general_dev"]},
    "old_vocabulary": {"train": ["train"], "dev": ["dev", "general_dev"]},
    "mixed": {"train": ["train", "general"], "dev": ["dev", "general_dev"]},
}
"""Texts of each split, by the name of the data."""


def adapt(data: str, rate: float, freeze: str = "", steps: int = 784) -> tuple[str, ...]:
    """Returns the data of an adaptation and its flags of t2t-trainer."""
    hparams = f"--hparams=learning_rate_constant={rate},learning_rate_warmup_steps=80"
    return (
        data,
        f"--warm_start_from={WORK.value}/general",
        f"--train_steps={steps}",
        hparams,
        f"--freeze={freeze}",
    )


def runs() -> dict[str, tuple[str, ...]]:
    """Returns the data of each run and its flags of t2t-trainer, by the name of its model
    folder.
    """
    scratch = {
        "scratch_3136": ("new",),
        "scratch_784": ("new", "--train_steps=784", "--hparams=learning_rate_warmup_steps=200"),
    }
    if TO.value == "news":
        return {
            "general": ("general", "--train_steps=7840"),
            **scratch,
            "scratch_7840": ("new", "--train_steps=7840"),
            "new_vocabulary": adapt("new", 0.005),
            "old_vocabulary": adapt("old_vocabulary", 0.005),
            "mixed": adapt("mixed", 0.005),
            "mixed_1568": adapt("mixed", 0.005, steps=1568),
        }
    return {
        "general": ("general",),
        **scratch,
        **{f"new_vocabulary_{rate}": adapt("new", rate) for rate in (0.005, 0.01)},
        "new_vocabulary_1568": adapt("new", 0.005, steps=1568),
        **{
            f"old_vocabulary_{rate}": adapt("old_vocabulary", rate)
            for rate in (0.005, 0.002, 0.0005)
        },
        **{f"mixed_{rate}": adapt("mixed", rate) for rate in (0.005, 0.002)},
        "frozen_encoder_0.005": adapt("old_vocabulary", 0.005, "encoder"),
        "frozen_embedding_encoder_0.005": adapt("old_vocabulary", 0.005, "embedding,encoder"),
    }


def write_texts() -> None:
    """Writes the texts: of the new kind (train, dev), of other kinds (general, general_dev), and
    all tests.

    Tatoeba is divided by the English sentence, so that no sentence of a test set is in the training
    text.
    """
    held_out = pairs("wmt_news/newstest2018.en-de.{}")
    captions = {
        name: pairs(f"multi30k/{name}.{{}}.gz") for name in ("train", "val", "test_2016_flickr")
    }
    kinds = {
        "captions": (captions["train"], captions["val"]),
        "news": (
            [pair for name in NEWS for pair in pairs(f"wmt_news/{name}.{{}}")],
            held_out[1000:2000],
        ),
    }
    texts: dict[str, list[tuple[str, ...]]] = {"general": [], "general_dev": [], "tatoeba": []}
    for pair in pairs("tatoeba/tatoeba-test-v2021-08-07.en-de.{}"):
        texts[
            ("tatoeba", "general_dev", *["general"] * 14)[zlib.crc32(pair[0].encode()) % 16]
        ].append(pair)
    texts["train"], texts["dev"] = kinds.pop(TO.value)
    for train, dev in kinds.values():
        texts["general"] += train
        texts["general_dev"] += dev
    texts["captions"] = captions["test_2016_flickr"]
    texts["news"] = held_out[:1000]
    texts["tests"] = [pair for name in TESTS for pair in texts[name]]
    for name, text in texts.items():
        for language, lines in zip(("en", "de"), zip(*text, strict=True), strict=True):
            write(f"{name}.{language}", lines)


def pairs(path: str) -> list[tuple[str, ...]]:
    return list(
        zip(
            *(read_lines(f"{DATA.value}/{path.format(language)}") for language in ("en", "de")),
            strict=True,
        )
    )


def write(name: str, lines: Iterable[str]) -> None:
    """Writes a text to the work folder in one step, because several of these scripts may use the
    folder.
    """
    write_file(f"{WORK.value}/{name}", "".join(f"{line}\n" for line in lines))


def generate(name: str) -> str:
    """Generates the data `name`, unless it is complete. Returns its folder."""
    work = WORK.value
    folder = f"{WORK.value}/data_{name}"
    weight = ":1" if name == "mixed" else ""
    texts = [
        f"--train={work}/{text}.en,{work}/{text}.de{weight}" for text in DATA_SETS[name]["train"]
    ]
    texts += [f"--dev={work}/{text}.en,{work}/{text}.de" for text in DATA_SETS[name]["dev"]]
    learns = name in ("general", "new")
    vocabulary = (
        "--vocab_size=8000"
        if learns
        else f"--vocab_file={work}/general/vocab.text_files.8000.model"
    )
    run(
        "datagen",
        "--problem=text_files",
        "--languages=en,de",
        *texts,
        vocabulary,
        f"--data_dir={folder}",
    )
    return folder


def measure(name: str) -> dict[str, float]:
    """Trains a model and translates the test sets. Returns the BLEU of each test set."""
    data, *options = runs()[name]
    model = f"{WORK.value}/{name}"
    run_trainer(
        model,
        "--problem=text_files",
        "--hparams_set=transformer_tiny",
        f"--data_dir={generate(data)}",
        "--random_seed=1",
        "--precision=mixed_bfloat16",
        "--local_eval_frequency=784",
        "--eval_decode_lines=0",
        "--keep_checkpoint_max=1",
        "--intra_op_parallelism_threads=1",
        "--inter_op_parallelism_threads=1",
        *options,
    )
    run("decoder", f"--output_dir={model}", f"--decode_from_file={WORK.value}/tests.en",
        f"--decode_to_file={model}.tests", "--decode_hparams=alpha=1.0")  # fmt: skip
    lines = list(read_lines(f"{model}.tests"))
    scores = {}
    for test in TESTS:
        reference = f"{WORK.value}/{test}.de"
        size = len(list(read_lines(reference)))
        write(f"{name}.{test}", lines[:size])
        bleu, _ = run("bleu", f"--translation={model}.{test}", f"--reference={reference}")
        scores[test] = float(bleu.split()[0])
        lines = lines[size:]
    return scores


def main(argv: list[str]) -> None:
    """Trains and scores each run, and prints a table of BLEU."""
    Path(WORK.value).mkdir(parents=True, exist_ok=True)
    results = Results(f"{WORK.value}/results.json")
    write_texts()
    table = {
        name: results.measure(name, functools.partial(measure, name))
        for name in NAMES.value or runs()
    }
    print(
        f"| run | {' | '.join(f'BLEU {test}' for test in TESTS)} |",
        f"| --- |{' ---: |' * len(TESTS)}",
        sep="\n",
    )
    for name, scores in table.items():
        print(f"| {name} | {' | '.join(f'{scores[test]:.2f}' for test in TESTS)} |")


if __name__ == "__main__":
    app.run(main)
