"""Trains a small parser on the free Penn Treebank sample and scores it by EVALB's rules. See docs/parsing.md.

    python benchmarks/parsing.py --data=FOLDER --work=FOLDER [--train_steps=N] [--hparams=...]

The --data folder holds the sample as wsj/00 and wsj/01. The script prints the scores of the parser and of
right-branching trees as a baseline, how many outputs of the parser needed repairs, and the training time in minutes.
"""

from __future__ import annotations

import time
from pathlib import Path

from absl import app, flags

from commands import run
from t2t_repro.parsing.evalb import score_files, summarise
from t2t_repro.parsing.trees import read_trees, right_branching, under_top

DATA = flags.DEFINE_string("data", None, "folder of the sample", required=True)
WORK = flags.DEFINE_string("work", None, "folder of data, model and outputs", required=True)
HPARAMS = flags.DEFINE_string("hparams", "", "overrides of the hparams in docs/parsing.md")
TRAIN_STEPS = flags.DEFINE_integer("train_steps", 4000, "training steps", lower_bound=1)
SMALL_PARSER = (
    "num_hidden_layers=4,max_length=512,norm_before=true,layer_prepostprocess_dropout=0.2,"
    "learning_rate_constant=0.003,learning_rate_warmup_steps=500"
)


def row(name: str, gold: str, test: str) -> str:
    """Returns a Markdown row: the scores of file `test` over all sentences, then over sentences of at most 40 words."""
    sentences = list(score_files(gold, test))
    cells = []
    for subset in (sentences, [sentence for sentence in sentences if sentence.length <= 40]):
        summary = summarise(subset)
        cells += [f"{summary.recall:.2f}", f"{summary.precision:.2f}", f"{summary.f_measure:.2f}",
                  f"{summary.complete_match:.1f}"]  # fmt: skip
    return f"| {name} | {' | '.join(cells)} | {summarise(sentences).tagging_accuracy:.2f} |"


def main(argv: list[str]) -> None:
    """Generates the data, trains a parser, parses the dev and the test split and prints a table of scores."""
    data, model = f"{WORK.value}/data", f"{WORK.value}/model"
    run("datagen", "--problem=wsj_parsing", "--train_sections=00,0100-0159", "--dev_sections=0160-0179",
        "--test_sections=0180-0199", f"--tmp_dir={DATA.value}", "--vocab_size=4000", f"--data_dir={data}")  # fmt: skip
    start = time.monotonic()
    run("trainer", "--problem=wsj_parsing", "--hparams_set=transformer_tiny", f"--data_dir={data}",
        f"--output_dir={model}", f"--train_steps={TRAIN_STEPS.value}", "--local_eval_frequency=250",
        "--precision=mixed_bfloat16", "--intra_op_parallelism_threads=1", "--inter_op_parallelism_threads=1",
        f"--hparams={SMALL_PARSER}{HPARAMS.value and ','}{HPARAMS.value}")  # fmt: skip
    minutes = (time.monotonic() - start) / 60
    run("avg-checkpoints", f"--output_dir={model}", "--num_last_checkpoints=5")
    rows = []
    for split in ("dev", "test"):
        words, gold = (f"{data}/wsj_parsing.{split}.{suffix}" for suffix in ("words", "trees"))
        parsed, branching = f"{WORK.value}/{split}.parsed", f"{WORK.value}/{split}.right_branching"
        _, messages = run(
            "decoder", f"--output_dir={model}", f"--decode_from_file={words}", f"--decode_to_file={parsed}"
        )
        print(f"{split}: {messages.splitlines()[-1]}")
        trees = (under_top(right_branching(list(tree.leaves()))) for tree in read_trees(gold))
        Path(branching).write_text("".join(f"{tree}\n" for tree in trees))
        rows += [row(f"this parser, {split}", gold, parsed), row(f"right-branching, {split}", gold, branching)]
    print(f"training: {minutes:.1f} minutes\n")
    print("| | LR | LP | F1 | complete | LR <= 40 | LP <= 40 | F1 <= 40 | complete <= 40 | tags |")
    print("| --- |" + " ---: |" * 9, *rows, sep="\n")


if __name__ == "__main__":
    app.run(main)
