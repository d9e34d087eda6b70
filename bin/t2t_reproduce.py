"""Makes a row of the paper's tables again: t2t-reproduce --row=base --problem=wmt_ende --data_dir=D --output_dir=M

Trains, averages, decodes the test sets and scores them with what the row's hparams set and the problem say, and writes
M/report.md with the paper's figures beside those measured. The same command goes on where an interrupted one was; an
interrupt ends it with code 130, without a report. --row=base is --hparams_set=transformer_base, but --row=big for
wmt_enfr is transformer_big_enfr, as in the paper; t2t-paper lists the rows. All flags of t2t-trainer hold, but
--eval_steps: the report is of the whole dev split.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro import registry
from t2t_repro.bin import program, t2t_trainer
from t2t_repro.data import datagen
from t2t_repro.errors import Stopped, UserError, unknown
from t2t_repro.hparam import DecodeHParams, override, refuse_decode_hparams
from t2t_repro.paper import rows as paper
from t2t_repro.progress import say
from t2t_repro.tables import Column, Table, to_markdown
from t2t_repro.textfile import whole_file

if TYPE_CHECKING:
    from t2t_repro.model_folder import ModelFolder
    from t2t_repro.paper.reproduce import Scores
    from t2t_repro.paper.results import Results

PREFIX = "transformer_"
FLAGS = flags.FlagValues()
t2t_trainer.define_flags(FLAGS)
program.define_decode_hparams(FLAGS)
flags.DEFINE_string("row", "", "its hparams set without transformer_: base, big, h16", flag_values=FLAGS)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and runs the chain."""
    search = override(DecodeHParams(), values.decode_hparams)  # a mistake in it is met before the training
    of_files = ["return_beams", "n", "write_beam_scores", "prefix_file"]
    refuse_decode_hparams(search, of_files, "one output of each line is scored")
    if values.row and values.hparams_set:
        raise UserError("give --row or --hparams_set, not both")
    if values.eval_steps:
        raise UserError("--eval_steps: the report's perplexity is that of the whole dev split; leave it out")
    program.require(values, "problem", "hparams_set" if values.hparams_set else "row")
    if values.row:
        values.hparams_set = set_of(values.row, values.problem)
    if os.environ.get("TF_CONFIG"):
        raise UserError(
            "TF_CONFIG: train with t2t-trainer on all workers, then run the same t2t-reproduce on one without TF_CONFIG"
        )
    there = datagen.description_path(values.data_dir, program.problem(values).base_name).exists()
    if there and not (values.dry_run or values.generate_data):
        problem, _, _ = datagen.load_problem(values.data_dir, values.problem)
        datagen.test_sets_at_hand(problem, values.data_dir, values.tmp_dir)  # before days of training
    try:
        folder = t2t_trainer.train(values)
    except Stopped as stopped:  # with t2t-trainer all is well then; the chain has not come to its report
        say(f"t2t-reproduce: {stopped}")
        raise KeyboardInterrupt from None
    if not folder:
        return
    from t2t_repro.paper import reproduce

    search = override(folder.problem.decode_hparams, values.decode_hparams)
    scores, results = reproduce.finish(folder, values.data_dir, values.tmp_dir, search)
    path = folder.path / "report.md"
    with whole_file(path, "w") as file:
        file.write(report(folder, values.hparams_set, scores, results, search))
    say(f"{path}: written")


def set_of(row: str, problem: str) -> str:
    """The hparams set of a row; for English to French that of its own where the paper has one.

    Raises:
        UserError: no such row.
    """
    name, ours = PREFIX + row.removeprefix(PREFIX), [each for each in paper.ROWS if each.hparams_set]
    known = {set_name for each in ours for set_name in (each.hparams_set, each.hparams_set_enfr) if set_name}
    if name not in known:
        raise unknown("row", name.removeprefix(PREFIX), [other.removeprefix(PREFIX) for other in known])
    for_french = {each.hparams_set: each.hparams_set_enfr for each in ours if each.hparams_set_enfr}
    return for_french.get(name, name) if problem == paper.EN_FR.problem else name


def report(folder: ModelFolder, hparams_set: str, scores: Scores, results: Results, search: DecodeHParams) -> str:
    """What was measured beside what the paper prints, as markdown."""
    from t2t_repro.paper import reproduce
    from t2t_repro.training.checkpoint import averaged_count

    printed = paper_figures(hparams_set, folder.problem.name)
    lines = [
        {"what": "steps", "paper": printed.get("steps"), "here": results.steps},
        {"what": "dev perplexity per subword, last checkpoint", "paper": printed.get("perplexity"),
         "here": results.dev_perplexity},
    ]  # fmt: skip
    for name, found in scores.items():
        for score in found:
            figure = printed.get(name) if score.label in reproduce.COMPARABLE else None
            what = f"{score.label}, {name}{', last checkpoint' if reproduce.is_apart(folder.problem, name) else ''}"
            lines.append({"what": what, "paper": figure, "here": score.score,
                          "signature": score.signature})  # fmt: skip
    changed = [f"{name}={value}" for name, value in vars(folder.hparams).items()
               if value != getattr(registry.hparams(hparams_set), name)]  # fmt: skip
    time = "" if results.train_seconds is None else f" in {results.train_seconds / 3600:.2f} hours"
    count = f"{results.gpu_count} x " if results.gpu_count else ""
    place = f" on {count}{results.hardware}" if results.hardware else ""
    missing = [name for name in folder.problem.test_sets if name not in scores]
    remarks = [f"Not scored, since not at hand: {', '.join(missing)}.\n"] if missing else []
    if not printed:
        remarks.append("The paper has no figures of this set for this problem.\n")
    elif "perplexity" in printed:
        remarks.append("The paper's perplexity is of its own vocabulary.\n")
    settings = ", ".join(f"{name}={value}" for name, value in folder.problem.changed_settings.items()) or "none"
    begun = f", from the weights of {folder.origin.warm_start_from}" if folder.origin.warm_start_from else ""
    if begun:
        remarks.append("Time and steps are without those of the weights that it began with.\n")
    columns = [Column("what", ""), Column("paper", "paper", "{:,}".format), Column("here", "here", figure_text),
               Column("signature", "signature")]  # fmt: skip
    table = to_markdown([Table("report", "Figures", lines)], columns)
    return f"""# {hparams_set} on {folder.problem.name}

Trained{time}{place}, in {folder.origin.precision}{begun}; seed {folder.origin.random_seed}; data
{folder.origin.data_fingerprint}, vocabulary {folder.vocabulary.fingerprint} of {folder.vocabulary.size:,}; changed
settings of the problem: {settings}; changed hparams: {", ".join(changed) or "none"}.
Averaged checkpoints: {averaged_count(folder.checkpoint())}. Decoded with {search}.

{table}
{"".join(remarks)}"""


def figure_text(value: float) -> str:
    """A figure as the report has it."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def paper_figures(hparams_set: str, problem: str) -> dict[str, float]:
    """What the paper prints for a set and a problem: "steps", "perplexity", and a score by test set.

    Its newstest2014 is taken to be all 3,003 pairs, as by most who compare with it; see docs/data.md.
    """
    found: list[tuple[str, float | None]] = []
    for row in paper.ROWS:
        if hparams_set == row.hparams_set and problem == row.corpus.problem:
            steps = row.steps or (paper.BASE.steps if row.table == 3 else None)  # an empty cell is base's value
            found += [("steps", steps), ("perplexity", row.perplexity), ("wmt13", row.bleu_dev), ("test", row.f1)]
        en_de, en_fr = (row.hparams_set, "wmt_ende", row.bleu_ende), (row.hparams_set_enfr, "wmt_enfr", row.bleu_enfr)
        for *experiment, bleu in (en_de, en_fr):
            if experiment == [hparams_set, problem]:
                table3 = next((each for each in (paper.BASE, paper.BIG) if each.hours == row.hours), row)
                found += [("wmt14/full", bleu), ("steps", table3.steps)]  # as many for both pairs (section 5.2)
    return {name: figure for name, figure in found if figure is not None}


def run() -> None:
    """The program t2t-reproduce."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
