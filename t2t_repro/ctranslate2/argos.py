"""Writes a model as a package for Argos Translate, which translates with CTranslate2 and needs no
network.

A package is a ZIP file with a folder: the model, SentencePiece's model, a sentence splitter and a
model card.
"""

import json
import shutil
from pathlib import Path

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.ctranslate2.export import TOKENIZER, write
from t2t_repro.ctranslate2.sentence_splitter import splitter
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import write_file
from t2t_repro.serving.model_card import ModelCard
from t2t_repro.serving.versions import new_version

USE = """\
import argostranslate.package, argostranslate.translate
argostranslate.package.install_from_path("{0}.argosmodel")
print(argostranslate.translate.translate("A line of text.", "{1}", "{2}"))
"""


def export_argos(
    folder: ModelFolder, checkpoint: str, export_dir: str | Path, quantization: str, card: ModelCard
) -> Path:
    """Writes a package to a new version, a numbered folder in `export_dir`. Returns the package's
    path.

    Raises UserError if Argos or CTranslate2 cannot run this model, or the checkpoint does not fit
    the folder.
    """
    refuse_impossible(folder, card)
    sources = folder.vocabulary.sources
    source, target = card.languages
    with new_version(export_dir) as (temporary, version):
        name = f"translate-{source}_{target}-1_{version.name}"
        package = temporary / name
        (package / "model").mkdir(parents=True)
        write(folder, checkpoint, package / "model", quantization)
        write_file(package / TOKENIZER, getattr(sources, "sentencepiece", sources).model)
        write_file(package / "minisbd" / "sentences.onnx", splitter())
        metadata = {
            "package_version": f"1.{version.name}",
            "argos_version": "1.11",
            "from_code": source,
            "from_name": source,
            "to_code": target,
            "to_name": target,
        }
        write_file(package / "metadata.json", json.dumps(metadata, indent=2))
        card.write(package, "argostranslate", USE.format(name, source, target))
        archive = shutil.make_archive(str(package), "zip", temporary, name)
        Path(archive).rename(temporary / f"{name}.argosmodel")
        shutil.rmtree(package)
    return version / f"{name}.argosmodel"


def refuse_impossible(folder: ModelFolder, card: ModelCard) -> None:
    """Raises UserError if Argos cannot run the model, or its languages are unknown."""
    if not all(card.languages):
        raise UserError(f"{folder.path}: unknown languages; name them, e.g. --languages=en,de")
    is_lacking = {
        "two vocabularies": folder.vocabulary.separate_source_size > 0,
        f"several target languages ({', '.join(folder.tags[:3])})": len(folder.tags) > 0,
        folder.origin.vocabulary: folder.vocabulary.kind not in ("sentencepiece", "marian"),
    }
    if features := [feature for feature, lacks in is_lacking.items() if lacks]:
        raise UserError(
            f"{folder.path}: Argos does not support {', '.join(features)}; use another --format"
        )
