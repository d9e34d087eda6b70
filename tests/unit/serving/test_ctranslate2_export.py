"""Tests that an exported CTranslate2 model computes what our model computes, and runs without our code."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
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
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.serving.ctranslate2_export import POSITIONS, export_ctranslate2, refuse_impossible

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

PROCESS = """
import json, sys, ctranslate2, sentencepiece
folders, sources, targets = json.load(sys.stdin)
replies = []
for folder in folders:
    translator = ctranslate2.Translator(folder, intra_threads=1)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=folder + "/sentencepiece.model")
    pieces = [tokenizer.encode(texts, out_type=str) for texts in (sources, targets)]
    results = translator.translate_batch(pieces[0], beam_size=2, max_batch_size=16, batch_type="tokens")
    texts = [tokenizer.decode(result.hypotheses[0]) for result in results]
    replies.append([texts, [result.log_probs for result in translator.score_batch(*pieces)]])
assert not [name for name in sys.modules if name.startswith(("t2t_repro", "tensorflow", "keras"))]
json.dump(replies, sys.stdout)
"""


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

    def save(self) -> Exported:
        """Writes a checkpoint with the model's current weights; returns this object."""
        weights = weights_of(self.model)
        self.checkpoint = write_checkpoint(self.folder.path, 3, weights, self.vocabulary.fingerprint)
        return self

    def export(self, export_dir: Path, quantization: str = "float32") -> Path:
        return export_ctranslate2(self.folder, self.checkpoint, export_dir, quantization)

    def ids(self, texts: list[str], vocabulary: Vocabulary | None = None) -> np.ndarray:
        """Returns the ids of texts, int32 [B, T], padded with 0."""
        rows = (vocabulary or self.vocabulary).encode(texts)
        return np.array([row + [PAD_ID] * (max(map(len, rows)) - len(row)) for row in rows], np.int32)

    def pieces(self, texts: list[str], vocabulary: Vocabulary | None = None) -> list[list[str]]:
        """Returns texts as a CTranslate2 client sends them: lists of subwords without the end token."""
        vocabulary = vocabulary or self.vocabulary.sources
        return [vocabulary.pieces(ids[:-1]) for ids in vocabulary.encode(texts)]

    def decode(self, pieces: list[str]) -> str:
        """Returns the text of an output of CTranslate2."""
        all_pieces = self.vocabulary.pieces(range(self.vocabulary.size))
        return self.vocabulary.decode([[all_pieces.index(piece) for piece in pieces]])[0]

    def log_probs(self, sources: list[str], targets: np.ndarray) -> np.ndarray:
        """Returns our model's log-probabilities of all tokens, [B, T, V], at each position of `targets` [B, T]."""
        logits = np.asarray(self.model(self.ids(sources, self.vocabulary.sources), targets), np.float64)
        return logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))

    def target_log_probs(self) -> list[np.ndarray]:
        """Returns, for each text in TARGETS, our model's log-probabilities of the text's tokens and the end token."""
        targets = self.ids(TARGETS)
        log_probs = np.take_along_axis(self.log_probs(SOURCES, targets), targets[:, :, None], axis=2)[:, :, 0]
        return [row[ids != PAD_ID] for row, ids in zip(log_probs, targets, strict=True)]

    def difference(self, translator: Any) -> float:
        """Returns the largest difference between our log-probabilities of TARGETS and a ctranslate2.Translator's."""
        results = translator.score_batch(self.pieces(SOURCES), self.pieces(TARGETS, self.vocabulary))
        pairs = zip(self.target_log_probs(), (result.log_probs for result in results), strict=True)
        return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)

    def compare_search(self, translator: Any, beam_size: int) -> None:
        """Asserts that CTranslate2 finds the outputs and scores for SOURCES that our search finds."""
        params = DecodeHParams(beam_size=beam_size, alpha=0.0, extra_length=8)
        expected = Translator(self.model, self.vocabulary, params).translate(SOURCES)
        for pieces, translation in zip(self.pieces(SOURCES), expected, strict=True):
            options = {"length_penalty": 0, "min_decoding_length": 0, "return_scores": True}
            limit = len(pieces) + 1 + 8
            (result,) = translator.translate_batch([pieces], beam_size=beam_size, max_decoding_length=limit, **options)
            assert self.decode(result.hypotheses[0]) == translation.text
            assert result.scores[0] == pytest.approx(translation.score, abs=1e-3)


@pytest.fixture(scope="module")
def ctranslate2() -> Any:
    return pytest.importorskip("ctranslate2", reason='pip install "t2t_repro[ctranslate2]" to test it')


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Exported:
    """Returns a model that was trained on six pairs, so that it clearly prefers some outputs and ends them."""
    exported = Exported(tmp_path_factory.mktemp("trained"), tiny_hparams, tiny_vocabulary)
    inputs, targets = exported.ids(SOURCES), exported.ids(TARGETS)
    variables = [variable.value for variable in exported.model.trainable_variables]
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(exported.model.trainable_variables)

    @tf.function(autograph=False)
    def step() -> None:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, exported.model(inputs, targets))
            loss = tf.reduce_mean(tf.boolean_mask(losses, targets != PAD_ID))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), exported.model.trainable_variables, strict=True))

    for _ in range(45):
        step()
    return exported.save()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_model_keeps_its_log_probabilities(
    ctranslate2: Any, tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary, variant: str
) -> None:
    exported = Exported(tmp_path, dataclasses.replace(tiny_hparams, **VARIANTS[variant]), tiny_vocabulary)
    generator = np.random.default_rng(1)
    for variable in exported.model.trainable_variables:  # so that no bias is 0 and no norm's scale is 1
        variable.assign(variable + generator.normal(0, 0.4, variable.shape))
    table = exported.model.softmax.table
    table.assign(ops.scatter_update(3 * table, [[PAD_ID], [EOS_ID]], ops.zeros((2, table.shape[1]))))
    translator = ctranslate2.Translator(str(exported.save().export(tmp_path)), intra_threads=1)
    assert exported.difference(translator) < 1e-4

    results = translator.translate_batch(exported.pieces(SOURCES), beam_size=1, max_decoding_length=20)
    all_pieces = tiny_vocabulary.pieces(range(tiny_vocabulary.size))
    ids = np.array([[all_pieces.index(piece) for piece in result.hypotheses[0]] for result in results])
    assert ids.shape == (len(SOURCES), 20)
    log_probs = exported.log_probs(SOURCES, ids)
    output_log_probs = np.take_along_axis(log_probs, ids[:, :, None], axis=2)[:, :, 0]
    np.testing.assert_allclose(output_log_probs, log_probs.max(axis=2), atol=1e-4)


@pytest.mark.parametrize("kind", ["subwords", "character", "separate"])
def test_vocabularies_of_tensor2tensor_are_exported(
    ctranslate2: Any, tmp_path: Path, tiny_hparams: HParams, kind: str
) -> None:
    vocabulary: Vocabulary = ByteVocabulary() if kind == "character" else small_subwords()
    if kind == "separate":
        vocabulary = vocabulary.with_sources(TokenVocabulary(b"<pad>\n<EOS>\nthe\n<unk>\ndog\n"))
    hparams = dataclasses.replace(tiny_hparams, shared_embedding_and_softmax_weights=False)
    exported = Exported(tmp_path, hparams, vocabulary).save()
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
    translator = ctranslate2.Translator(str(path), intra_threads=1)
    assert exported.difference(translator) < 1e-4
    exported.compare_search(translator, 1)


def test_every_quantization_translates_without_our_code(ctranslate2: Any, trained: Exported, tmp_path: Path) -> None:
    relative_sizes = {
        "float32": 1, "float16": 0.51, "bfloat16": 0.51, "int16": 0.95, "int8": 0.93, "int8_float32": 0.93,
        "int8_float16": 0.49, "int8_bfloat16": 0.49,
    }  # fmt: skip
    paths = {quantization: trained.export(tmp_path, quantization) for quantization in relative_sizes}
    assert {file.name for file in paths["int8"].iterdir()} == {
        "config.json", "model.bin", "sentencepiece.model", "shared_vocabulary.json"
    }  # fmt: skip
    request = json.dumps([[str(path) for path in paths.values()], SOURCES, TARGETS])
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROCESS],
        input=request,
        capture_output=True,
        text=True,
        # Without MKL, CTranslate2's int8 kernels overflow on some processors, and log-probabilities are wrong by 1 nat
        # or more.
        env=os.environ | {"CT2_USE_MKL": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    float32_size, expected = (paths["float32"] / "model.bin").stat().st_size, trained.target_log_probs()
    for (quantization, path), (texts, log_probs) in zip(paths.items(), json.loads(done.stdout), strict=True):
        assert (path / "model.bin").stat().st_size <= relative_sizes[quantization] * float32_size
        assert texts == TARGETS
        differences = [np.abs(ours - theirs).max() for ours, theirs in zip(expected, log_probs, strict=True)]
        assert max(differences) < (1e-4 if quantization == "float32" else 0.1), quantization


def test_beam_search_and_the_longest_source(ctranslate2: Any, trained: Exported, tmp_path: Path) -> None:
    translator = ctranslate2.Translator(str(trained.export(tmp_path)), intra_threads=1)
    trained.compare_search(translator, 4)
    longest_source = ["a"] * (POSITIONS - 1)
    translator.translate_batch([longest_source], beam_size=1, max_input_length=0, max_decoding_length=2)
    with pytest.raises(RuntimeError, match=f"position encodings are defined for positions >= {POSITIONS}"):
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
    ctranslate2: Any, tiny_hparams: HParams, hparams: dict[str, Any], quantization: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        refuse_impossible(dataclasses.replace(tiny_hparams, **hparams), quantization)
    refuse_impossible(tiny_hparams, "int8_float32")


def test_a_missing_package_is_named(tiny_hparams: HParams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(UserError, match='pip install "t2t_repro\\[ctranslate2\\]"'):
        refuse_impossible(tiny_hparams, "float32")
