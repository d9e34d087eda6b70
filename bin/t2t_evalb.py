"""Scores parse trees against gold trees as EVALB does.

    t2t-evalb --gold=section23.gold --test=section23.parsed

Both files, plain or compressed, have one tree per line. Line n of --test is scored against line n
of --gold.

The output has the layout of EVALB's version of 2006: a row per sentence, and summaries of all
sentences and of those with at most 40 words. The parameter file --params decides which brackets
count; by default the values are those of COLLINS.prm. The program prints EVALB's messages about
sentences that it cannot score on standard error. Like EVALB, it stops if there are more than
MAX_ERROR + 1 messages. --max_error replaces MAX_ERROR.
"""

import dataclasses
from dataclasses import dataclass

from absl import flags

from t2t_repro.bin import program
from t2t_repro.console.progress import say
from t2t_repro.parsing import evalb
from t2t_repro.parsing.evalb import Sentence, Summary
from t2t_repro.parsing.evalb_parameters import COLLINS, read_parameters


@dataclass(frozen=True)
class Flags:
    """The flags of this program, except --max_error, which has no default."""

    gold: str = ""
    """File of gold trees, one per line, plain or compressed."""
    test: str = ""
    """Trees to score, one per line: a file, plain or compressed, or - for standard input."""
    params: str = ""
    """EVALB parameter file; default: COLLINS.prm's values."""
    summary_only: bool = False
    """Print the summaries, but no row per sentence."""


FLAGS = program.make_flags(Flags)
max_error_help = "replaces MAX_ERROR of the parameters; as in EVALB, one error more is allowed"
flags.DEFINE_integer("max_error", None, max_error_help, lower_bound=0, flag_values=FLAGS)

LINE = "=" * 76
HEADER = f"""\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
{LINE}"""


def main(values: flags.FlagValues) -> None:
    program.require(values, "gold", "test")
    parameters = read_parameters(values.params) if values.params else COLLINS
    if values.max_error is not None:
        parameters = dataclasses.replace(parameters, max_error=values.max_error)
    sentences = []
    for sentence in evalb.score_files(values.gold, program.readable_path(values.test), parameters):
        for message in sentence.messages:
            say(f"{sentence.number} : {message}")
        sentences.append(sentence)
    all_sentences = evalb.summarise(sentences)
    short_sentences = [item for item in sentences if item.length <= parameters.cutoff_len]
    short = evalb.summarise(short_sentences)
    if not values.summary_only:
        print(HEADER, *map(row, sentences), LINE, totals(all_sentences), sep="\n")
    print("=== Summary ===\n")
    print("-- All --", summary_lines(all_sentences), sep="\n", end="\n\n")
    print(f"-- len<={parameters.cutoff_len} --", summary_lines(short), sep="\n")


def row(sentence: Sentence) -> str:
    return (
        f"{sentence.number:4d}  {sentence.length:3d}    {sentence.status:d}"
        f"  {sentence.recall:6.2f} {sentence.precision:6.2f}   {sentence.matched:3d}"
        f"    {sentence.gold:3d}  {sentence.test:3d}    {sentence.crossing:3d}"
        f"   {sentence.words:4d}  {sentence.correct_tags:4d}   {sentence.tagging_accuracy:6.2f}"
    )


def totals(summary: Summary) -> str:
    """Returns the table's last line, as in EVALB without figures about brackets if there are none
    on one side.
    """
    brackets = (
        f"{'':16}{summary.recall:6.2f} {summary.precision:6.2f} {summary.matched:6d}"
        f" {summary.gold:5d} {summary.test:5d}  {summary.crossing:5d}"
    )
    words = f"  {summary.words:5d} {summary.correct_tags:5d}   {summary.tagging_accuracy:6.2f}"
    return brackets + words if summary.gold and summary.test else words


def summary_lines(summary: Summary) -> str:
    figures = {
        "Number of sentence": summary.sentences,
        "Number of Error sentence": summary.errors,
        "Number of Skip  sentence": summary.skipped,
        "Number of Valid sentence": summary.valid,
        "Bracketing Recall": summary.recall,
        "Bracketing Precision": summary.precision,
        "Bracketing FMeasure": summary.f_measure,
        "Complete match": summary.complete_match,
        "Average crossing": summary.average_crossing,
        "No crossing": summary.no_crossing,
        "2 or less crossing": summary.two_or_less_crossing,
        "Tagging accuracy": summary.tagging_accuracy,
    }
    lines = []
    for name, figure in figures.items():
        text = f"{figure:6d}" if isinstance(figure, int) else f"{figure:6.2f}"
        lines.append(f"{name:<26}= {text}")
    return "\n".join(lines)


run = program.entry_point(main, FLAGS, __doc__)
