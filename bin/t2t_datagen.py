"""Makes the data of a problem: t2t-datagen --problem=text_files --train=a.en,a.de --dev=b.en,b.de --data_dir=D

Reads the problem's text, learns a vocabulary from it and writes shards of ids. A problem's own settings are flags:
t2t-datagen --problem=P --help lists them.
"""

from __future__ import annotations

import sys

from absl import flags

from t2t_repro.bin import program

FLAGS = flags.FlagValues()
program.define_problem(FLAGS)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and generates."""
    problem = program.problem(values)
    problem.check()
    program.load_tensorflow()
    from t2t_repro.data import datagen

    datagen.generate_data(problem, values.data_dir, values.tmp_dir)


def run() -> None:
    """The program t2t-datagen."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
