"""Tests which models are imported from folders of transformers, and that a refused one leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import programs
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator
from t2t_repro.huggingface.model import MarianImport
from t2t_repro.huggingface.weights import read_weights
from user_errors import user_error

DATA = Path(__file__).parents[2] / "golden" / "data"
SHARED, HEAD, POSITIONS = "model.shared.weight", "lm_head.weight", "model.decoder.embed_positions.weight"
Weights = dict[str, np.ndarray]
ANGLES = np.arange(64)[:, None] / 10000.0 ** (np.arange(4) / 4)
SINUSOIDS = np.concatenate([np.sin(ANGLES), np.cos(ANGLES)], 1)

pytestmark = pytest.mark.usefixtures("no_graphs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of transformers: two languages, two layers in the encoder and one in the decoder, width 8."""
    for name in ("marian", "marian_model"):
        shutil.copytree(DATA / name, tmp_path / "folder", dirs_exist_ok=True)
    return tmp_path / "folder"


def change(folder: Path, change_weights: Callable[[Weights], Any], **config: Any) -> None:
    """Changes the weights of a folder and values in its config.json."""
    weights = dict(read_weights(folder))
    change_weights(weights)
    header, data = {}, b""
    for name, value in weights.items():
        contents = np.asarray(value, "<f4").tobytes()
        places = [len(data), len(data) + len(contents)]
        header[name], data = {"dtype": "F32", "shape": list(value.shape), "data_offsets": places}, data + contents
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    old = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**old, **config}))


def put(name: str, value: Callable[[np.ndarray], np.ndarray], of: str = "") -> Callable[[Weights], None]:
    """Returns a change that gives a weight the value of a function of a weight, by default of itself."""
    return lambda weights: weights.update({name: value(weights[of or name])})


def keep(weights: Weights) -> None:
    pass


@pytest.mark.parametrize(
    ("change_weights", "config", "words"),
    [
        (lambda weights: weights.pop(SHARED), {}, [SHARED, "missing"]),
        (lambda weights: weights.pop("model.encoder.layers.1.fc1.bias"), {}, ["model.encoder.layers.1.fc1.bias"]),
        (put("model.encoder.layers.9.fc1.bias", np.copy, SHARED), {}, ["model.encoder.layers.9.fc1.bias"]),
        (put(SHARED, np.transpose), {}, [SHARED, "[8, 145]", "[145, 8]"]),
        (put("final_logits_bias", lambda bias: bias * np.nan), {}, ["final_logits_bias"]),
        (put(SHARED, lambda table: table + 1), {}, ["decoding starts"]),
        (put(HEAD, lambda table: table + 1, SHARED), {}, [SHARED, HEAD]),
        (put(POSITIONS, lambda _: SINUSOIDS[:, [0, 4, 1, 5, 2, 6, 3, 7]], SHARED), {}, [POSITIONS]),
        (keep, {"encoder_ffn_dim": 16}, ["fc1", "config.json"]),
        (keep, {"decoder_attention_heads": 4}, ["config.json", "decoder_attention_heads=4"]),
        (keep, {"bad_words_ids": [[144], [7]]}, ["config.json", "bad_words_ids=[[144], [7]]"]),
        (keep, {"tie_word_embeddings": False}, [HEAD]),
        (keep, {"dropout": 1.0}, ["config.json", "dropout"]),
        (keep, {"share_encoder_decoder_embeddings": False}, ["model.encoder.embed_tokens.weight"]),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_imported_is_refused(
    change_weights: Callable[[Weights], Any], config: dict[str, Any], words: list[str], folder: Path
) -> None:
    change(folder, change_weights, **config)
    message = user_error(MarianImport, folder)
    assert message.startswith(str(folder)) and all(word in message for word in words)


def test_older_files_repeat_tables_and_have_positions(folder: Path) -> None:
    def repeat(weights: Weights) -> None:
        for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", HEAD):
            weights[name] = weights[SHARED]
        weights[POSITIONS] = SINUSOIDS
        del weights["final_logits_bias"]

    expected = MarianImport(folder).weights
    change(folder, repeat)
    weights = MarianImport(folder).weights
    assert not weights.pop("transformer/softmax_bias").any() and expected.pop("transformer/softmax_bias").any()
    np.testing.assert_equal(weights, expected)


def test_matrices_of_their_own_are_imported(folder: Path) -> None:
    change(folder, put(HEAD, lambda table: 2 * table, SHARED), tie_word_embeddings=False)
    imported = MarianImport(folder)
    np.testing.assert_array_equal(
        imported.weights["transformer/softmax/table"], 2 * imported.weights["transformer/embedding/table"]
    )
    assert imported.hparams.shared_embedding and not imported.hparams.shared_embedding_and_softmax_weights


def test_the_program_imports_a_model_with_its_languages_and_beam(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    Path("folder/tokenizer_config.json").write_text('{"source_lang": "eng", "target_lang": "ROMANCE"}')
    Path("folder/generation_config.json").write_text('{"num_beams": 6, "bad_words_ids": [[144]]}')
    text = programs.succeed("import", "--huggingface=folder", "--output_dir=new").stderr
    assert "2 target languages" in text and "--hparams_set=marian_base --hparams=" in text
    translator = Translator.from_dir("new")
    assert translator.decode_hparams.beam_size == 6 and ModelFolder("new").problem.languages == ("", "")
    [translation] = translator.translate(["The dog."], target_language="deu")
    assert 0 not in translation.hypotheses[0].ids
    assert "no such folder" in programs.error("import", "--huggingface=nowhere", "--output_dir=x")
    assert "--vocab" in programs.error("import", "--huggingface=folder", "--vocab=a", "--output_dir=x")
    Path("folder/target.spm").unlink()
    assert "folder/target.spm" in programs.error("import", "--huggingface=folder", "--output_dir=x")
    assert not Path("x").exists()
