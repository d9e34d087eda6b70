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
SHARED, HEAD = "model.shared.weight", "lm_head.weight"
ENCODER, DECODER = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
POSITIONS = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
Weights = dict[str, np.ndarray]


def sinusoids(divisor: int) -> np.ndarray:
    angles = np.arange(64)[:, None] / 10000.0 ** (np.arange(4) / divisor)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


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
        (keep, {"encoder_ffn_dim": 16}, ["fc1", "config.json"]),
        (keep, {"decoder_attention_heads": 4}, ["config.json", "decoder_attention_heads=4"]),
        (keep, {"bad_words_ids": [[144], [7]]}, ["config.json", "bad_words_ids=[[144], [7]]"]),
        (keep, {"tie_word_embeddings": False}, [HEAD]),
        (keep, {"dropout": 1.0}, ["config.json", "dropout"]),
        (keep, {"share_encoder_decoder_embeddings": False}, [ENCODER]),
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
        weights.update(dict.fromkeys((ENCODER, DECODER, HEAD), weights[SHARED]))
        weights.update(dict.fromkeys(POSITIONS, sinusoids(4)))
        del weights["final_logits_bias"]

    expected = MarianImport(folder).weights
    change(folder, repeat)
    weights = MarianImport(folder).weights
    assert not weights.pop("transformer/softmax_bias").any() and expected.pop("transformer/softmax_bias").any()
    np.testing.assert_equal(weights, expected)


HALVES = {ENCODER: lambda table: -table, DECODER: lambda table: 2 * table, HEAD: lambda table: 3 * table}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Callable[[np.ndarray], np.ndarray]], str]] = {
    "start": ({"scale_embedding": True}, {SHARED: lambda table: table + 0.25}, "emb"),
    "token": ({"decoder_start_token_id": 5}, {}, "emb"),
    "timing": ({}, dict.fromkeys(POSITIONS, lambda _: sinusoids(3)), "timing"),
    "learned": ({}, {POSITIONS[0]: lambda table: table[:64], POSITIONS[1]: lambda table: table[64:128]}, "emb"),
    "copies": ({}, HALVES, "marian"),
    "untied": ({"tie_word_embeddings": False}, {**HALVES, SHARED: lambda table: 5 * table}, "marian"),
    "separate": ({"share_encoder_decoder_embeddings": False}, {ENCODER: np.copy, DECODER: HALVES[DECODER]}, "marian"),
}
"""Changes in config.json, functions of the shared matrix that are further weights, and the hparam `pos`."""


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_of_transformers(name: str, folder: Path) -> None:
    config, functions, pos = VARIANTS[name]
    change(
        folder, lambda weights: weights.update({key: new(weights[SHARED]) for key, new in functions.items()}), **config
    )
    if name == "separate":
        change(folder, lambda weights: weights.pop(SHARED))
    imported = MarianImport(folder)
    imported.write(str(folder.parent / "model"))
    model_folder = ModelFolder(folder.parent / "model")
    golden, ids = np.load(DATA / "marian_model" / "logits.npz"), imported.target_ids
    arguments = (np.argsort(ids)[golden[key][:1]] for key in ("inputs", "targets"))
    logits = np.asarray(model_folder.model(model_folder.checkpoint())(*arguments))[0]
    expected = np.load(DATA / "marian_model" / "variants.npz")[name]
    np.testing.assert_allclose(logits, expected[:, ids], atol=1e-5)
    assert imported.hparams.pos == pos


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
