"""Generates the data of a problem: a vocabulary, training and dev examples as token ids, and test sets as text.

    t2t-datagen --problem=text_files --train=a.en,a.de --dev=b.en,b.de --data_dir=D

Each setting of the problem is a flag; t2t-datagen --problem=P --help lists them. A run that ends early leaves no data.
Finished data is kept: to replace it, add --overwrite. If training will start from another model's weights
(--warm_start_from), pass that model's vocabulary with --vocab_file.
"""

from absl import flags

from t2t_repro.bin import program
from t2t_repro.data import datagen
from t2t_repro.data.job import Options

FLAGS = program.make_flags(Options, "problem", "data_dir", "tmp_dir")

USELESS = {"with --vocab_file": ("vocab_size",), "without --vocab_file": ("source_vocab_file",)}


def main(values: flags.FlagValues) -> None:
    program.require(values, "problem", "data_dir", "tmp_dir")
    problem = program.problem(values)
    program.refuse_useless(values, USELESS)
    datagen.generate_data(problem, values.data_dir, values.tmp_dir, program.from_flags(Options, values))


run = program.entry_point(main, FLAGS, __doc__)
