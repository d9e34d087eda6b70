"""Tests packages for Argos Translate: their files, and that CTranslate2 runs the model."""

import hashlib
import importlib
import json
import zipfile
from pathlib import Path
from typing import Any

import keras
import pytest
import sentencepiece

from models import weights_of, write_checkpoint
from sentencepieces import trained
from subwords import small_subwords
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.ctranslate2.sentence_splitter import splitter
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.models import variants
from t2t_repro.serving.model_card import ModelCard
from user_errors import user_error

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
argos = importlib.import_module("t2t_repro.ctranslate2.argos")


def new_folder(
    path: Path, hparams: HParams, vocabulary: Vocabulary, **settings: Any
) -> tuple[ModelFolder, str]:
    keras.utils.set_random_seed(1)
    model = variants.transformer(hparams, vocabulary.size)
    problem = "t2t_text" if settings else "numbers_ende"
    folder = ModelFolder.create(
        path, hparams, vocabulary, Origin(problem, settings, f"vocab.x{vocabulary.suffix}", "", 1)
    )
    return folder, write_checkpoint(path, 3, weights_of(model), vocabulary.fingerprint)


def package(folder: ModelFolder, checkpoint: str, *languages: str) -> Path:
    card = ModelCard(folder, checkpoint, languages, "unknown", [])
    return Path(argos.export_argos(folder, checkpoint, folder.path / "export", "int8", card))


def test_a_package_has_what_argos_reads(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    path = package(*new_folder(tmp_path / "m", tiny_hparams, tiny_vocabulary), "en", "de")
    assert path.suffix == ".argosmodel" and [*path.parent.iterdir()] == [path]
    zipfile.ZipFile(path).extractall(tmp_path)
    (folder,) = {tmp_path / name.split("/")[0] for name in zipfile.ZipFile(path).namelist()}
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["from_code"], metadata["to_code"]) == ("en", "de")
    # As Argos does: by pieces of its own SentencePiece model.
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(folder / "model"), intra_threads=1)
    pieces = tokenizer.encode("the dog", out_type=str)
    [result] = translator.translate_batch(
        [pieces], beam_size=4, num_hypotheses=4, max_decoding_length=5
    )
    assert len(result.hypotheses) == 4
    assert "install_from_path" in (folder / "README.md").read_text()
    assert (folder / "minisbd" / "sentences.onnx").read_bytes() == splitter()


def test_the_splitter_is_the_file_that_minisbd_ran() -> None:
    """MiniSBD 0.9.5 with onnxruntime 1.32 split texts with it, as docs/huggingface.md says."""
    assert (
        hashlib.sha256(splitter()).hexdigest()
        == "f27321b00c821e9773fc70f8e822b4726f2f426f24498350d91e5653f5271911"
    )


def test_what_argos_lacks_is_refused(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    folder, checkpoint = new_folder(tmp_path / "a", tiny_hparams, tiny_vocabulary)
    assert "--languages" in user_error(package, folder, checkpoint, "en", "")
    folder, checkpoint = new_folder(tmp_path / "b", tiny_hparams, small_subwords())
    assert "vocab.x.subwords" in user_error(package, folder, checkpoint, "en", "de")
    tagged = SentencePieceVocabulary(trained(user_defined_symbols=">>de<<"))
    folder, checkpoint = new_folder(tmp_path / "c", tiny_hparams, tagged, symbols=">>de<<")
    assert ">>de<<" in user_error(package, folder, checkpoint, "en", "de")
    assert not [*tmp_path.glob("*/export")]
