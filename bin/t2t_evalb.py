"""Scores parse trees against gold trees, as EVALB does.

    t2t-evalb --gold=section23.gold --test=section23.parsed

Both files, plain or .gz, have a tree a line; line n of one belongs to line n of the other. What is printed has EVALB's
layout (its version of 2006): a row a sentence, a summary of all, and one of the sentences of at most 40 words. Without
--params the brackets counted are those of COLLINS.prm. Sentences that cannot be scored are named on standard error, and
too many of them end the run: see MAX_ERROR in EVALB's parameter files, or --max_error.
"""

from __future__ import annotations

import dataclasses
import sys

from absl import flags

from t2t_repro.bin import program
from t2t_repro.parsing import evalb
from t2t_repro.parsing.evalb import Sentence, Summary

FLAGS = flags.FlagValues()
flags.DEFINE_string("gold", "", "file of gold trees, one a line, plain or .gz", flag_values=FLAGS)
flags.DEFINE_string("test", "", "file of the trees to score, one a line, plain or .gz", flag_values=FLAGS)
flags.DEFINE_string("params", "", "EVALB parameter file; default: what COLLINS.prm says", flag_values=FLAGS)
flags.DEFINE_integer("max_error", None, "in place of the parameters' MAX_ERROR", lower_bound=0, flag_values=FLAGS)
flags.DEFINE_bool("summary_only", False, "print no rows for single sentences", flag_values=FLAGS)

LINE = "=" * 76
HEADER = f"""\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
{LINE}"""


def main(values: flags.FlagValues) -> None:
    """Prints the table and the summaries.

    Raises:
        UserError: a flag or file is missing, the line counts differ, a gold line is no tree, the parameter file is
            wrong, or there are more errors than MAX_ERROR lets pass.
    """
    program.require(values, "gold", "test")
    parameters = evalb.read_parameters(values.params) if values.params else evalb.COLLINS
    if values.max_error is not None:
        parameters = dataclasses.replace(parameters, max_error=values.max_error)
    sentences = []
    for sentence in evalb.score_files(values.gold, values.test, parameters):
        if sentence.message:
            print(f"{sentence.number} : {sentence.message}", file=sys.stderr)
        sentences.append(sentence)
    everything = evalb.summarise(sentences)
    short = evalb.summarise(sentence for sentence in sentences if sentence.length <= parameters.cutoff_len)
    if not values.summary_only:
        print(HEADER, *map(row, sentences), LINE, totals(everything), sep="\n")
    print("=== Summary ===\n")
    print("-- All --", summary(everything), sep="\n", end="\n\n")
    print(f"-- len<={parameters.cutoff_len} --", summary(short), sep="\n")


def row(one: Sentence) -> str:
    """A sentence's line of the table."""
    return (
        f"{one.number:4d}  {one.length:3d}    {one.status:d}  {one.recall:6.2f} {one.precision:6.2f}   {one.matched:3d}"
        f"    {one.gold:3d}  {one.test:3d}    {one.crossing:3d}   {one.words:4d}  {one.correct_tags:4d}"
        f"   {one.tagging_accuracy:6.2f}"
    )


def totals(all_of: Summary) -> str:
    """The line below the table; without brackets in one of the files EVALB leaves their part out."""
    brackets = (
        f"{'':16}{all_of.recall:6.2f} {all_of.precision:6.2f} {all_of.matched:6d} {all_of.gold:5d} {all_of.test:5d}"
        f"  {all_of.crossing:5d}"
    )
    words = f"  {all_of.words:5d} {all_of.correct_tags:5d}   {all_of.tagging_accuracy:6.2f}"
    return brackets + words if all_of.gold and all_of.test else words


def summary(found: Summary) -> str:
    """The lines of one summary."""
    figures = {
        "Number of sentence": found.sentences,
        "Number of Error sentence": found.errors,
        "Number of Skip  sentence": found.skipped,
        "Number of Valid sentence": found.valid,
        "Bracketing Recall": found.recall,
        "Bracketing Precision": found.precision,
        "Bracketing FMeasure": found.f_measure,
        "Complete match": found.complete_match,
        "Average crossing": found.average_crossing,
        "No crossing": found.no_crossing,
        "2 or less crossing": found.two_or_less_crossing,
        "Tagging accuracy": found.tagging_accuracy,
    }
    return "\n".join(
        f"{name:<26}= {figure:{'6d' if isinstance(figure, int) else '6.2f'}}" for name, figure in figures.items()
    )


def run() -> None:
    """The program t2t-evalb."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
