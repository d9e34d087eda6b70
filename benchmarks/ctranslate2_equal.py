"""Compares CTranslate2 with t2t-decoder: prints the share of lines that they translate alike.

    python benchmarks/ctranslate2_equal.py --model=M --lines=FILE [--count=1000]
    [--quantization=float32]

The script exports the model like t2t-exporter --format=ctranslate2. benchmarks/engines.py measures
speeds. t2t-decoder's maximum output length depends on the input length, but CTranslate2 takes one
maximum per call. So the script calls CTranslate2 once for each input length. CTranslate2 lacks
t2t-decoder's length penalty. So one comparison asks CTranslate2 for several hypotheses, and the
script picks the best one by that penalty.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import ctranslate2
import sentencepiece
from absl import app, flags

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.ctranslate2.export import TOKENIZER, export_ctranslate2
from t2t_repro.data.vocabularies.text_rules import one_line
from t2t_repro.decoding.translator import Translator
from t2t_repro.files.textfile import read_lines

MODEL = flags.DEFINE_string("model", None, "the model folder", required=True)
LINES = flags.DEFINE_string("lines", None, "text to translate, plain or .gz", required=True)
COUNT = flags.DEFINE_integer(
    "count", 1000, "maximum number of lines to translate; empty lines are skipped"
)
QUANTIZATION = flags.DEFINE_string(
    "quantization", "float32", "type of the weights in CTranslate2, e.g. int8"
)

SEARCHES: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({"beam_size": 1}, [{}]),
    ({"beam_size": 4, "alpha": 0.0}, [{"length_penalty": 0}]),
    (
        {"beam_size": 4, "alpha": 0.6},
        [
            {"length_penalty": 0, "patience": 2, "num_hypotheses": 8},
            {"length_penalty": 0.45, "patience": 2},
            {"length_penalty": 0.45},
            {"length_penalty": 1},
        ],
    ),
]
"""Searches to compare: t2t-decoder's decode hparams, and several sets of CTranslate2 options for a
similar search.
"""


def best(result: Any, alpha: float) -> list[str]:
    """Returns the hypothesis with the best log-probability / length penalty, by t2t-decoder's
    formula.
    """
    scored = zip(result.scores, result.hypotheses, strict=True)
    return max(scored, key=lambda pair: pair[0] / ((6 + len(pair[1])) / 6) ** alpha)[1]


def translate(
    translator: Any,
    sources: Sequence[list[str]],
    decode_hparams: dict[str, Any],
    options: dict[str, Any],
) -> list[list[str]]:
    """Returns CTranslate2's translation of each source. Sources and translations are lists of
    SentencePiece pieces.
    """
    outputs: dict[int, list[str]] = {}
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    for length, group in itertools.groupby(order, lambda number: len(sources[number])):
        numbers = list(group)
        results = translator.translate_batch(
            [sources[number] for number in numbers],
            max_batch_size=2048,
            batch_type="tokens",
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=length
            + 1
            + 50,  # like t2t-decoder: input pieces, end token, 50 more
            return_scores=True,
            beam_size=decode_hparams["beam_size"],
            **options,
        )
        for number, result in zip(numbers, results, strict=True):
            is_ranked = "num_hypotheses" not in options
            outputs[number] = (
                result.hypotheses[0] if is_ranked else best(result, decode_hparams["alpha"])
            )
    return [outputs[number] for number in range(len(sources))]


def main(argv: list[str]) -> None:
    """Translates the lines with both engines for each entry of `SEARCHES` and prints the
    comparison.
    """
    folder = ModelFolder(MODEL.value)
    checkpoint = folder.checkpoint()
    lines = list(
        itertools.islice(
            (line.strip() for line in read_lines(LINES.value) if line.strip()), COUNT.value
        )
    )
    with tempfile.TemporaryDirectory() as export_dir:
        path = export_ctranslate2(folder, checkpoint, export_dir, QUANTIZATION.value)
        tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path / TOKENIZER))
        translator = ctranslate2.Translator(str(path), inter_threads=1, intra_threads=1)
    print(
        f"{checkpoint}: {len(lines)} lines, {translator.compute_type}, "
        f"CT2_USE_MKL={os.environ.get('CT2_USE_MKL')}"
    )
    for decode_hparams, similar_options in SEARCHES:
        our_translator = Translator.from_dir(MODEL.value, checkpoint, **decode_hparams)
        ours = [translation.text for translation in our_translator.translate(lines)]
        print(decode_hparams)
        for options in similar_options:
            pieces = translate(
                translator, tokenizer.encode(lines, out_type=str), decode_hparams, options
            )
            theirs = [one_line(text) for text in tokenizer.decode(pieces)]
            different = [
                number
                for number, pair in enumerate(zip(ours, theirs, strict=True), 1)
                if pair[0] != pair[1]
            ]
            share = 1 - len(different) / len(lines)
            examples = f"; not lines {', '.join(map(str, different[:10]))}" if different else ""
            print(f"  CTranslate2 {options}: {share:.1%} equal{examples}")


if __name__ == "__main__":
    app.run(main)
