"""Tests that an exported CTranslate2 model computes what our model computes."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from keras import ops

from models import weights_of, write_checkpoint
from sentencepieces import trained
from subwords import small_subwords
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary, TokenVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import padded
from t2t_repro.hparam import HParams
from t2t_repro.models import variants
from user_errors import user_error

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
export = importlib.import_module("t2t_repro.ctranslate2.export")

SOURCES = [
    "the dog",
    "a cat sat on the dog",
    "Ω 漢",
    "the cat sat on the dog and the cat",
    "a",
    "dog on the cat",
]
TARGETS = ["on the cat sat a dog and", "a", "dog sat on a cat and the", "漢", "dog", "the cat"]
RELATIVE = {
    "self_attention_type": "dot_product_relative",
    "max_relative_position": 3,
    "pos": "none",
}
NARROW_KEYS = {"attention_key_channels": 6, "attention_value_channels": 20}
NARROW_VALUES = {"attention_key_channels": 24, "attention_value_channels": 8}
SEPARATE = {"shared_embedding_and_softmax_weights": False}
BIASES = {"use_attention_biases": True, "use_softmax_bias": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm, narrow keys": NARROW_KEYS,
    "pre-norm, narrow values": {
        "norm_before": True,
        "norm_epsilon": 0.1,
        "num_hidden_layers": 2,
        **NARROW_VALUES,
    },
    "learned positions, three matrices": {"pos": "emb", "max_length": 8, **SEPARATE},
    "target space": {"use_target_space_embedding": True},
    "no positions": {"pos": "none"},
    "relative": {**RELATIVE, "norm_before": True, "use_target_space_embedding": True},
    "relative, narrow keys": {**RELATIVE, **NARROW_KEYS},
    "biases, narrow keys, swish": {**BIASES, **NARROW_KEYS, "activation": "swish", "pos": "marian"},
    "biases, gelu, embeddings without a factor": {
        **BIASES,
        "activation": "gelu",
        "multiply_embedding_mode": "none",
    },
    "relative, target space, no factor": {
        **RELATIVE,
        "use_target_space_embedding": True,
        "multiply_embedding_mode": "none",
    },
}


def new_model(hparams: HParams, vocabulary: Vocabulary) -> Any:
    """Returns a model with random weights. No bias is 0, and no norm's scale is 1."""
    keras.utils.set_random_seed(1)
    model = variants.transformer(
        hparams, vocabulary.size, 1, source_vocab_size=vocabulary.separate_source_size
    )
    generator = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(variable + generator.normal(0, 0.4, variable.shape))
    if hparams.use_softmax_bias:
        bias = model.softmax.bias
        bias.assign(ops.scatter_update(bias, [[PAD_ID]], [30.0]))
    table = model.softmax.table
    zeros = ops.zeros((2, table.shape[1]))
    table.assign(ops.scatter_update(3 * table, [[PAD_ID], [EOS_ID]], zeros))
    return model


def exported(model: Any, vocabulary: Vocabulary, path: Path, quantization: str = "float32") -> Path:
    """Returns the folder with the exported model, without the vocabulary's file."""
    spec = export.quantized(export.specification(model, vocabulary), quantization)
    path.mkdir()
    spec.save(str(path))
    return path


def difference(model: Any, vocabulary: Vocabulary, path: Path) -> float:
    """Returns the largest difference between a model's log-probabilities of TARGETS and those of
    the exported model.
    """
    sources = vocabulary.sources.encode(SOURCES)
    targets = vocabulary.encode(TARGETS)
    # A CTranslate2 client sends subwords without the end token.
    source_pieces = [vocabulary.sources.pieces(ids[:-1]) for ids in sources]
    target_pieces = [vocabulary.pieces(ids[:-1]) for ids in targets]
    translator = ctranslate2.Translator(str(path), intra_threads=1, compute_type="float32")
    logits = model(padded(sources), padded(targets))
    if model.hparams.use_softmax_bias:  # the bias in an exported model excludes padding
        logits -= 1e9 * tf.one_hot(PAD_ID, logits.shape[-1])
    log_probs = -tf.nn.sparse_softmax_cross_entropy_with_logits(padded(targets), logits).numpy()
    scores = translator.score_batch(source_pieces, target_pieces)
    results = zip(log_probs, targets, scores, strict=True)
    return max(np.abs(row[: len(ids)] - result.log_probs).max() for row, ids, result in results)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_the_model_keeps_its_log_probabilities(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary, variant: str
) -> None:
    model = new_model(dataclasses.replace(tiny_hparams, **VARIANTS[variant]), tiny_vocabulary)
    path = exported(model, tiny_vocabulary, tmp_path / "x")
    assert difference(model, tiny_vocabulary, path) < 1e-4


def test_returned_attention_is_the_mean_of_all_heads(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    model = new_model(dataclasses.replace(tiny_hparams, num_hidden_layers=2), tiny_vocabulary)
    path = exported(model, tiny_vocabulary, tmp_path / "x")
    translator = ctranslate2.Translator(str(path), intra_threads=1)
    [source] = tiny_vocabulary.encode(SOURCES[1:2])
    pieces = tiny_vocabulary.pieces(source[:-1])
    [result] = translator.translate_batch(
        [pieces], beam_size=1, max_decoding_length=5, return_attention=True
    )
    pieces = tiny_vocabulary.pieces(range(tiny_vocabulary.size))
    targets = np.array([[pieces.index(piece) for piece in result.hypotheses[0]]])
    memory = model.encode(np.array([source]))
    _, layers = model.decode(targets, memory, return_attention=True)
    # CTranslate2 omits the column of the end token.
    np.testing.assert_allclose(
        result.attention[0], np.mean(layers[-1]["cross"], axis=1)[0, :, :-1], atol=1e-4
    )


def test_vocabularies_of_tensor2tensor_are_exported(tmp_path: Path, tiny_hparams: HParams) -> None:
    hparams = dataclasses.replace(tiny_hparams, **SEPARATE)
    characters = ByteVocabulary()
    model = new_model(hparams, characters)
    assert difference(model, characters, exported(model, characters, tmp_path / "x")) < 1e-4

    vocabulary = small_subwords().with_sources(TokenVocabulary(b"<pad>\n<EOS>\nthe\n<unk>\ndog\n"))
    origin = Origin(
        "numbers_ende",
        {},
        "vocab.x.subwords",
        "0123456789ab",
        1,
        source_vocabulary="vocab.y.tokens",
    )
    folder = ModelFolder.create(tmp_path / "model", hparams, vocabulary, origin)
    model = new_model(hparams, vocabulary)
    checkpoint = write_checkpoint(folder.path, 3, weights_of(model), vocabulary.fingerprint)
    path = export.export_ctranslate2(folder, checkpoint, tmp_path / "export")
    assert {file.name for file in path.iterdir()} == {
        "config.json",
        "model.bin",
        "source_vocabulary.json",
        "target_vocabulary.json",
        "source_vocabulary.tokens",
        "target_vocabulary.subwords",
    }
    assert difference(model, vocabulary, path) < 1e-4


def test_unknown_text_of_a_tokenizer_is_the_unknown_piece_of_the_sources(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    file = trained(unk_piece="[UNK]", model_type="char")
    vocabulary = tiny_vocabulary.with_sources(SentencePieceVocabulary(file))
    model = new_model(dataclasses.replace(tiny_hparams, **SEPARATE), vocabulary)
    sources = vocabulary.sources.encode(SOURCES[2:3])
    targets = vocabulary.encode(TARGETS[:1])
    logits = model(padded(sources), padded(targets))
    expected = -tf.nn.sparse_softmax_cross_entropy_with_logits(padded(targets), logits).numpy()[0]
    path = exported(model, vocabulary, tmp_path / "x")
    translator = ctranslate2.Translator(str(path), intra_threads=1)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=file)
    pieces = tokenizer.encode(SOURCES[2:3], out_type=str)
    [score] = translator.score_batch(pieces, [vocabulary.pieces(targets[0][:-1])])
    np.testing.assert_allclose(score.log_probs, expected, atol=1e-4)


def test_every_quantization_has_its_size_and_almost_the_same_log_probabilities(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    keras.utils.set_random_seed(1)
    model = variants.transformer(tiny_hparams, tiny_vocabulary.size)
    relative_sizes = {
        "float32": 1,
        "float16": 0.51,
        "bfloat16": 0.51,
        "int16": 0.95,
        "int8": 0.93,
        "int8_float32": 0.93,
        "int8_float16": 0.49,
        "int8_bfloat16": 0.49,
    }
    full_size = 0
    for quantization, relative_size in relative_sizes.items():
        path = exported(model, tiny_vocabulary, tmp_path / quantization, quantization)
        size = (path / "model.bin").stat().st_size
        full_size = full_size or size
        assert size <= relative_size * full_size
        is_exact = quantization == "float32"
        assert difference(model, tiny_vocabulary, path) < (1e-4 if is_exact else 0.05), quantization
    translator = ctranslate2.Translator(str(path), intra_threads=1)
    options = {"beam_size": 1, "max_input_length": 0, "max_decoding_length": 2}
    longest_source = ["a"] * (export.POSITIONS - 1)
    translator.translate_batch([longest_source], **options)
    message = f"position encodings are defined for positions >= {export.POSITIONS}"
    with pytest.raises(RuntimeError, match=message):
        translator.translate_batch([[*longest_source, "a"]], **options)


@pytest.mark.parametrize(
    ("hparams", "quantization", "message"),
    [
        ({}, "int9", "unknown --quantization 'int9'; did you mean 'int8'"),
        ({"self_attention_neighborhood": 4}, "int8", "self_attention_neighborhood=4: "),
        (
            RELATIVE | {"pos": "timing"},
            "int8",
            "pos=timing: CTranslate2 has either relative self-attention or",
        ),
        ({"model": "poet"}, "int8", "model=poet: "),
    ],
)
def test_an_impossible_export_is_refused(
    tiny_hparams: HParams, hparams: dict[str, Any], quantization: str, message: str
) -> None:
    changed = dataclasses.replace(tiny_hparams, **hparams)
    assert message in user_error(export.refuse_impossible, changed, quantization)
    export.refuse_impossible(tiny_hparams, "int8_float32")
