"""Exports a model: t2t-exporter --output_dir=M

Each export writes a new version: first M/export/1, then M/export/2, and so on. A version is a
SavedModel that takes raw strings, with warm-up requests for TensorFlow Serving. The program also
writes examples of models.config and batching_parameters.txt to M/export. docs/serving.md describes
the signatures and how to serve them. A process that loads the SavedModel needs only tensorflow and
tensorflow_text.

Other formats write their versions to M/export_FORMAT: --format=ctranslate2 for CTranslate2
(docs/ctranslate2.md), --format=huggingface for transformers, and --format=argos for Argos Translate
(docs/huggingface.md). Each version has a model card, README.md.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from absl import flags

from t2t_repro import registry
from t2t_repro.bin import program
from t2t_repro.bin.model_flags import check_model_flags, define_model_flags
from t2t_repro.checkpoints.model_folder import ModelFolder, refuse_ensemble
from t2t_repro.checkpoints.reader import step_of
from t2t_repro.console.progress import say
from t2t_repro.data.vocabularies.tags import language_of
from t2t_repro.decoding.translation import InputFile, with_tags
from t2t_repro.errors import UserError, require_extra
from t2t_repro.files.output_files import subfolder
from t2t_repro.files.textfile import read_lines
from t2t_repro.hparam import override, refuse_decode_hparams
from t2t_repro.paper.results import Results, read_results
from t2t_repro.serving.model_card import ModelCard
from t2t_repro.training.metrics_log import read_metrics


@dataclass(frozen=True)
class Flags:
    export_dir: str = ""
    """Folder of the versions; default: OUTPUT_DIR/export or, for other formats,
    OUTPUT_DIR/export_FORMAT.
    """
    format: Literal["saved_model", "ctranslate2", "huggingface", "argos"] = "saved_model"
    """Format of the model."""
    languages: str = ""
    """Languages of sources and targets, e.g. en,de; default: those of the problem."""
    license: str = "unknown"
    """Licence in the model card, by its name on Hugging Face, e.g. apache-2.0."""
    servable_name: str = ""
    """Name of the model on the server; default: the problem's name."""
    warmup_from_file: str = ""
    """File whose first 100 lines with text the server translates at its start; default: some
    subwords.
    """
    long_lines: Literal["truncate", "sentences"] = "truncate"
    """Treatment of texts by the server: it drops the end of long texts, or translates each sentence
    of all texts.
    """


FLAGS = program.make_flags(
    Flags, "output_dir", "checkpoint_path", "decode_hparams", "precision", "quantization"
)
define_model_flags(FLAGS)

WARMUP_TEXTS = 100
"""Maximum number of warm-up texts. Each of three signatures gets one request per text; a server
reads at most 1,000 requests.
"""
FOR_FILES = ("prefix_file", "write_beam_scores")
"""Decode hparams that have no effect in a served model."""
SAVED_MODEL = """\
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load("FOLDER")
print(model.signatures["serving_default"](tf.constant(["A line of text."])))
"""
"""How to use a SavedModel, for its model card."""
OF_SAVED_MODEL = ("decode_hparams", "servable_name", "warmup_from_file", "precision", "long_lines")
USELESS = {
    "with --format=saved_model": ("quantization",),
    "with --format=ctranslate2": OF_SAVED_MODEL,
    "with --format=argos": OF_SAVED_MODEL,
    "with --format=huggingface": ("quantization", *OF_SAVED_MODEL),
}


def main(values: flags.FlagValues) -> None:
    program.require(values, "output_dir")
    program.refuse_useless(values, USELESS)
    refuse_ensemble("output_dir", values.output_dir)
    folder = ModelFolder(values.output_dir)
    check_model_flags(values, folder)
    checkpoint = folder.checkpoint(values.checkpoint_path)
    card = ModelCard(
        folder, checkpoint, languages(values, folder), values.license, scores(folder, checkpoint)
    )
    name = "export" if values.format == "saved_model" else f"export_{values.format}"
    export_dir = Path(values.export_dir or subfolder(folder.path, name))
    export = export_saved_model if values.format == "saved_model" else export_other
    say(f"exported {export(values, folder, checkpoint, export_dir, card)}")


def languages(values: flags.FlagValues, folder: ModelFolder) -> Sequence[str]:
    """Returns the codes of the languages of sources and targets, "" if unknown."""
    problem = folder.problem
    if values.languages:
        problem = registry.problem("t2t_text", {"languages": values.languages})
    return problem.languages[::-1] if problem.was_reversed else problem.languages


def scores(folder: ModelFolder, checkpoint: str) -> list[str]:
    """Returns lines with the scores in results.json, and with those of the dev split at the
    checkpoint's step.
    """
    results = read_results(folder.path) or Results()
    lines = [f"{name}: BLEU {score:.2f}" for name, score in results.bleu.items()]
    lines += results.signatures
    if Path(checkpoint).parent.name == "averaged":  # training measures no averaged checkpoints
        return lines
    for line in read_metrics(folder.path):
        is_whole_split = "dev_perplexity" in line and "eval_steps" not in line
        if line["step"] == step_of(checkpoint) and is_whole_split:
            names = [name for name in ("dev_perplexity", "dev_bleu", "signature") if name in line]
            lines += [f"{name}: {line[name]}" for name in names]
    return lines


def export_saved_model(
    values: flags.FlagValues,
    folder: ModelFolder,
    checkpoint: str,
    export_dir: Path,
    card: ModelCard,
) -> Path:
    """Writes a SavedModel and the server's configuration files; returns the new version's
    folder.
    """
    params = override(folder.problem.decode_hparams, values.decode_hparams)
    why = "it concerns files, but a served model reads requests; omit it"
    refuse_decode_hparams(params, FOR_FILES, why, folder.problem.decode_hparams)
    warmup_texts = read_texts(values.warmup_from_file) if values.warmup_from_file else []
    language = language_of(folder.tags[0]) if folder.tags else ""
    # Refuses other tags.
    with_tags(warmup_texts, folder.tags, language, InputFile(values.warmup_from_file))
    servable_name = values.servable_name or folder.problem.name
    if not re.fullmatch(r"[\w.-]+", servable_name):
        raise UserError(
            f"--servable_name={servable_name}: use only letters, digits, '_', '-' and '.'"
        )

    program.load_tensorflow()
    from t2t_repro import devices
    from t2t_repro.data.vocabularies.graph import differences
    from t2t_repro.decoding.translator import Translator
    from t2t_repro.serving import server_files
    from t2t_repro.serving.export import export

    devices.use_one_gpu()
    warmup_texts = warmup_texts or server_files.warmup_texts(folder.vocabulary.sources)
    signatures = ["serving_default", "nbest", "score"]
    say(f"{checkpoint}: exporting in {values.precision}")
    for vocabulary in {folder.vocabulary.sources, folder.vocabulary}:
        if difference := differences(vocabulary):
            say(f"warning: {difference}")

    def add_files(path: Path) -> None:
        server_files.write_warmup(path, warmup_texts, servable_name, signatures, language)
        server_files.write_description(path, checkpoint, values.precision, params)
        card.write(path, "tensorflow", SAVED_MODEL)

    # Translator.from_folders would store the embedding twice, and so in the SavedModel.
    model = folder.decoding_model(checkpoint, values.precision)
    max_length = folder.hparams.max_length
    translator = Translator(
        model, folder.vocabulary, params, max_length, folder.problem.output_rules, folder.tags
    )
    version = export(translator, export_dir, add_files, values.long_lines)
    server_files.write_configs(export_dir, servable_name)
    return version


def export_other(
    values: flags.FlagValues,
    folder: ModelFolder,
    checkpoint: str,
    export_dir: Path,
    card: ModelCard,
) -> Path:
    """Writes a version in a format other than SavedModel; returns its path."""
    if values.format != "huggingface":
        require_extra("ctranslate2", "ctranslate2")
    program.load_tensorflow(has_gpus=False)  # the conversion runs on the CPU
    say(f"{checkpoint}: exporting")
    if values.format == "huggingface":
        from t2t_repro.huggingface.export import export_huggingface

        return export_huggingface(folder, checkpoint, export_dir, card)
    from t2t_repro.ctranslate2 import argos, export

    write = argos.export_argos if values.format == "argos" else export.export_ctranslate2
    return write(folder, checkpoint, export_dir, values.quantization or "float32", card)


def read_texts(path: str) -> list[str]:
    texts = filter(str.strip, read_lines(path))
    return list(itertools.islice(texts, WARMUP_TEXTS))


run = program.entry_point(main, FLAGS, __doc__)
