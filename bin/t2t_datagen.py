"""Generates the data of a problem: a vocabulary, training and dev examples as token ids, and test
sets as text.

    t2t-datagen --problem=text_files --train=a.en,a.de --dev=b.en,b.de --data_dir=D

Each setting of the problem is a flag; t2t-datagen --problem=P --help lists them. A run that ends
early leaves no data. Finished data is kept: to replace it, add --overwrite. If training will start
from another model's weights (--warm_start_from), pass that model's vocabulary with --vocab_file.
"""

from dataclasses import dataclass

from absl import flags

from t2t_repro import registry
from t2t_repro.beam.options import pipeline_options
from t2t_repro.bin import program
from t2t_repro.data import datagen
from t2t_repro.data.job import Options
from t2t_repro.errors import UserError


@dataclass(frozen=True)
class Flags:
    """The flags that only this program has, besides those of `Options`."""

    beam_options: str = ""
    """Options of Apache Beam, separated by spaces, to prepare the train split on many machines
    (docs/beam.md).
    """


FLAGS = program.make_flags(Options, Flags, "problem", "data_dir", "tmp_dir")

USELESS = {
    "with --vocab_file": ("vocab_size",),
    "without --vocab_file": ("source_vocab_file",),
    "with --beam_options": ("num_concurrent_processes",),
}


def main(values: flags.FlagValues) -> None:
    program.require(values, "problem", "data_dir", "tmp_dir")
    problem = program.problem(values)
    program.refuse_useless(values, USELESS)
    options = program.from_flags(Options, values)
    if not values.beam_options:
        datagen.generate_data(problem, values.data_dir, values.tmp_dir, options)
        return
    beam_options = pipeline_options(values.beam_options)
    from t2t_repro.beam.datagen import BeamEngine

    if "://" in values.data_dir:
        raise UserError(f"--data_dir={values.data_dir}: give a folder that all workers mount")
    engine = BeamEngine(beam_options, registry.usr_dir())
    datagen.generate_data(problem, values.data_dir, values.tmp_dir, options, engine)


run = program.entry_point(main, FLAGS, __doc__)
