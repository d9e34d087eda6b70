"""Scores a translation against its reference.

    t2t-bleu --translation=newstest2014.translated.de --reference=newstest2014.de

Both files are plain text, not tokenised, or .gz; line n of one belongs to line n of the other. Each line printed is a
score from 0 to 100, its name, and a signature that says how it was computed. For new work report "BLEU" with its
signature; "BLEU, the paper's way" is what to hold against the paper's Table 2 (both files Moses-tokenised by the rules
of --language, compounds split at hyphens, multi-bleu.perl).
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
flags.DEFINE_string("language", "de", "whose Moses rules tokenise for the paper's way, e.g. de, fr", flag_values=FLAGS)


def main(values: flags.FlagValues) -> None:
    """Prints one line a score.

    Raises:
        UserError: a flag or file is missing, a file is empty or not UTF-8, the line counts differ, or the language is
            unknown.
    """
    program.required(values, "translation", "reference")
    paths = (values.translation, values.reference)
    translations, references = (list(read_lines(path)) for path in paths)
    for path, lines in zip(paths, (translations, references), strict=True):
        if not lines:
            raise UserError(f"{path}: empty; nothing to score")
    if len(translations) != len(references):
        raise UserError(
            f"{paths[0]} has {len(translations):,} lines, {paths[1]} has {len(references):,}; "
            "line n of one must belong to line n of the other"
        )
    from t2t_repro.metrics import bleu  # here, so that --help comes at once

    found = bleu.scores(translations, references, values.language)
    width = max(len(score.label) for score in found)
    for score in found:
        print(f"{score.score:6.2f}  {score.label:<{width}}  {score.signature}")


def run() -> None:
    """The program t2t-bleu."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
