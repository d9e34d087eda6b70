"""Generates the data of a problem: a vocabulary, training and dev examples as token ids, and test sets as text.

    t2t-datagen --problem=text_files --train=a.en,a.de --dev=b.en,b.de --data_dir=D

Each setting of the problem is a flag; t2t-datagen --problem=P --help lists them. If a run ends early, the same command
resumes it. Finished data is kept: to replace it, add --overwrite. If training will start from another model's weights
(--warm_start_from), pass that model's vocabulary with --vocab_file.
"""

from __future__ import annotations

from absl import flags

from t2t_repro.bin import program
from t2t_repro.errors import UserError

FLAGS = flags.FlagValues()
program.define_problem(FLAGS)
flags.DEFINE_integer(
    "num_concurrent_processes",
    0,
    "number of processes that encode text; 0: one per core, or one for fewer than 50,000 pairs; the data does not "
    "depend on this number",
    lower_bound=0,
    upper_bound=4096,
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "vocab_file",
    "",
    "vocabulary file to use instead of learning a vocabulary: vocab.* of a model folder, of another --data_dir or of "
    "tensor2tensor (*.subwords, *.tokens)",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "source_vocab_file",
    "",
    "vocabulary file for the sources, if --vocab_file is only for the targets",
    flag_values=FLAGS,
)
flags.DEFINE_bool(
    "overwrite",
    False,
    "generate the data again, even if --data_dir has finished data, or data from other text or settings",
    flag_values=FLAGS,
)


def main(values: flags.FlagValues) -> None:
    """Generates the data that the flags describe."""
    program.require(values, "problem", "data_dir", "tmp_dir")
    problem = program.problem(values)
    if values.vocab_file and values["vocab_size"].value is not None:
        raise UserError("--vocab_size has no effect with --vocab_file, which determines the size; omit one")
    if values.source_vocab_file and not values.vocab_file:
        raise UserError("--source_vocab_file needs --vocab_file, the vocabulary of the targets; give it")
    from t2t_repro.data import datagen  # imported late, so that --help is fast
    from t2t_repro.data.job import Options

    options = Options(values.num_concurrent_processes, values.vocab_file, values.overwrite, values.source_vocab_file)
    datagen.generate_data(problem, values.data_dir, values.tmp_dir, options)


run = program.entry_point(main, FLAGS, __doc__)

if __name__ == "__main__":
    run()
