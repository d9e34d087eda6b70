"""Compares one model for German and French with a model for each, on Multi30k, as in
docs/languages.md.

    python benchmarks/languages.py --data=FOLDER --work=FOLDER [--seeds=1,2]

The --data folder holds train, val and test_2016_flickr as .en.gz, .de.gz and .fr.gz files. The
model for both languages takes twice as many steps as a model for one, because its data has twice as
many pairs. The script prints a table with the BLEU of the test set, the share of outputs in the
right language, and the results of the last evaluation of each dev corpus. It writes them to
results.json in the work folder and continues there after an interruption.

A word is German if the German side of the training text has it and the other sides, English and
French, do not; and so on. The language of a line is that of most of such words in it. The script
applies this rule to the references first.
"""

from __future__ import annotations

import functools
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from commands import run, run_trainer
from results import Results
from t2t_repro.files.textfile import read_lines

DATA = flags.DEFINE_string("data", None, "folder of the .gz files", required=True)
WORK = flags.DEFINE_string("work", None, "folder of all output", required=True)
SEEDS = flags.DEFINE_list("seeds", ["1", "2"], "random seeds")
LANGUAGES = ("de", "fr")
STEPS = 3136
TEST = "test_2016_flickr"
SEARCH = "--decode_hparams=alpha=1.0"
VOCAB_SIZES = {1: 8000, 2: 12000}
"""Size of the vocabulary by the number of target languages."""


def text_file(split: str, language: str) -> str:
    return f"{DATA.value}/{split}.{language}.gz"


def words_of_one_language() -> dict[str, str]:
    """Returns the language of each word that occurs in the training text of only one language."""
    languages: dict[str, set[str]] = {}
    for language in ("en", *LANGUAGES):
        for line in read_lines(text_file("train", language)):
            for word in words(line):
                languages.setdefault(word, set()).add(language)
    return {word: min(names) for word, names in languages.items() if len(names) == 1}


def words(line: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", line.lower())


def language_share(lines: Sequence[str], language: str, language_of: Mapping[str, str]) -> float:
    """Returns the share of lines, in %, that are in a language. A line without known words is in
    none.
    """
    counts = [
        Counter(language_of[word] for word in words(line) if word in language_of) for line in lines
    ]
    return 100 * statistics.mean(
        bool(count) and count.most_common(1)[0][0] == language for count in counts
    )


def generate(languages: Sequence[str]) -> str:
    """Generates the data of a model, unless it is complete. Returns its folder."""
    folder = f"{WORK.value}/data_{'_'.join(languages)}"
    pairs = {
        split: ";".join(
            f"{text_file(split, 'en')},{text_file(split, language)}" for language in languages
        )
        for split in ("train", "val")
    }
    kind = (
        f"--targets={','.join(languages)}"
        if len(languages) > 1
        else f"--languages=en,{languages[0]}"
    )
    options = [kind, f"--vocab_size={VOCAB_SIZES[len(languages)]}", f"--data_dir={folder}"]
    run(
        "datagen",
        "--problem=text_files",
        f"--train={pairs['train']}",
        f"--dev={pairs['val']}",
        *options,
    )
    return folder


def measure(languages: Sequence[str], seed: str, language_of: Mapping[str, str]) -> dict[str, Any]:
    """Trains a model and decodes the test set. Returns the figures of the table by their names."""
    model = f"{WORK.value}/{'_'.join(languages)}_{seed}"
    data = generate(languages)
    has_tags = len(languages) > 1
    evaluations = run_trainer(
        *(model, "--problem=text_files", "--hparams_set=transformer_tiny", f"--data_dir={data}"),
        *(
            f"--random_seed={seed}",
            f"--train_steps={STEPS * len(languages)}",
            "--precision=mixed_bfloat16",
        ),
        *(f"--local_eval_frequency={STEPS // 2}", f"--eval_decode_lines={100 * has_tags}"),
        *("--intra_op_parallelism_threads=1", "--inter_op_parallelism_threads=1"),
    )
    figures = {
        name: value
        for name, value in evaluations[-1].items()
        if name.startswith("dev_") and "/" in name
    }
    for language in languages:
        output = f"{model}.{language}"
        target = [f"--target_language={language}"] if has_tags else []
        files = [f"--decode_from_file={text_file(TEST, 'en')}", f"--decode_to_file={output}"]
        run("decoder", f"--output_dir={model}", *files, SEARCH, *target)
        reference = text_file(TEST, language)
        bleu, _ = run("bleu", f"--translation={output}", f"--reference={reference}")
        figures[f"BLEU {language}"] = float(bleu.split()[0])
        figures[f"right language, {language}"] = language_share(
            list(read_lines(output)), language, language_of
        )
    return figures


def main(argv: list[str]) -> None:
    """Measures the models of each seed, and prints a table of their figures and of the means."""
    results = Results(f"{WORK.value}/results.json")
    language_of = words_of_one_language()
    for language in ("en", *LANGUAGES):
        share = language_share(list(read_lines(text_file(TEST, language))), language, language_of)
        print(f"test set, lines in {language} by the words: {share:.2f}%")
    table: dict[str, dict[str, float]] = {}
    for languages in (("de",), ("fr",), LANGUAGES):
        name = f"en-{'+'.join(languages)}"
        rows = []
        for seed in SEEDS.value:
            rows.append(
                results.measure(
                    f"{name}, seed {seed}", functools.partial(measure, languages, seed, language_of)
                )
            )
            table[f"{name}, seed {seed}"] = rows[-1]
        table[f"{name}, mean"] = {key: statistics.mean(row[key] for row in rows) for key in rows[0]}
    columns = list(dict.fromkeys(name for row in table.values() for name in row))
    print(f"| model | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}", sep="\n")
    for name, row in table.items():
        print(
            f"| {name} | {' | '.join(f'{row[key]:.2f}' if key in row else '' for key in columns)} |"
        )


if __name__ == "__main__":
    app.run(main)
