"""Averages the weights of the last checkpoints: t2t-avg-checkpoints --output_dir=M --num_last_checkpoints=5

The program writes the average to M/averaged, which t2t-decoder and t2t-exporter use until a newer checkpoint exists.
"""

from __future__ import annotations

import sys

from absl import flags

from t2t_repro.bin import program
from t2t_repro.model_folder import ModelFolder
from t2t_repro.progress import say

FLAGS = flags.FlagValues()
flags.DEFINE_string("output_dir", "", "the model folder that t2t-trainer made", flag_values=FLAGS)
flags.DEFINE_integer(
    "num_last_checkpoints",
    0,
    "number of checkpoints to average; 0: the number in the hparams set (base: 5, big: 20), or all if fewer exist",
    lower_bound=0,
    flag_values=FLAGS,
)


def main(values: flags.FlagValues) -> None:
    """Averages the last checkpoints of --output_dir and prints their names."""
    program.require(values, "output_dir")
    folder = ModelFolder(values.output_dir)
    program.load_tensorflow()
    from t2t_repro import devices
    from t2t_repro.training.averaging import average_checkpoints

    devices.hide_gpus()  # a training run may be using all their memory
    average, paths = average_checkpoints(folder, values.num_last_checkpoints)
    say(f"{average}: the mean of {', '.join(paths)}")


def run() -> None:
    """Runs t2t-avg-checkpoints."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
