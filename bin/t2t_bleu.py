"""Scores a translation against its reference, a file of yours or a published test set.

    t2t-bleu --translation=newstest2014.translated.de --reference=newstest2014.de
    t2t-bleu --translation=newstest2014.translated.de --test_set=wmt14/full --language_pair=en-de

Translation and reference are plain text, not tokenised, or .gz; line n of one belongs to line n of the other. Each line
printed is a score from 0 to 100, its name, and a signature that says how it was computed. For new work report "BLEU"
with its signature; "BLEU, the paper's way" is what to hold against the paper's Table 2 (both files Moses-tokenised by
the rules of --language, compounds split at hyphens, multi-bleu.perl). Test sets are sacreBLEU's; --test_set=list names
them.
"""

from __future__ import annotations

import sys

from absl import flags

from t2t_repro.bin import program
from t2t_repro.errors import UserError
from t2t_repro.textfile import read_lines

FLAGS = flags.FlagValues()
flags.DEFINE_string("translation", "", "file of translated lines, plain or .gz", flag_values=FLAGS)
flags.DEFINE_string("reference", "", "file of reference lines, plain or .gz", flag_values=FLAGS)
flags.DEFINE_string(
    "test_set",
    "",
    'a published test set in place of --reference, e.g. wmt14/full; sacreBLEU keeps them in $SACREBLEU; "list" names '
    "those there are for the language pair",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "language_pair", "", "of the test set, e.g. en-fr; default: en-LANGUAGE, of --language", flag_values=FLAGS
)
flags.DEFINE_string(
    "language",
    "de",
    "whose Moses rules tokenise for the paper's way, e.g. de, fr; of a test set it is the target language",
    flag_values=FLAGS,
)


def main(values: flags.FlagValues) -> None:
    """Prints one line a score.

    Raises:
        UserError: a flag or file is missing, a file is empty or not UTF-8, the line counts differ, the language is
            unknown, or the test set is unknown or cannot be had.
    """
    language_pair, language = _languages(values)
    if values.test_set == "list":
        from t2t_repro.metrics import test_sets

        print("\n".join(test_sets.names(language_pair)))
        return
    program.require(values, "translation")
    if values.test_set and values.reference:
        raise UserError("--reference and --test_set: give one of them")
    if not values.test_set:
        program.require(values, "reference")
    translations = list(read_lines(values.translation))
    if not translations:
        raise UserError(f"{values.translation}: empty; nothing to score")
    references, source = _references(values, language_pair)
    if len(translations) != len(references):
        raise UserError(
            f"{values.translation} has {len(translations):,} lines, {source} has {len(references):,}; "
            "line n of one must belong to line n of the other"
        )
    from t2t_repro.metrics import bleu  # here, so that --help comes at once

    found = bleu.scores(translations, references, language)
    width = max(len(score.label) for score in found)
    for score in found:
        signature = score.signature
        if values.test_set:  # where sacreBLEU puts it
            first, _, rest = signature.partition("|")
            signature = f"{first}|test:{values.test_set}|lang:{language_pair}|{rest}"
        print(f"{score.score:6.2f}  {score.label:<{width}}  {signature}")


def _languages(values: flags.FlagValues) -> tuple[str, str]:
    """The language pair of a test set, and whose rules tokenise for the paper's way."""
    if not values.language_pair:
        return f"en-{values.language}", values.language
    if not values.test_set:
        raise UserError(f"--language_pair={values.language_pair} is for --test_set; give that too, or neither")
    language = values.language_pair.rpartition("-")[2]
    if values["language"].present and values.language != language:
        raise UserError(f"--language={values.language} is not the target of --language_pair={values.language_pair}")
    return values.language_pair, language


def _references(values: flags.FlagValues, language_pair: str) -> tuple[list[str], str]:
    """The reference lines, and what to call them."""
    if not values.test_set:
        lines = list(read_lines(values.reference))
        if not lines:
            raise UserError(f"{values.reference}: empty; nothing to score")
        return lines, values.reference
    from t2t_repro.metrics import test_sets

    source = f"test set {values.test_set} ({language_pair})"
    _, *references = zip(*test_sets.read(values.test_set, language_pair), strict=True)
    if len(references) > 1:
        raise UserError(f"{source} has {len(references)} references a line; score it by sacreBLEU's own program")
    return list(references[0]), source


def run() -> None:
    """The program t2t-bleu."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
