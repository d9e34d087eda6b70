"""Exports models and compares the exported models' translations with t2t-decoder's; prints a table
row for each.

    python benchmarks/served_equal.py --models=M1,M2 --lines=FILE [--count=200]

Another process serves the exported model. It does not import this project's code.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from absl import app, flags

from commands import run
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.files.textfile import read_lines

MODELS = flags.DEFINE_list("models", None, "model folders", required=True)
LINES = flags.DEFINE_string("lines", None, "text to translate, plain or .gz", required=True)
COUNT = flags.DEFINE_integer("count", 200, "maximum number of lines to translate")

SERVER = """
import json, sys
import tensorflow as tf
import tensorflow_text
folder, lines = json.load(sys.stdin)
reply = tf.saved_model.load(folder).signatures["serving_default"](inputs=tf.constant(lines))
assert not [name for name in sys.modules if name.startswith("t2t_repro")]
json.dump([reply["outputs"].numpy().tolist(), reply["scores"].numpy().tolist()], sys.stdout, default=bytes.decode)
"""  # noqa: E501
"""The program of the process that serves. It reads the model's folder and the lines, and writes
texts and scores.
"""


def served(model: str, lines: list[str], work: Path) -> tuple[list[str], list[float]]:
    """Exports a model to a folder in `work`. Returns the served translations of the lines and their
    scores.
    """
    run("exporter", f"--output_dir={model}", f"--export_dir={work}/export")
    command = [sys.executable, "-P", "-c", SERVER]
    request = json.dumps([f"{work}/export/1", lines])
    process = subprocess.run(command, input=request, stdout=subprocess.PIPE, text=True, check=True)
    texts, scores = json.loads(process.stdout)
    return texts, scores


def decoded(model: str, lines: list[str], work: Path) -> tuple[list[str], list[float]]:
    """Returns t2t-decoder's translations of the lines and their scores."""
    source = work / "source"
    output = work / "output"
    source.write_text("\n".join(lines) + "\n", "utf-8")
    files = [f"--decode_from_file={source}", f"--decode_to_file={output}"]
    run("decoder", f"--output_dir={model}", *files, "--decode_hparams=write_beam_scores=true")
    rows = [line.split("\t") for line in read_lines(str(output))]
    return [row[0] for row in rows], [float(row[1]) for row in rows]


def main(argv: list[str]) -> None:
    """Prints a Markdown table."""
    lines = list(itertools.islice(read_lines(LINES.value), COUNT.value))
    print(
        "| family | lines | equal translations | largest difference of scores |\n| --- | ---: | "
        "---: | ---: |"
    )
    for model in MODELS.value:
        with tempfile.TemporaryDirectory() as work:
            (texts, scores), (our_texts, our_scores) = (
                get(model, lines, Path(work)) for get in (served, decoded)
            )
        equal = sum(map(str.__eq__, texts, our_texts))
        difference = max(abs(a - b) for a, b in zip(scores, our_scores, strict=True))
        print(
            f"| `{ModelFolder(model).hparams.model}` | {len(lines)} | {equal} | {difference:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
