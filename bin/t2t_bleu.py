"""Scores a translation against its reference, which is a file or a published test set.

    t2t-bleu --translation=x.translated.de --reference=x.de --target_language=de
    t2t-bleu --translation=x.translated.de --test_set=wmt14/full --language_pair=en-de

Several translations, separated by commas, are compared with the first: is the difference more than
chance?

All files contain untokenised text, plain or compressed. Line n of the translation is scored against
line n of the reference. Each printed line is a score from 0 to 100, its name, and a signature that
states how it was computed. In new work, report "BLEU" with its signature. --all also prints
lower-cased scores and, if --target_language or --language_pair names the language, "BLEU, the
paper's way", which is for comparisons with the paper's Table 2. It tokenises both files with the
Moses rules of the language, splits German compounds at hyphens, and computes the same as
multi-bleu.perl:

  as released         as tensor2tensor's script get_ende_bleu.sh was first released: leaves
                      punctuation as it is
  ASCII punctuation   replaces Unicode punctuation on both sides first, so the style of quotation
                      marks does not count

--test_set takes a name from sacreBLEU; --test_set=list prints the names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro.bin import program
from t2t_repro.console.progress import say
from t2t_repro.console.tables import Column, Table, to_text
from t2t_repro.console.terminal import width_of
from t2t_repro.corpora.parallel import read_targets
from t2t_repro.errors import UserError, refuse_different_counts, refuse_unknown
from t2t_repro.files.textfile import read_lines
from t2t_repro.metrics.score import main_scores, score_lines

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

METRICS = ("bleu", "chrf", "ter", "comet")
Lines = list[str]


@dataclass(frozen=True)
class Flags:
    translation: str = ""
    """Translated lines: a file, plain or compressed, or - for standard input; several files,
    separated by commas, are compared with the first.
    """
    reference: str = ""
    """File of reference lines, plain or compressed; several files, separated by commas, are several
    references.
    """
    metrics: program.TEXTS = ("bleu", "chrf")
    """Metrics to compute, of bleu, chrf, ter and comet; comet needs --source and --comet_model."""
    source: str = ""
    """File of source lines, plain or compressed, for comet; a --test_set has its own."""
    comet_model: str = ""
    """Folder of a COMET model as unbabel-comet downloads it, or its checkpoint."""
    test_set: str = ""
    """Published test set to use as reference, e.g. wmt14/full; sacreBLEU stores it in the folder
    $SACREBLEU; needs --language_pair; "list" prints the names of the test sets of --language_pair.
    """
    language_pair: str = ""
    """Language pair of the test set, e.g. en-fr."""
    all: bool = False
    """Print all scores of one translation: lower-cased ones, and BLEU as in the paper's Table 2."""


FLAGS = program.make_flags(Flags, "target_language")


USELESS = {
    "with --test_set": ("reference", "source", "target_language"),
    "with --test_set=list": ("translation",),
    "without --test_set": ("language_pair",),
}


def main(values: flags.FlagValues) -> None:
    program.refuse_useless(values, USELESS)
    language_pair = values.language_pair
    test_set = values.test_set
    if not (language_pair if test_set else values.reference):
        raise UserError("give either --reference, or --test_set with --language_pair")
    if test_set == "list":
        from t2t_repro.metrics import test_sets

        print("\n".join(test_sets.names(language_pair)))
        return
    program.require(values, "translation", "metrics")
    for name in values.metrics:
        refuse_unknown("metric", name, METRICS)
    if "comet" in values.metrics:
        program.require(values, "comet_model", *([] if test_set else ["source"]))
    elif values.comet_model or values.source:
        raise UserError(
            "--comet_model and --source have no effect without --metrics=comet; omit them"
        )
    paths = _paths("translation", values.translation)
    if len(paths) > 1 and values.all:
        raise UserError("--all is for one --translation; omit it")
    translations, references, sources = read_texts(values, paths)
    # Imported late, because sacreBLEU would delay --help.
    from t2t_repro.metrics import bleu, languages

    language = language_pair.partition("-")[2] or values.target_language  # "fr" for "en-fr"
    language = languages.language_code(
        language, "--language_pair" if language_pair else "--target_language"
    )
    metrics = make_metrics(values, language, translations, references, sources)
    # The name of the test set stands after the number of references, as in sacreBLEU's own
    # signatures.
    part = f"|test:{test_set}|lang:{language_pair}|" if test_set else "|"
    if len(paths) > 1:
        print_comparison(translations, references, metrics, part)
        return
    translation = translations[paths[0]]
    scores = [bleu.score(*item, translation, references) for item in metrics.items()]
    if values.all and "BLEU" in metrics and len(references) == 1:
        scores += bleu.paper_scores(translation, references[0], language)
        if reason := bleu.missing_bleu(scores, language):
            say(reason)
    scores = [replace(score, signature=score.signature.replace("|", part, 1)) for score in scores]
    print("\n".join(score_lines(scores if values.all else main_scores(scores))))


def read_texts(
    values: flags.FlagValues, paths: Sequence[str]
) -> tuple[dict[str, Lines], list[Lines], Lines]:
    """Returns the translations by path, the references, and the sources, which may be missing."""
    first = paths[0]
    lines = list(read_lines(first))
    if not lines:
        raise UserError(f"{first}: empty; nothing to score")
    translations = {first: lines} | {path: read_targets(path, first, lines) for path in paths[1:]}
    if values.test_set:
        from t2t_repro.metrics import test_sets

        rows = test_sets.read(values.test_set, values.language_pair)
        names = (first, f"test set {values.test_set} ({values.language_pair})")
        refuse_different_counts(names, (len(lines), len(rows)), "translate each line")
        sources, *references = map(list, zip(*rows, strict=True))
        return translations, references, sources
    paths = _paths("reference", values.reference)
    references = [read_targets(path, first, lines) for path in paths]
    sources = read_targets(values.source, first, lines) if values.source else []
    return translations, references, sources


def make_metrics(
    values: flags.FlagValues,
    language: str,
    translations: dict[str, Lines],
    references: Sequence[Lines],
    sources: Lines,
) -> dict[str, Metric]:
    """Returns the metrics of --metrics by label. Says which ones the language does not have."""
    from t2t_repro.metrics import bleu

    metrics = bleu.metrics(references[0], language, values.metrics)
    absent = {"bleu", "ter"} & set(values.metrics) - {label.lower() for label in metrics}
    if absent:
        names = ", ".join(sorted(absent)).upper()
        message = f"{names}: not computed, because {bleu.missing_words(language)}"
        if absent == set(values.metrics):
            raise UserError(f"{message}; or give --metrics=chrf")
        say(message)
    if "comet" in values.metrics:
        from t2t_repro.metrics.comet import comet

        if len(references) > 1:
            raise UserError("--metrics=comet is for one --reference; omit the others")
        metrics["COMET"] = comet(
            values.comet_model, sources, [*translations.values()], references[0]
        )
    return metrics


def print_comparison(
    translations: dict[str, Lines],
    references: Sequence[Lines],
    metrics: Mapping[str, Metric],
    part: str,
) -> None:
    """Prints a table for each metric that compares the translations with the first one.

    `part` replaces the first "|" of each signature.
    """
    from t2t_repro.metrics.significance import compare

    columns = [
        Column("name", "translation"),
        Column("score", "score", "{:.2f}".format),
        Column("interval", "95%", "± {:.2f}".format),
        Column("bootstrap_p", "p, bootstrap", "{:.4f}".format),
        Column("randomization_p", "p, randomization", "{:.4f}".format),
    ]
    tables = []
    for label, metric in metrics.items():
        if "," not in label:
            rows, signature = compare(translations, references, metric)
            title = f"{label}  {signature.replace('|', part, 1)}"
            tables.append(Table(label, title, list(map(vars, rows))))
    print(to_text(tables, columns, width_of(sys.stdout)), end="")
    baseline = next(iter(translations))
    say(
        f"p is the probability of a difference to {baseline} at least this large by chance; if it "
        "is below 0.05, the difference is called significant"
    )


def _paths(flag: str, value: str) -> list[str]:
    """Returns the paths in the value of a flag: one path, or several, separated by commas."""
    names = [value] if Path(value).exists() else value.split(",")
    if "" in names or len(set(map(os.path.realpath, names))) < len(names):
        raise UserError(
            f"--{flag}={value}: names a file twice, or none between two commas; name each file once"
        )
    return list(map(program.readable_path, names))


run = program.entry_point(main, FLAGS, __doc__)
