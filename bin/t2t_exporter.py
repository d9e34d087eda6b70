"""Exports a model for TensorFlow Serving: t2t-exporter --output_dir=M

Writes M/export/1 (then 2, 3, ...), a SavedModel whose signature serving_default takes raw strings, "inputs", and gives
translations, "outputs", and their "scores". A process that loads it needs tensorflow and tensorflow_text alone.
"""

from __future__ import annotations

import sys

from absl import flags

from t2t_repro.bin import program
from t2t_repro.hparam import override

FLAGS = flags.FlagValues()
program.define_model_folder(FLAGS)
program.define_decode_hparams(FLAGS)
flags.DEFINE_string("export_dir", "", "where the versions go; default: OUTPUT_DIR/export", flag_values=FLAGS)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and exports."""
    program.required(values, "output_dir")
    from t2t_repro.model_folder import ModelFolder

    folder = ModelFolder(values.output_dir)
    decode_hparams = override(folder.problem.decode_hparams, values.decode_hparams)
    checkpoint = folder.checkpoint(values.checkpoint_path)

    program.load_tensorflow()
    from t2t_repro.decoding.translator import Translator
    from t2t_repro.progress import say
    from t2t_repro.serving.export import export

    say(f"{checkpoint}: exporting")
    translator = Translator(folder.model(checkpoint), folder.vocabulary, decode_hparams)
    say(f"exported {export(translator, values.export_dir or folder.path / 'export')}")


def run() -> None:
    """The program t2t-exporter."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
