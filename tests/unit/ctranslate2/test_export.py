"""Tests that an exported CTranslate2 model computes what our model computes."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from models import weights_of, write_checkpoint
from subwords import small_subwords
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary, TokenVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
export = importlib.import_module("t2t_repro.ctranslate2.export")

SOURCES = ["the dog", "a cat sat on the dog", "Ω 漢", "the cat sat on the dog and the cat", "a", "dog on the cat"]
TARGETS = ["on the cat sat a dog and", "a", "dog sat on a cat and the", "漢", "dog", "the cat"]
RELATIVE = {"self_attention_type": "dot_product_relative", "max_relative_position": 3, "pos": "none"}
VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"norm_before": True},
    "epsilon": {"norm_epsilon": 0.1},
    "learned positions": {"pos": "emb", "max_length": 8},
    "three matrices": {"shared_embedding_and_softmax_weights": False},
    "narrow keys": {"attention_key_channels": 6, "attention_value_channels": 20},
    "narrow values": {"attention_key_channels": 24, "attention_value_channels": 8, "num_hidden_layers": 2},
    "target space": {"use_target_space_embedding": True},
    "no positions": {"pos": "none"},
    "relative": {**RELATIVE, "norm_before": True, "use_target_space_embedding": True},
    "relative, narrow keys": {**RELATIVE, "attention_key_channels": 6, "attention_value_channels": 20},
}


class Exported:
    """A model in a model folder, with methods that export the model and compare the export with it."""

    def __init__(self, path: Path, hparams: HParams, vocabulary: Vocabulary) -> None:
        sources = f"vocab.numbers_ende.source{vocabulary.sources.suffix}" if vocabulary.separate_source_size else ""
        name = f"vocab.numbers_ende.512{vocabulary.suffix}"
        origin = Origin("numbers_ende", {}, name, "0123456789ab", 1, source_vocabulary=sources)
        self.folder = ModelFolder.create(path / "model", hparams, vocabulary, origin)
        self.vocabulary = vocabulary
        keras.utils.set_random_seed(1)
        self.model = Transformer(
            hparams,
            vocabulary.size,
            self.folder.problem.target_space_id,
            source_vocab_size=vocabulary.separate_source_size,
        )

    def export(self, export_dir: Path, quantization: str = "float32") -> Path:
        """Exports a checkpoint with the model's current weights."""
        checkpoint = write_checkpoint(self.folder.path, 3, weights_of(self.model), self.vocabulary.fingerprint)
        return export.export_ctranslate2(self.folder, checkpoint, export_dir, quantization)

    def ids(self, texts: list[str], vocabulary: Vocabulary | None = None) -> np.ndarray:
        """Returns the ids of texts, int32 [B, T], padded with 0."""
        rows = (vocabulary or self.vocabulary).encode(texts)
        return np.array([row + [PAD_ID] * (max(map(len, rows)) - len(row)) for row in rows], np.int32)

    def pieces(self, texts: list[str], vocabulary: Vocabulary | None = None) -> list[list[str]]:
        """Returns texts as a CTranslate2 client sends them: lists of subwords without the end token."""
        vocabulary = vocabulary or self.vocabulary.sources
        return [vocabulary.pieces(ids[:-1]) for ids in vocabulary.encode(texts)]

    def difference(self, path: Path) -> float:
        """Returns the largest difference between our log-probabilities of TARGETS and those of an exported model."""
        translator = ctranslate2.Translator(str(path), intra_threads=1, compute_type="float32")
        results = translator.score_batch(self.pieces(SOURCES), self.pieces(TARGETS, self.vocabulary))
        sources, targets = self.ids(SOURCES, self.vocabulary.sources), self.ids(TARGETS)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, self.model(sources, targets)).numpy()
        rows = [-row[ids != PAD_ID] for row, ids in zip(losses, targets, strict=True)]
        return max(np.abs(row - result.log_probs).max() for row, result in zip(rows, results, strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_model_keeps_its_log_probabilities(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary, variant: str
) -> None:
    exported = Exported(tmp_path, dataclasses.replace(tiny_hparams, **VARIANTS[variant]), tiny_vocabulary)
    generator = np.random.default_rng(1)
    for variable in exported.model.trainable_variables:  # so that no bias is 0 and no norm's scale is 1
        variable.assign(variable + generator.normal(0, 0.4, variable.shape))
    table = exported.model.softmax.table
    table.assign(ops.scatter_update(3 * table, [[PAD_ID], [EOS_ID]], ops.zeros((2, table.shape[1]))))
    assert exported.difference(exported.export(tmp_path)) < 1e-4


@pytest.mark.parametrize("kind", ["subwords", "character", "separate"])
def test_vocabularies_of_tensor2tensor_are_exported(tmp_path: Path, tiny_hparams: HParams, kind: str) -> None:
    vocabulary: Vocabulary = ByteVocabulary() if kind == "character" else small_subwords()
    if kind == "separate":
        vocabulary = vocabulary.with_sources(TokenVocabulary(b"<pad>\n<EOS>\nthe\n<unk>\ndog\n"))
    hparams = dataclasses.replace(tiny_hparams, shared_embedding_and_softmax_weights=False)
    exported = Exported(tmp_path, hparams, vocabulary)
    path = exported.export(tmp_path / "export")
    files = {file.name for file in path.iterdir()} - {"config.json", "model.bin"}
    assert (
        files
        == {
            "subwords": {"shared_vocabulary.json", "vocabulary.subwords"},
            "character": {"shared_vocabulary.json", "vocabulary.bytes"},
            "separate": {"source_vocabulary.json", "target_vocabulary.json"}
            | {"source_vocabulary.tokens", "target_vocabulary.subwords"},
        }[kind]
    )
    assert exported.difference(path) < 1e-4


def test_every_quantization_has_its_size_and_almost_the_same_log_probabilities(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    exported = Exported(tmp_path, tiny_hparams, tiny_vocabulary)
    relative_sizes = {
        "float32": 1, "float16": 0.51, "bfloat16": 0.51, "int16": 0.95, "int8": 0.93, "int8_float32": 0.93,
        "int8_float16": 0.49, "int8_bfloat16": 0.49,
    }  # fmt: skip
    paths = {quantization: exported.export(tmp_path / "export", quantization) for quantization in relative_sizes}
    sizes = {quantization: (path / "model.bin").stat().st_size for quantization, path in paths.items()}
    for quantization, path in paths.items():
        assert sizes[quantization] <= relative_sizes[quantization] * sizes["float32"]
        assert exported.difference(path) < (1e-4 if quantization == "float32" else 0.05), quantization
    assert {file.name for file in path.iterdir()} == {
        "config.json", "model.bin", "sentencepiece.model", "shared_vocabulary.json"
    }  # fmt: skip
    translator, longest_source = ctranslate2.Translator(str(path), intra_threads=1), ["a"] * (export.POSITIONS - 1)
    translator.translate_batch([longest_source], beam_size=1, max_input_length=0, max_decoding_length=2)
    with pytest.raises(RuntimeError, match=f"position encodings are defined for positions >= {export.POSITIONS}"):
        translator.translate_batch([[*longest_source, "a"]], beam_size=1, max_input_length=0, max_decoding_length=2)


@pytest.mark.parametrize(
    ("hparams", "quantization", "message"),
    [
        ({}, "int9", "unknown --quantization 'int9'; did you mean 'int8'"),
        ({"self_attention_neighborhood": 4}, "int8", "self_attention_neighborhood=4: "),
        (RELATIVE | {"pos": "timing"}, "int8", "pos=timing: CTranslate2 has either relative self-attention or"),
        ({"model": "poet"}, "int8", "model=poet: "),
    ],
)
def test_an_impossible_export_is_refused(
    tiny_hparams: HParams, hparams: dict[str, Any], quantization: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        export.refuse_impossible(dataclasses.replace(tiny_hparams, **hparams), quantization)
    export.refuse_impossible(tiny_hparams, "int8_float32")
