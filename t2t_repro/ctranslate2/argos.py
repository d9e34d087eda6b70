"""Writes a model as a package for Argos Translate, which translates with CTranslate2 and needs no network.

A package is a ZIP file with a folder: the model, SentencePiece's model, a sentence splitter and a model card.
"""

import json
import shutil
from pathlib import Path

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.ctranslate2.export import TOKENIZER, converted
from t2t_repro.ctranslate2.sentence_splitter import splitter
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import write_file
from t2t_repro.serving.model_card import ModelCard
from t2t_repro.serving.versions import new_version

USE = """\
import argostranslate.package, argostranslate.translate
argostranslate.package.install_from_path("FILE.argosmodel")
print(argostranslate.translate.translate("A line of text.", "{0}", "{1}"))
"""
REMARKS = """\
Argos Translate splits each paragraph into sentences, searches with a beam of 4, replaces unknown pieces by those of the
source, and replaces "_" in outputs by a space.
"""


def export_argos(
    folder: ModelFolder, checkpoint: str, export_dir: str | Path, quantization: str, card: ModelCard
) -> Path:
    """Writes a package to a new version, a numbered folder in `export_dir`. Returns the package's path.

    Raises UserError if Argos or CTranslate2 cannot run this model, or the checkpoint does not fit the folder.
    """
    refuse_impossible(folder, card)
    spec, (source, target) = converted(folder, checkpoint, quantization), card.languages
    with new_version(export_dir) as (temporary, version):
        name = f"translate-{source}_{target}-1_{version.name}"
        package = temporary / name
        spec.save(str(_made(package / "model")))
        names = {"from_code": source, "from_name": source, "to_code": target, "to_name": target}
        metadata = {"package_version": f"1.{version.name}", "argos_version": "1.11", **names}
        write_file(package / "metadata.json", json.dumps(metadata, indent=2))
        sources = folder.vocabulary.sources
        write_file(package / TOKENIZER, getattr(sources, "sentencepiece", sources).model)
        write_file(package / "minisbd" / "sentences.onnx", splitter())
        card.write(package, "argostranslate", USE.format(source, target), REMARKS)
        archive = shutil.make_archive(str(temporary / name), "zip", temporary, name)
        Path(archive).rename(temporary / f"{name}.argosmodel")
        shutil.rmtree(package)
    return version / f"{name}.argosmodel"


def refuse_impossible(folder: ModelFolder, card: ModelCard) -> None:
    """Raises UserError if Argos cannot run the model, or its languages are unknown."""
    vocabulary, name, reason = folder.vocabulary, folder.origin.vocabulary, ""
    if not all(card.languages):
        raise UserError(f"{folder.path}: unknown languages; name them, e.g. --languages=en,de")
    if vocabulary.separate_source_size:
        reason = f"{name}: Argos has one vocabulary for both sides, but this model has two"
    elif folder.tags:
        reason = f"{folder.tags[0]}: Argos has one target language in a package, and writes no tags"
    elif vocabulary.kind not in ("sentencepiece", "marian"):
        reason = f"{name}: Argos reads only SentencePiece"
    if reason:
        raise UserError(f"{reason}; use another --format")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
