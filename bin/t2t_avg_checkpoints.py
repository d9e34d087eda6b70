"""Averages the weights of the last checkpoints: t2t-avg-checkpoints --output_dir=M --num_last_checkpoints=5

The result, M/averaged, is what t2t-decoder and t2t-exporter take until training goes on.
"""

from __future__ import annotations

import sys

from absl import flags

from t2t_repro.bin import program
from t2t_repro.errors import UserError

FLAGS = flags.FlagValues()
flags.DEFINE_string("output_dir", "", "the model folder, as t2t-trainer made it", flag_values=FLAGS)
flags.DEFINE_integer(
    "num_last_checkpoints",
    0,
    "how many of the last checkpoints to average; 0: as many as the hparams set says (base: 5, "
    "big: 20), or all there are",
    flag_values=FLAGS,
)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and averages."""
    program.require(values, "output_dir")
    from t2t_repro.model_folder import ModelFolder

    if values.num_last_checkpoints < 0:
        raise UserError(f"--num_last_checkpoints={values.num_last_checkpoints} must be 0 or more")
    folder = ModelFolder(values.output_dir)
    program.load_tensorflow()
    from t2t_repro.progress import say
    from t2t_repro.training.averaging import average_checkpoints

    result, paths = average_checkpoints(folder, values.num_last_checkpoints)
    say(f"{result}: the mean of {', '.join(paths)}")


def run() -> None:
    """The program t2t-avg-checkpoints."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
