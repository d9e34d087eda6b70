"""Measures t2t-decoder and CTranslate2 side by side: prints lines and output tokens per second as a Markdown table.

    python benchmarks/decode_ctranslate2.py --model=M --lines=FILE [--beam_size=4] [--threads=1] [--one_at_a_time]
        [--precisions=float32,bfloat16] [--quantizations=float32,int8] [--repetitions=5]

The script exports the model like t2t-exporter --format=ctranslate2. In each repetition, every engine translates the
lines once, one engine after the other. Speeds are medians of wall time over the repetitions, with the smallest and the
largest value; loading a model and building graphs do not count. So measure on an idle machine, or with --cpu_time and
one thread. The last column is the share of lines that an engine translates like the first one. The script fails if this
share is below --min_equal for CTranslate2's float32. CTranslate2 lacks t2t-decoder's length penalty; with --alpha=0 no
search has one (docs/ctranslate2.md). CTranslate2 reads the environment variable CT2_USE_MKL, which can change its
speed: run the script with 0 and with 1.
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
LINES = flags.DEFINE_string("lines", None, "text to translate, plain or .gz; empty lines are skipped", required=True)
COUNT = flags.DEFINE_integer("count", 300, "number of lines to translate", lower_bound=1)
BEAM_SIZE = flags.DEFINE_integer("beam_size", 4, "number of hypotheses; 1 is greedy search", lower_bound=1)
ALPHA = flags.DEFINE_float("alpha", 0.6, "exponent of t2t-decoder's length penalty", lower_bound=0)
EXTRA_LENGTH = flags.DEFINE_integer("extra_length", 50, "longest output minus input", lower_bound=0)
BATCH_SIZE = flags.DEFINE_integer("batch_size", 2048, "source tokens decoded together, for both engines", lower_bound=1)
THREADS = flags.DEFINE_integer("threads", 1, "CPU threads of each engine", lower_bound=1)
ONE_AT_A_TIME = flags.DEFINE_boolean("one_at_a_time", False, "translate each line by itself")
PRECISIONS = flags.DEFINE_list("precisions", ["float32"], "precisions of t2t-decoder: float32, bfloat16")
QUANTIZATIONS = flags.DEFINE_list("quantizations", ["float32", "int8"], "types of the weights in CTranslate2")
CPU_TIME = flags.DEFINE_boolean("cpu_time", False, "measure CPU time of all threads instead of wall time")
REPETITIONS = flags.DEFINE_integer("repetitions", 5, "number of measurements of each engine", lower_bound=1)
MIN_EQUAL = flags.DEFINE_float("min_equal", 0.95, "smallest share of equal lines in float32")

Engine = Callable[[list[str]], tuple[list[str], int]]
"""Function that translates lines together. Returns the translations and their number of tokens, with end tokens."""


def ours(precision: str) -> Engine:
    """Returns t2t-decoder's translator as an engine."""
    translator = Translator.from_dir(
        MODEL.value,
        precision=precision,
        beam_size=BEAM_SIZE.value,
        alpha=ALPHA.value,
        extra_length=EXTRA_LENGTH.value,
        batch_size=BATCH_SIZE.value,
    )

    def translate(lines: list[str]) -> tuple[list[str], int]:
        best = [translation.hypotheses[0] for translation in translator.translate(lines)]
        return [hypothesis.text for hypothesis in best], sum(len(hypothesis.ids) for hypothesis in best)

    return translate


def theirs(quantization: str) -> Engine:
    """Returns CTranslate2 as an engine, with the settings whose search is most like t2t-decoder's."""
    folder = ModelFolder(MODEL.value)
    with tempfile.TemporaryDirectory() as export_dir:
        path = export_ctranslate2(folder, folder.checkpoint(), export_dir, quantization)
        tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path / TOKENIZER))
        # Several batches at a time are faster than several threads for a batch. A single line has only one batch.
        threads = (1, THREADS.value) if ONE_AT_A_TIME.value else (THREADS.value, 1)
        translator = ctranslate2.Translator(str(path), inter_threads=threads[0], intra_threads=threads[1])
    # For outputs of about n tokens, α * n / (n + 6) gives nearly the same ranking. 18 is typical of Multi30k.
    options: dict[str, Any] = {"beam_size": BEAM_SIZE.value, "length_penalty": ALPHA.value * 18 / (18 + 6)}

    def translate(lines: list[str]) -> tuple[list[str], int]:
        sources = tokenizer.encode(lines, out_type=str)
        results = translator.translate_batch(
            sources,
            max_batch_size=BATCH_SIZE.value,
            batch_type="tokens",
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=max(map(len, sources)) + 1 + EXTRA_LENGTH.value,
            **options,
        )
        pieces = [result.hypotheses[0] for result in results]
        return [one_line(text) for text in tokenizer.decode(pieces)], sum(len(output) + 1 for output in pieces)

    return translate


def measure(engine: Engine, lines: list[str]) -> tuple[list[str], int, float]:
    """Returns the engine's translations, their number of tokens, and the seconds of wall time or CPU time."""
    clock = time.process_time if CPU_TIME.value else time.perf_counter
    start = clock()
    parts = [engine([line]) for line in lines] if ONE_AT_A_TIME.value else [engine(lines)]
    seconds = clock() - start
    return [text for texts, _ in parts for text in texts], sum(tokens for _, tokens in parts), seconds


def main(argv: list[str]) -> None:
    """Prints the table."""
    devices.set_threads(1, THREADS.value)
    lines = list(itertools.islice((line.strip() for line in read_lines(LINES.value) if line.strip()), COUNT.value))
    engines = {f"t2t-decoder {precision}": ours(precision) for precision in PRECISIONS.value}
    engines |= {f"CTranslate2 {quantization}": theirs(quantization) for quantization in QUANTIZATIONS.value}
    results = {name: [measure(engine, lines)] for name, engine in engines.items()}  # a first run, which does not count
    for _ in range(REPETITIONS.value):
        for name, engine in engines.items():
            results[name].append(measure(engine, lines))
    reference = next(iter(results.values()))
    print(
        f"{MODEL.value}: {len(lines)} lines{' one at a time' if ONE_AT_A_TIME.value else ''}, beam {BEAM_SIZE.value}, "
        f"alpha {ALPHA.value}, {THREADS.value} threads, {REPETITIONS.value} repetitions, "
        f"{'CPU' if CPU_TIME.value else 'wall'} time, CT2_USE_MKL={os.environ.get('CT2_USE_MKL')}\n"
    )
    print("| engine | lines/s | output tokens/s | tokens/s of the first row = 1 | equal lines |")
    print("| --- | ---: | ---: | ---: | ---: |")
    is_too_different = False
    for name, runs in results.items():
        seconds = np.array([seconds for _, _, seconds in runs[1:]])
        tokens = runs[0][1] / seconds
        ratio = np.median(tokens / (reference[0][1] / np.array([seconds for _, _, seconds in reference[1:]])))
        equal = np.mean([ours == theirs for ours, theirs in zip(reference[0][0], runs[0][0], strict=True)])
        print(f"| {name} | {spread(len(lines) / seconds)} | {spread(tokens)} | {ratio:.2f} | {equal:.1%} |", flush=True)
        if name == "CTranslate2 float32" and PRECISIONS.value[0] == "float32":
            is_too_different = equal < MIN_EQUAL.value
    if is_too_different:
        raise SystemExit(f"CTranslate2 float32 translates too few lines like {next(iter(results))}")


if __name__ == "__main__":
    app.run(main)
