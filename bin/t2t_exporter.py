"""Exports a model: t2t-exporter --output_dir=M

Writes M/export/1 (then 2, 3, ...), a SavedModel for TensorFlow Serving that takes raw strings, with requests to warm
it up; beside the versions an example of models.config and of batching parameters. docs/serving.md has its signatures
and how to serve it. A process that loads it needs tensorflow and tensorflow_text alone.

--format=ctranslate2 writes M/export_ctranslate2/1 (then 2, 3, ...) for CTranslate2 (pip install .[ctranslate2]); see
docs/ctranslate2.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro.bin import program
from t2t_repro.errors import UserError
from t2t_repro.hparam import override, refuse_decode_hparams
from t2t_repro.textfile import read_lines

if TYPE_CHECKING:
    from t2t_repro.model_folder import ModelFolder

FLAGS = flags.FlagValues()
program.define_model_folder(FLAGS)
program.define_decode_hparams(FLAGS)
flags.DEFINE_string(
    "export_dir", "", "where to; default: OUTPUT_DIR/export, or OUTPUT_DIR/export_ctranslate2", flag_values=FLAGS
)
flags.DEFINE_enum("format", "saved_model", ["saved_model", "ctranslate2"], "for which engine", flag_values=FLAGS)
flags.DEFINE_string(
    "quantization", "", "CTranslate2's name of the type of the weights, e.g. int8; default: float32", flag_values=FLAGS
)
flags.DEFINE_string(
    "servable_name", "", "what the server is to call the model; default: the problem's name", flag_values=FLAGS
)
flags.DEFINE_string(
    "warmup_from_file", "", "text to warm the server up with; default: some subwords", flag_values=FLAGS
)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and exports."""
    program.require(values, "output_dir")
    is_saved_model = values.format == "saved_model"
    for name in ("quantization",) if is_saved_model else ("decode_hparams", "servable_name", "warmup_from_file"):
        if values[name].value:
            raise UserError(f"--{name} does nothing with --format={values.format}; leave it out")
    from t2t_repro.model_folder import ModelFolder

    folder = ModelFolder(values.output_dir)
    checkpoint = folder.checkpoint(values.checkpoint_path)
    if not is_saved_model:
        export_ctranslate2(values, folder, checkpoint)
        return
    params = override(folder.problem.decode_hparams, values.decode_hparams)
    for names, why in (
        (["prefix_file", "write_beam_scores", "batch_size"], "a served model is given texts, not files"),
        (["sampling_method"], "a served model searches"),
        (["return_beams"], "the signature nbest gives n outputs, or beam_size"),
    ):
        refuse_decode_hparams(params, names, why, folder.problem.decode_hparams)
    warmup = list(read_lines(values.warmup_from_file)) if values.warmup_from_file else []

    program.load_tensorflow()
    from t2t_repro.decoding.translator import Translator
    from t2t_repro.progress import say
    from t2t_repro.serving.export import export
    from t2t_repro.serving.server_files import warmup_texts, write_configs, write_warmup

    say(f"{checkpoint}: exporting")
    translator = Translator.from_folders([folder], [checkpoint], params)
    name = values.servable_name or folder.problem.name
    texts = warmup or warmup_texts(folder.vocabulary)

    def add_files(version: Path) -> None:
        write_warmup(version, texts, name, ["serving_default", "nbest", "score"])

    export_dir = Path(values.export_dir or folder.path / "export")
    version = export(translator, export_dir, add_files)
    write_configs(export_dir, name)
    say(f"exported {version}")


def export_ctranslate2(values: flags.FlagValues, folder: ModelFolder, checkpoint: str) -> None:
    """Writes a CTranslate2 model."""
    from t2t_repro.serving import ctranslate2_export

    quantization = values.quantization or "float32"
    ctranslate2_export.refuse_impossible(folder.hparams, quantization)

    program.load_tensorflow()
    from t2t_repro.progress import say

    say(f"{checkpoint}: exporting")
    export_dir = Path(values.export_dir or folder.path / "export_ctranslate2")
    say(f"exported {ctranslate2_export.export_ctranslate2(folder, checkpoint, export_dir, quantization)}")


def run() -> None:
    """The program t2t-exporter."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
