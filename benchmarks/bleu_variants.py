"""Measures how much BLEU depends on quotation marks and on the splitting of compounds, for
docs/scoring.md.

    python benchmarks/bleu_variants.py --references=newstest2014.de,newstest2014.fr
    --languages=de,fr

The translations are the references without 10% of their words, in two versions: with the
reference's quotation marks, and with ASCII quotation marks. The script prints a Markdown table with
a row of BLEU scores for each language and version. No model is needed.
"""

from __future__ import annotations

import random

from absl import app, flags
from sacrebleu import BLEU

from t2t_repro.files.textfile import read_lines
from t2t_repro.metrics import bleu

REFERENCES = flags.DEFINE_list("references", [], "files with one reference a line, untokenised")
LANGUAGES = flags.DEFINE_list("languages", [], "language of each file, e.g. de,fr")
DROPPED = 0.1
"""Fraction of the references' words that the translations omit."""


def shortened(references: list[str]) -> list[str]:
    """Returns the references without a random tenth of their words."""
    draw = random.Random(1)
    return [
        " ".join(word for word in line.split(" ") if draw.random() >= DROPPED)
        for line in references
    ]


def split_everywhere(translations: list[str], references: list[str], language: str) -> float:
    """Returns the paper's BLEU if compounds are split in any language, as this project once did."""
    sides = [
        [bleu.split_compounds(tokens) for tokens in bleu.moses_tokens(lines, language)]
        for lines in (translations, references)
    ]
    return float(
        BLEU(tokenize="none", smooth_method="none", force=True)
        .corpus_score(sides[0], [sides[1]])
        .score
    )


def main(argv: list[str]) -> None:
    """Prints a Markdown table of BLEU scores, with one column for each way to compute BLEU.

    Each language has two rows: translations with the reference's quotation marks, and with ASCII
    quotation marks.
    """
    if not REFERENCES.value or len(REFERENCES.value) != len(LANGUAGES.value):
        raise app.UsageError("give --references, and a language for each file in --languages")
    print(
        "| language | quotation marks of the translation | sacreBLEU | as released | ASCII "
        "punctuation | as released, with compounds of every language split |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for path, language in zip(REFERENCES.value, LANGUAGES.value, strict=True):
        references = list(read_lines(path))
        translations = shortened(references)
        for name, version in (
            ("as in the reference", translations),
            ("ASCII", [bleu.ascii_punctuation(line) for line in translations]),
        ):
            scores = [
                BLEU().corpus_score(version, [references]).score,
                bleu.paper_bleu(version, references, language).score,
                bleu.paper_bleu(version, references, language, replaces_punctuation=True).score,
                split_everywhere(version, references, language),
            ]
            print(f"| {language} | {name} | {' | '.join(f'{score:.2f}' for score in scores)} |")


if __name__ == "__main__":
    app.run(main)
