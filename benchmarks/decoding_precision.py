"""Compares decoding in float32 and bfloat16: BLEU, share of lines that differ, and CPU time. See
docs/decoding.md.

    python benchmarks/decoding_precision.py --output_dir=M --test_set=val.en,val.de [--test_set=...]
    [--repetitions=5]

The script decodes each test set in both precisions in turn, on one thread, and prints a Markdown
table: sacreBLEU's BLEU, and the median, lowest and highest CPU seconds of the repetitions, without
the time to load the model.
"""

from __future__ import annotations

import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sacrebleu
import tensorflow as tf
from absl import app, flags

from t2t_repro.decoding.tensorflow_engine import PRECISIONS
from t2t_repro.decoding.translator import Translator
from t2t_repro.files.textfile import read_lines

OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "the model folder", required=True)
TEST_SETS = flags.DEFINE_multi_string(
    "test_set", None, "SOURCE_FILE,REFERENCE_FILE; may be repeated", required=True
)
REPETITIONS = flags.DEFINE_integer(
    "repetitions", 5, "number of times that each test set is decoded", lower_bound=1
)


def timed(translator: Translator, texts: list[str]) -> tuple[list[str], float]:
    """Returns the translations of the texts, and the CPU seconds that they took."""
    start = time.process_time()
    translations = [translation.text for translation in translator.translate(texts)]
    return translations, time.process_time() - start


def main(argv: list[str]) -> None:
    """Prints a line of the table for each test set."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    translators = {
        name: Translator.from_dir(OUTPUT_DIR.value, precision=name) for name in PRECISIONS
    }
    print(f"{translators['float32'].decode_hparams}\n")
    print(
        "| test set | BLEU, float32 | bfloat16 | lines that differ | CPU seconds, float32 | "
        "bfloat16 |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for source, reference in (pair.split(",") for pair in TEST_SETS.value):
        texts, references = (list(read_lines(path)) for path in (source, reference))
        outputs = dict[str, list[str]]()
        seconds = {name: list[float]() for name in PRECISIONS}
        for repetition in range(REPETITIONS.value + 1):
            for name, translator in translators.items():
                outputs[name], cpu_seconds = timed(translator, texts if repetition else texts[:10])
                if repetition:  # repetition 0 builds the graph
                    seconds[name].append(cpu_seconds)
        scores = [
            f"{sacrebleu.corpus_bleu(outputs[name], [references]).score:.2f}" for name in PRECISIONS
        ]
        differing = sum(map(str.__ne__, *outputs.values()))
        times = [
            f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
            for values in seconds.values()
        ]
        cells = [
            os.path.splitext(os.path.basename(source))[0],
            *scores,
            f"{differing} of {len(texts)}",
            *times,
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    app.run(main)
