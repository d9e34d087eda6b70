"""Tests that a folder for transformers computes what our model computes, and that an imported one
is as it was.
"""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import sentencepiece

from models import weights_of, write_checkpoint
from numpy_marian import NumpyMarian
from sentencepieces import trained
from subwords import small_subwords
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.huggingface.export import export_huggingface
from t2t_repro.huggingface.model import MarianImport
from t2t_repro.huggingface.weights import read_weights
from t2t_repro.models import variants
from t2t_repro.serving.model_card import ModelCard
from user_errors import user_error

DATA = Path(__file__).parents[2] / "golden" / "data"
SOURCES = ["the dog", "a cat sat on the dog", "Ω 漢"]
TARGETS = ["on the cat sat a dog and", "a", "dog sat on a cat and the"]
SEPARATE = {"shared_embedding_and_softmax_weights": False}
RELATIVE = {
    "self_attention_type": "dot_product_relative",
    "max_relative_position": 3,
    "pos": "none",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": {"num_hidden_layers": 2},
    "small epsilon": {"norm_epsilon": 1e-8},
    "biases, swish, Marian": {
        "use_attention_biases": True,
        "use_softmax_bias": True,
        "activation": "swish",
    },
    "three matrices, learned positions": {
        **SEPARATE,
        "pos": "emb",
        "max_length": 8,
        "norm_epsilon": 0.1,
    },
    "two matrices, no factor": {
        **SEPARATE,
        "shared_embedding": True,
        "multiply_embedding_mode": "none",
    },
    "target space, unequal stacks": {
        "use_target_space_embedding": True,
        "num_decoder_layers": 2,
        "pos": "marian",
    },
}
pytestmark = pytest.mark.usefixtures("no_graphs")


def new_folder(path: Path, hparams: HParams, vocabulary: Vocabulary) -> tuple[ModelFolder, str]:
    """Returns a model folder and its checkpoint. No bias is 0, and no norm's scale is 1."""
    keras.utils.set_random_seed(1)
    model = variants.transformer(
        hparams, vocabulary.size, source_vocab_size=vocabulary.separate_source_size
    )
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(variable + random.normal(0, 0.4, variable.shape))
    source = f"vocab.source{vocabulary.sources.suffix}" if vocabulary.separate_source_size else ""
    origin = Origin(
        "numbers_ende",
        {},
        f"vocab.x{vocabulary.suffix}",
        "0123456789ab",
        1,
        source_vocabulary=source,
    )
    folder = ModelFolder.create(path, hparams, vocabulary, origin)
    return folder, write_checkpoint(path, 3, weights_of(model), vocabulary.fingerprint)


def exported(folder: ModelFolder, checkpoint: str) -> Path:
    card = ModelCard(folder, checkpoint, ("en", "de"), "apache-2.0", ["30.0 BLEU"])
    return export_huggingface(folder, checkpoint, folder.path / "export", card)


def check_logits(folder: ModelFolder, checkpoint: str, path: Path) -> None:
    """Asserts that our model and that in a folder have the same logits for all pieces but padding."""  # noqa: E501
    marian = NumpyMarian(path)
    model = folder.model(checkpoint)
    table = json.loads((path / "vocab.json").read_text("utf-8"))
    target_path = path / "target_vocab.json"
    target_table = json.loads(target_path.read_text("utf-8")) if target_path.exists() else table

    def marian_ids(text: str, side: str, table: dict[str, int]) -> list[int]:
        spm = sentencepiece.SentencePieceProcessor(model_file=str(path / f"{side}.spm"))
        pieces = [*spm.encode(text, out_type=str), "</s>"]
        return [table.get(piece, table["<unk>"]) for piece in pieces]

    vocabulary = folder.vocabulary
    places = [target_table[piece] for piece in vocabulary.pieces(range(2, vocabulary.size))]
    for source, target in zip(SOURCES, TARGETS, strict=True):
        inputs = np.array(vocabulary.sources.encode([source]))
        targets = np.array(vocabulary.encode([target]))
        logits = np.asarray(model(inputs, targets))[0]
        marian_logits = marian.logits(
            marian_ids(source, "source", table), marian_ids(target, "target", target_table)
        )[:, [target_table["</s>"], *places]]
        np.testing.assert_allclose(marian_logits, logits[:, 1:], atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_kept(
    variant: str, tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    hparams = dataclasses.replace(tiny_hparams, **VARIANTS[variant])
    folder, checkpoint = new_folder(tmp_path, hparams, tiny_vocabulary)
    path = exported(folder, checkpoint)
    check_logits(folder, checkpoint, path)
    imported = MarianImport(path)
    imported.write(str(tmp_path / "imported"))
    folder = ModelFolder(tmp_path / "imported")
    check_logits(folder, folder.checkpoint(), path)
    is_sinusoid = hparams.pos != "emb" and not hparams.use_target_space_embedding
    expected = (hparams.pos, hparams.norm_epsilon) if is_sinusoid else ("emb", 1e-5)
    assert (folder.hparams.pos, folder.hparams.norm_epsilon) == expected


def test_two_vocabularies_share_the_number_of_padding(
    tmp_path: Path, tiny_hparams: HParams
) -> None:
    vocabulary = SentencePieceVocabulary(trained()).with_sources(
        SentencePieceVocabulary(trained(sentence_iterator=iter(SOURCES * 20)))
    )
    folder, checkpoint = new_folder(
        tmp_path, dataclasses.replace(tiny_hparams, **SEPARATE), vocabulary
    )
    path = exported(folder, checkpoint)
    check_logits(folder, checkpoint, path)
    numbers = {
        json.loads((path / name).read_text("utf-8"))["<pad>"]
        for name in ("vocab.json", "target_vocab.json")
    }
    assert numbers == {json.loads((path / "config.json").read_text())["pad_token_id"]}


def test_an_imported_model_is_exported_as_it_was(tmp_path: Path) -> None:
    for name in ("marian", "marian_model"):
        shutil.copytree(DATA / name, tmp_path / "folder", dirs_exist_ok=True)
    MarianImport(tmp_path / "folder").write(str(tmp_path / "model"))
    folder = ModelFolder(tmp_path / "model")
    path = exported(folder, folder.checkpoint())
    weights = read_weights(tmp_path / "folder")
    new_weights = read_weights(path)
    assert weights.keys() == new_weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(new_weights[name], value)
    for name in ("vocab.json", "config.json"):
        fields, new_fields = (
            json.loads((place / name).read_text("utf-8")) for place in (tmp_path / "folder", path)
        )
        assert not {
            key: value
            for key, value in fields.items()
            if key != "dtype" and new_fields.get(key, value) != value
        }
    for name in ("source.spm", "target.spm"):
        assert (path / name).read_bytes() == (tmp_path / "folder" / name).read_bytes()
    # The NumPy model that the other tests trust computes the logits that transformers recorded.
    golden = np.load(DATA / "marian_model" / "logits.npz")
    marian = NumpyMarian(path)
    pad = marian.config["pad_token_id"]
    for source, targets, logits in zip(
        golden["inputs"], golden["targets"], golden["logits"], strict=True
    ):
        ids = targets[targets != pad].tolist()
        ours = marian.logits(source[source != pad].tolist(), ids)
        np.testing.assert_allclose(ours, logits[: len(ids)], atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"norm_before": True}, "norm_before"),
        (RELATIVE, "max_relative_position"),
        ({"self_attention_neighborhood": 4}, "self_attention_neighborhood"),
        ({"attention_value_channels": 8}, "attention_value_channels=8"),
    ],
)
def test_what_marian_lacks_is_refused(
    changes: dict[str, Any],
    word: str,
    tmp_path: Path,
    tiny_hparams: HParams,
    tiny_vocabulary: Vocabulary,
) -> None:
    folder, checkpoint = new_folder(
        tmp_path, dataclasses.replace(tiny_hparams, **changes), tiny_vocabulary
    )
    assert word in user_error(exported, folder, checkpoint)
    assert not (tmp_path / "export").exists()


def test_other_vocabularies_are_refused(tmp_path: Path, tiny_hparams: HParams) -> None:
    folder, checkpoint = new_folder(tmp_path, tiny_hparams, small_subwords())
    assert "vocab.x.subwords" in user_error(exported, folder, checkpoint)


def test_the_model_card_has_languages_licence_and_scores(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    folder, checkpoint = new_folder(tmp_path, tiny_hparams, tiny_vocabulary)
    text = (exported(folder, checkpoint) / "README.md").read_text("utf-8")
    head = text.split("---\n")[1]
    assert {'language: ["en", "de"]', 'license: "apache-2.0"'} <= {*head.split("\n")}
    assert all(
        word in text for word in ("30.0 BLEU", "numbers_ende", "hidden_size", "MarianMTModel")
    )
