"""Scores a translation against its reference, which is a file or a published test set.

    t2t-bleu --translation=newstest2014.translated.de --reference=newstest2014.de --target_language=de
    t2t-bleu --translation=newstest2014.translated.de --test_set=wmt14/full --language_pair=en-de

Both files contain untokenised text, plain or compressed. Line n of the translation is scored against line n of the
reference. Each printed line is a score from 0 to 100, its name, and a signature that states how it was computed. In new
work, report "BLEU" with its signature. --all also prints lower-cased scores and, if --target_language or
--language_pair names the language, "BLEU, the paper's way", which is for comparisons with the paper's Table 2. It
tokenises both files with the Moses rules of the language, splits German compounds at hyphens, and computes the same as
multi-bleu.perl:

  as released         as tensor2tensor's script get_ende_bleu.sh was first released: leaves punctuation as it is
  ASCII punctuation   replaces Unicode punctuation on both sides first, so the style of quotation marks does not count

--test_set takes a name from sacreBLEU; --test_set=list prints the names.
"""

from dataclasses import dataclass, replace

from absl import flags

from t2t_repro.bin import program
from t2t_repro.console.progress import say
from t2t_repro.corpora.parallel import read_targets
from t2t_repro.errors import UserError, counted
from t2t_repro.files.textfile import read_lines
from t2t_repro.metrics.score import main_scores, score_lines


@dataclass(frozen=True)
class Flags:
    """The flags that only this program has."""

    translation: str = ""
    """Translated lines: a file, plain or compressed, or - for standard input."""
    reference: str = ""
    """File of reference lines, plain or compressed."""
    test_set: str = ""
    """Published test set to use as reference, e.g. wmt14/full; sacreBLEU stores it in the folder $SACREBLEU; needs
    --language_pair; "list" prints the names of the test sets of --language_pair."""
    language_pair: str = ""
    """Language pair of the test set, e.g. en-fr."""
    all: bool = False
    """Print all scores: lower-cased ones, and BLEU as in the paper's Table 2."""


FLAGS = program.make_flags(Flags, "target_language")


USELESS = {
    "with --test_set": ("reference", "target_language"),
    "with --test_set=list": ("translation",),
    "without --test_set": ("language_pair",),
}
"""For each mode of the program, the flags that have no effect in it; see `program.refuse_useless`."""


def main(values: flags.FlagValues) -> None:
    """Prints a line for each score, or the names of the test sets for --test_set=list."""
    program.refuse_useless(values, USELESS)
    language_pair, test_set = values.language_pair, values.test_set
    if not (language_pair if test_set else values.reference):
        raise UserError("give either --reference, or --test_set with --language_pair")
    if test_set == "list":
        from t2t_repro.metrics import test_sets

        print("\n".join(test_sets.names(language_pair)))
        return
    program.require(values, "translation")
    language = language_pair.partition("-")[2] or values.target_language  # "fr" for "en-fr"
    translation = program.readable_path(values.translation)
    translations = list(read_lines(translation))
    if not translations:
        raise UserError(f"{translation}: empty; nothing to score")
    source = f"test set {test_set} ({language_pair})" if test_set else values.reference
    if test_set:
        references = _published(test_set, language_pair, source, len(translations))
    else:
        references = read_targets(source, translation, translations)
    from t2t_repro.metrics import bleu, languages  # imported late, because sacreBLEU would delay --help

    language = languages.language_code(language, "--language_pair" if language_pair else "--target_language")
    scores = bleu.scores(translations, references, language)
    # Insert the name of the test set after the number of references, as in sacreBLEU's own signatures.
    part = f"|test:{test_set}|lang:{language_pair}|" if test_set else "|"
    scores = [replace(score, signature=score.signature.replace("|", part, 1)) for score in scores]
    print("\n".join(score_lines(scores if values.all else main_scores(scores))))
    if (reason := bleu.missing_bleu(scores, language)) and (values.all or scores[0].label == "chrF"):
        say(reason)


def _published(test_set: str, language_pair: str, source: str, count: int) -> list[str]:
    """Returns the `count` reference lines of a published test set. `source` names the test set in error messages."""
    from t2t_repro.metrics import test_sets

    _, *references = zip(*test_sets.read(test_set, language_pair), strict=True)
    if len(references) > 1:
        raise UserError(f"{source} has {len(references)} references per line; score it with sacreBLEU's own program")
    if len(references[0]) != count:
        raise UserError(f"{source} has {counted(len(references[0]), 'line')}, not {count:,}; translate each line")
    return list(references[0])


run = program.entry_point(main, FLAGS, __doc__)
