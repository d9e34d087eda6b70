"""Measures t2t-decoder's engines, TensorFlow and CTranslate2, and CTranslate2 called directly, side
by side.

    python benchmarks/engines.py --model=M --lines=FILE [--threads=1] [--beam_sizes=4,1]
    [--alpha=0.6]
        [--quantizations=float32,int8] [--count=300] [--single=40] [--repetitions=5]

The script prints a Markdown table. Each search has two rows: all lines as one file, and --single
lines one at a time. In each repetition, every engine translates the lines once, one engine after
the other. TensorFlow computes in float32. The speeds are lines per second of wall time, as median
over the repetitions. Loading a model and building graphs do not count. So measure on an idle
machine, or with --cpu_time and one thread.

"direct" is a program that calls CTranslate2 with the same search as the engine (the third row of
the first table in docs/ctranslate2.md), the same batches and the same threads, with SentencePiece
for the text. The ratio "engine/direct" is the median (lowest to highest) of the ratios of single
repetitions. "equal" has the shares of lines that the engine translates like the direct call, and
like TensorFlow. CTranslate2 reads the environment variable CT2_USE_MKL, which can change its speed.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import ctranslate2
import numpy as np
import sentencepiece
from absl import app, flags

from spread import spread
from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.ctranslate2.export import TOKENIZER, export_ctranslate2
from t2t_repro.data.vocabularies.text_rules import one_line
from t2t_repro.decoding.translator import Translator
from t2t_repro.files.textfile import read_lines

MODEL = flags.DEFINE_string("model", None, "the model folder", required=True)
LINES = flags.DEFINE_string(
    "lines", None, "text to translate, plain or .gz; empty lines are skipped", required=True
)
COUNT = flags.DEFINE_integer("count", 300, "number of lines to translate as a file", lower_bound=1)
SINGLE = flags.DEFINE_integer(
    "single", 40, "number of lines to translate one at a time", lower_bound=0
)
BEAM_SIZES = flags.DEFINE_list(
    "beam_sizes", ["4", "1"], "numbers of hypotheses; 1 is greedy search"
)
ALPHA = flags.DEFINE_float("alpha", 0.6, "exponent of the length penalty", lower_bound=0)
THREADS = flags.DEFINE_integer("threads", 1, "CPU cores of each engine", lower_bound=1)
QUANTIZATIONS = flags.DEFINE_list(
    "quantizations", ["float32", "int8"], "types of the weights in CTranslate2"
)
CPU_TIME = flags.DEFINE_boolean(
    "cpu_time", False, "measure CPU time of all threads instead of wall time"
)
REPETITIONS = flags.DEFINE_integer(
    "repetitions", 5, "number of measurements of each engine", lower_bound=1
)
EXTRA_LENGTH = 50
BATCH_SIZE = 2048
"""Longest output minus input, and source tokens in a batch."""
TENSORFLOW = "TensorFlow float32"
"""Name of the engine with which the others are compared."""

Translate = Callable[[list[str]], list[str]]
"""Function that translates lines."""


def ours(**options: Any) -> Translate:
    """Returns t2t-decoder's translator with an engine."""
    options |= {"extra_length": EXTRA_LENGTH, "batch_size": BATCH_SIZE, "alpha": ALPHA.value}
    translator = Translator.from_dir(MODEL.value, **options)

    def translate(lines: list[str]) -> list[str]:
        return [translation.text for translation in translator.translate(lines, scores=False)]

    return translate


def best(result: Any) -> list[str]:
    """Returns the hypothesis with the best log-probability / length penalty."""
    scored = zip(result.scores, result.hypotheses, strict=True)
    return max(scored, key=lambda pair: pair[0] / ((6 + len(pair[1])) / 6) ** ALPHA.value)[1]


def direct(quantization: str, beam_size: int) -> Translate:
    """Returns CTranslate2, called without this package."""
    folder = ModelFolder(MODEL.value)
    with tempfile.TemporaryDirectory() as export_dir:
        path = export_ctranslate2(folder, folder.checkpoint(), export_dir, quantization)
        tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path / TOKENIZER))
        translator = ctranslate2.Translator(
            str(path), inter_threads=THREADS.value, intra_threads=1, compute_type=quantization
        )

    def translate(lines: list[str]) -> list[str]:
        sources = tokenizer.encode(lines, out_type=str)
        is_ranked = beam_size > 1 and ALPHA.value > 0
        ranking = (
            {"num_hypotheses": 2 * beam_size, "patience": 2, "return_scores": True}
            if is_ranked
            else {}
        )
        results = translator.translate_batch(
            sources,
            beam_size=beam_size,
            length_penalty=0,
            max_batch_size=BATCH_SIZE,
            batch_type="tokens",
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=max(map(len, sources)) + 1 + EXTRA_LENGTH,
            **ranking,
        )
        outputs = [best(result) if is_ranked else result.hypotheses[0] for result in results]
        return [one_line(text) for text in tokenizer.decode(outputs)]

    return translate


def measure(translate: Translate, lines: list[str], is_single: bool) -> tuple[list[str], float]:
    """Returns the translations, and the lines per second of wall time or CPU time."""
    clock = time.process_time if CPU_TIME.value else time.perf_counter
    start = clock()
    parts = [translate([line]) for line in lines] if is_single else [translate(lines)]
    return list(itertools.chain.from_iterable(parts)), len(lines) / (clock() - start)


def main(argv: list[str]) -> None:
    """Prints the table."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: THREADS.value])
    devices.set_threads(1, THREADS.value)
    all_lines = (line.strip() for line in read_lines(LINES.value))
    lines = list(itertools.islice(filter(None, all_lines), max(COUNT.value, SINGLE.value)))
    clock = "CPU" if CPU_TIME.value else "wall"
    load = os.getloadavg()[0]
    print(
        f"{MODEL.value}: {COUNT.value} lines, {SINGLE.value} one at a time, alpha {ALPHA.value}, "
        f"{THREADS.value} threads, {REPETITIONS.value} repetitions, {clock} time, load "
        f"{load:.1f}\n"
    )
    print(
        "| search | type | TensorFlow | engine | direct | engine/direct | engine/TensorFlow | "
        "equal |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for beam_size, is_single in itertools.product(map(int, BEAM_SIZES.value), (False, True)):
        engines = {TENSORFLOW: ours(beam_size=beam_size)}
        for name in QUANTIZATIONS.value:
            engines[f"engine {name}"] = ours(
                beam_size=beam_size, engine="ctranslate2", quantization=name
            )
            engines[f"direct {name}"] = direct(name, beam_size)
        texts = lines[: SINGLE.value if is_single else COUNT.value]
        outputs = dict[str, list[str]]()
        speeds = {name: list[float]() for name in engines}
        for repetition in range(REPETITIONS.value + 1):
            for name, translate in engines.items():
                outputs[name], speed = measure(translate, texts, is_single)
                speeds[name] += [speed] if repetition else []  # the first run does not count
        for name in QUANTIZATIONS.value:
            print(
                (
                    f"| beam {beam_size}{', one at a time' * is_single} | "
                    f"{row(name, outputs, speeds)} |"
                ),
                flush=True,
            )


def row(quantization: str, outputs: dict[str, list[str]], speeds: dict[str, list[float]]) -> str:
    """Returns the cells of a search with one type of weights."""
    names = TENSORFLOW, f"engine {quantization}", f"direct {quantization}"
    tensorflow, engine, called = (np.array(speeds[name]) for name in names)
    equal = (
        np.mean(np.array(outputs[names[1]]) == np.array(outputs[name]))
        for name in (names[2], TENSORFLOW)
    )
    cells = [
        quantization,
        *(f"{np.median(x):,.1f}" for x in (tensorflow, engine, called)),
        spread(engine / called, 2),
    ]
    return " | ".join(
        [
            *cells,
            f"{np.median(engine / tensorflow):.2f}",
            "; ".join(f"{share:.1%}" for share in equal),
        ]
    )


if __name__ == "__main__":
    app.run(main)
