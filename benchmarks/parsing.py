"""Trains a small parser on the free Penn Treebank sample and scores it by EVALB's rules. See
docs/parsing.md.

    python benchmarks/parsing.py --data=FOLDER --work=FOLDER [--train_steps=N] [--hparams=...]

The --data folder holds the sample as wsj/00 and wsj/01. The script parses the dev and the test
split twice: with a free search, and with well_formed=true. It prints the scores, the number of
outputs that t2t-decoder repaired, the seconds of each run of t2t-decoder, the scores of
right-branching trees as a baseline, and the training time in minutes. If the script is started
again with the same arguments, it continues where it was interrupted.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from commands import run, run_trainer
from results import Results
from t2t_repro.parsing.evalb import score_files, summarise
from t2t_repro.parsing.trees import PUNCTUATION, Tree, read_trees, under_top
from t2t_repro.training.metrics_log import read_metrics

DATA = flags.DEFINE_string("data", None, "folder of the sample", required=True)
WORK = flags.DEFINE_string("work", None, "folder of data, model and outputs", required=True)
HPARAMS = flags.DEFINE_string("hparams", "", "overrides of the hparams in docs/parsing.md")
WORD_SYMBOL = flags.DEFINE_enum(
    "word_symbol", "word", ["tag", "XX", "word"], "what stands for a word in a tree"
)
TRAIN_STEPS = flags.DEFINE_integer("train_steps", 18000, "training steps", lower_bound=1)
SMALL_PARSER = (
    "num_hidden_layers=4,max_length=512,layer_prepostprocess_dropout=0.3,attention_dropout=0.1,"
    "relu_dropout=0.1,initializer_gain=0.25,batch_size=512,learning_rate_constant=0.002,"
    "learning_rate_warmup_steps=1500"
)
SEARCHES = {"free": "", "well_formed": "well_formed=true"}
"""Value of --decode_hparams for each search, by the search's name in the table."""


def right_branching(words: Sequence[Tree]) -> Tree:
    """Returns a right-branching tree, the output of a baseline parser: (S the (VP dog (VP barks
    loudly .))).

    No inner constituent starts with punctuation. EVALB ignores punctuation, so such a constituent
    would have the same span as the next one inside it.
    """
    starts = [position for position, word in enumerate(words) if word.label not in PUNCTUATION] or [
        0
    ]
    children: tuple[Tree, ...] = ()
    for position in reversed(range(starts[0] + 1, len(words))):
        children = (words[position], *children)
        if position in starts[:-1]:
            children = (Tree("VP", children),)
    return Tree("S", (*words[: starts[0] + 1], *children))


def train(data: str, model: str) -> None:
    """Generates the data and trains the parser, unless a process has done so already.

    The checkpoints are not averaged: the learning rate falls to 0, and then the last checkpoint is
    the best.
    """
    if not Path(data, "wsj_parsing.json").exists():
        run(
            "datagen",
            "--problem=wsj_parsing",
            "--train_sections=00,0100-0159",
            "--dev_sections=0160-0179",
            "--test_sections=0180-0199",
            f"--tmp_dir={DATA.value}",
            "--vocab_size=4000",
            f"--word_symbol={WORD_SYMBOL.value}",
            f"--data_dir={data}",
        )
    if not Path(model, f"model.ckpt-{TRAIN_STEPS.value}.index").exists():
        run_trainer(
            model,
            "--problem=wsj_parsing",
            "--hparams_set=transformer_tiny",
            f"--data_dir={data}",
            f"--train_steps={TRAIN_STEPS.value}",
            "--local_eval_frequency=500",
            "--precision=mixed_bfloat16",
            "--intra_op_parallelism_threads=1",
            "--inter_op_parallelism_threads=1",
            f"--hparams={SMALL_PARSER}{HPARAMS.value and ','}{HPARAMS.value}",
        )


def parse(words: str, model: str, search: str, output: str) -> tuple[int, float]:
    """Parses a file of sentences.

    Returns the number of outputs that were repaired, and the seconds that t2t-decoder took.

    Args:
        search: a key of `SEARCHES`.
        output: path of the trees.
    """
    start = time.monotonic()
    _, messages = run(
        "decoder",
        f"--output_dir={model}",
        f"--decode_from_file={words}",
        f"--decode_to_file={output}",
        f"--decode_hparams={SEARCHES[search]}",
    )
    # Printed only if there are repairs.
    repairs = re.search(r"^trees: ([\d,]+)", messages, re.MULTILINE)
    return int(repairs[1].replace(",", "")) if repairs else 0, time.monotonic() - start


def row(name: str, gold: str, test: str, *cells: str) -> str:
    """Returns a Markdown row: the scores of file `test` over all sentences, then over sentences of
    at most 40 words.

    The row ends with `cells`.
    """
    sentences = list(score_files(gold, test))
    scores = []
    for subset in (sentences, [sentence for sentence in sentences if sentence.length <= 40]):
        summary = summarise(subset)
        scores += [f"{summary.recall:.2f}", f"{summary.precision:.2f}", f"{summary.f_measure:.2f}",
                   f"{summary.complete_match:.1f}"]  # fmt: skip
    return (
        f"| {' | '.join([name, *scores, f'{summarise(sentences).tagging_accuracy:.2f}', *cells])} |"
    )


def main(argv: list[str]) -> None:
    """Trains a parser, parses the dev and the test split with each search, and prints a table of
    scores.
    """
    data = f"{WORK.value}/data"
    model = f"{WORK.value}/model"
    train(data, model)
    results = Results(f"{WORK.value}/results.json")
    rows = []
    for split in ("dev", "test"):
        words, gold = (f"{data}/wsj_parsing.{split}.{suffix}" for suffix in ("words", "trees"))
        for search in SEARCHES:
            output = f"{WORK.value}/{split}.{search}.{TRAIN_STEPS.value}"
            measure = functools.partial(parse, words, model, search, output)
            repaired, seconds = results.measure(Path(output).name, measure)
            rows.append(row(f"{search}, {split}", gold, output, f"{repaired:,}", f"{seconds:.0f}"))
        branching = f"{WORK.value}/{split}.right_branching"
        trees = (under_top(right_branching(list(tree.leaves()))) for tree in read_trees(gold))
        Path(branching).write_text("".join(f"{tree}\n" for tree in trees))
        rows.append(row(f"right-branching, {split}", gold, branching, "", ""))
    training = [line["seconds"] for line in read_metrics(model) if "seconds" in line]
    print(f"training: {training[-1] / 60:.1f} minutes\n")
    print(
        "| | LR | LP | F1 | complete | LR <= 40 | LP <= 40 | F1 <= 40 | complete <= 40 | tags | "
        "repaired | seconds |"
    )
    print("| --- |" + " ---: |" * 11, *rows, sep="\n")


if __name__ == "__main__":
    app.run(main)
