"""Reproduces a row of the paper's tables: t2t-reproduce --row=base --problem=wmt_ende --data_dir=D
--output_dir=M

The program trains the row's model, averages its last checkpoints, decodes and scores the test sets,
and writes M/report.md, which compares the measured figures with the paper's. If the run is
interrupted, it ends with exit code 130 and writes no report; the same command resumes it.
--row=base stands for --hparams_set=transformer_base. --row=big stands for transformer_big, or with
--problem=wmt_enfr, as in the paper, for transformer_big_enfr. The other systems of Table 2 are
rows, too, e.g. --row=gnmt. t2t-paper lists the rows. All flags of t2t-trainer apply except
--eval_steps, because the report needs the whole dev split.
"""

import os
from pathlib import Path

from absl import flags

from t2t_repro.bin import program, t2t_trainer
from t2t_repro.console.progress import say
from t2t_repro.data import test_set_files
from t2t_repro.data.job import source_files
from t2t_repro.errors import Stopped, UserError
from t2t_repro.files.output_files import refuse_overwriting, write_file
from t2t_repro.hparam import DecodeHParams, override, refuse_decode_hparams
from t2t_repro.paper.results import FILE
from t2t_repro.paper.rows import find_hparams_set

REPORT = "report.md"

FLAGS = t2t_trainer.make_flags("decode_hparams")
flags.DEFINE_string(
    "row",
    "",
    "hparams set of the row without its prefix transformer_, e.g. base, h16 or gnmt",
    flag_values=FLAGS,
)


def main(values: flags.FlagValues) -> None:
    # Parse --decode_hparams now, so that a mistake in it is reported before days of training.
    decode_hparams = override(DecodeHParams(), values.decode_hparams)
    file_options = ["n", "write_beam_scores", "prefix_file"]
    refuse_decode_hparams(decode_hparams, file_options, "one output of each line is scored")
    if values.row and values.hparams_set:
        raise UserError("--row and --hparams_set: give one of them")
    if values.eval_steps:
        raise UserError(
            f"--eval_steps={values.eval_steps}: the report needs the whole dev split; omit the flag"
        )
    program.require(values, "problem", "hparams_set" if values.hparams_set else "row")
    if values.row:
        values.hparams_set = find_hparams_set(values.row, values.problem)
    if os.environ.get("TF_CONFIG"):
        raise UserError(
            "TF_CONFIG is set; train with t2t-trainer on all workers, then unset it and run this "
            "command on one of them"
        )
    hparams = t2t_trainer.read_hparams(values)
    data = t2t_trainer.open_data(values)
    if not values.dry_run:
        # Prepare the test sets now, so that a missing one is reported before days of training.
        test_sets = test_set_files.ensure(data.problem, values.data_dir, values.tmp_dir)
        inputs = []
        for paths in test_sets.values():
            inputs += [(f"--data_dir={values.data_dir}", path) for path in paths]
        outputs = [Path(t2t_trainer.output_dir(values)) / name for name in (REPORT, FILE)]
        refuse_overwriting("--output_dir", outputs, [*inputs, *source_files(data.problem)])
    try:
        run = t2t_trainer.train(values, hparams, data)
    except Stopped as stopped:
        # `Stopped` would end the program with exit code 0. End it with 130 instead, because there
        # is no report yet.
        say(f"t2t-reproduce: {stopped}")
        raise KeyboardInterrupt from None
    if not run:
        return
    folder = run.folder
    from t2t_repro.paper.report import report  # imported late, because it imports TensorFlow
    from t2t_repro.paper.reproduce import evaluate

    decode_hparams = override(folder.problem.decode_hparams, values.decode_hparams)
    scores, results = evaluate(folder, values.data_dir, values.tmp_dir, decode_hparams)
    path = folder.path / REPORT
    write_file(path, report(folder, values.hparams_set, scores, results, decode_hparams))
    say(f"{path}: written")


run = program.entry_point(main, FLAGS, __doc__)
