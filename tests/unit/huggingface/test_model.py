"""Tests which models are imported from folders of transformers, and that a refused one leaves
nothing behind.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import programs
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator
from t2t_repro.huggingface.export import safetensors
from t2t_repro.huggingface.model import MarianImport
from t2t_repro.huggingface.weights import read_weights
from user_errors import user_error

DATA = Path(__file__).parents[2] / "golden" / "data"
RECORDED = DATA / "marian_model"
SHARED = "model.shared.weight"
HEAD = "lm_head.weight"
ENCODER = "model.encoder.embed_tokens.weight"
DECODER = "model.decoder.embed_tokens.weight"
POSITIONS = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
BIAS = "final_logits_bias"
INNER_BIAS = "model.encoder.layers.{}.fc1.bias"
Weights = dict[str, np.ndarray]
Changes = dict[str, Callable[[Weights], np.ndarray] | None]
"""New weights by their names, as functions of the old ones; None removes a weight."""


def sinusoids(divisor: int) -> np.ndarray:
    angles = np.arange(64)[:, None] / 10000.0 ** (np.arange(4) / divisor)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


pytestmark = pytest.mark.usefixtures("no_graphs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of transformers: two languages, two layers in the encoder and one in the decoder,
    width 8.
    """
    for name in ("marian", "marian_model"):
        shutil.copytree(DATA / name, tmp_path / "folder", dirs_exist_ok=True)
    return tmp_path / "folder"


def change(folder: Path, changes: Changes, config: dict[str, Any]) -> None:
    """Changes the weights of a folder and values in its config.json."""
    old = dict(read_weights(folder))
    weights = old | {name: np.asarray(new(old), "<f4") for name, new in changes.items() if new}
    weights = {name: weights[name] for name in weights if changes.get(name, True)}
    (folder / "model.safetensors").write_bytes(safetensors(weights))
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | config))


@pytest.mark.parametrize(
    ("changes", "config", "words"),
    [
        ({SHARED: None}, {}, [SHARED, "missing"]),
        ({INNER_BIAS.format(1): None}, {}, [INNER_BIAS.format(1)]),
        ({INNER_BIAS.format(9): lambda old: old[SHARED]}, {}, [INNER_BIAS.format(9)]),
        ({SHARED: lambda old: old[SHARED].T.copy()}, {}, [SHARED, "[8, 145]", "[145, 8]"]),
        ({BIAS: lambda old: old[BIAS] * np.nan}, {}, [BIAS]),
        ({POSITIONS[0]: lambda old: old[SHARED][0, 0]}, {}, [POSITIONS[0]]),
        ({}, {"encoder_ffn_dim": 16}, ["fc1", "config.json"]),
        ({}, {"decoder_attention_heads": 4}, ["config.json", "decoder_attention_heads=4"]),
        ({}, {"bad_words_ids": [[144], [7]]}, ["config.json", "bad_words_ids=[[144], [7]]"]),
        ({}, {"decoder_start_token_id": 145}, ["vocab.json", "145"]),
        ({}, {"tie_word_embeddings": False}, [HEAD]),
        ({}, {"dropout": 1.0}, ["config.json", "dropout"]),
        ({}, {"share_encoder_decoder_embeddings": False}, [ENCODER]),
    ],
)
def test_a_model_that_cannot_be_imported_is_refused(
    changes: Changes, config: dict[str, Any], words: list[str], folder: Path
) -> None:
    change(folder, changes, config)
    message = user_error(MarianImport, folder)
    assert message.startswith(str(folder)) and all(word in message for word in words)


COPIES = dict.fromkeys((ENCODER, DECODER, HEAD), lambda old: old[SHARED])
OTHERS = {
    ENCODER: lambda old: -old[SHARED],
    DECODER: lambda old: 2 * old[SHARED],
    HEAD: lambda old: 3 * old[SHARED],
}
LEARNED = {
    POSITIONS[0]: lambda old: old[SHARED][:64],
    POSITIONS[1]: lambda old: old[SHARED][64:128],
}
SEPARATE = {ENCODER: COPIES[ENCODER], DECODER: OTHERS[DECODER], SHARED: None}


@pytest.mark.parametrize(
    ("name", "changes", "config", "pos"),
    [
        (
            "older",
            {**COPIES, **dict.fromkeys(POSITIONS, lambda _: sinusoids(4)), BIAS: None},
            {},
            "marian",
        ),
        ("start", {SHARED: lambda old: old[SHARED] + 0.25}, {"scale_embedding": True}, "emb"),
        ("token", {}, {"decoder_start_token_id": 5}, "emb"),
        ("timing", dict.fromkeys(POSITIONS, lambda _: sinusoids(3)), {}, "timing"),
        ("learned", LEARNED, {}, "emb"),
        ("copies", OTHERS, {}, "marian"),
        (
            "untied",
            {**OTHERS, SHARED: lambda old: 5 * old[SHARED]},
            {"tie_word_embeddings": False},
            "marian",
        ),
        ("separate", SEPARATE, {"share_encoder_decoder_embeddings": False}, "marian"),
    ],
)
def test_logits_are_those_of_transformers(
    name: str, changes: Changes, config: dict[str, Any], pos: str, folder: Path
) -> None:
    change(folder, changes, config)
    imported = MarianImport(folder)
    imported.write(str(folder.parent / "model"))
    model_folder = ModelFolder(folder.parent / "model")
    ids = imported.target_ids
    inputs, targets = (
        np.argsort(ids)[np.load(RECORDED / "logits.npz")[key][:1]] for key in ("inputs", "targets")
    )
    logits = np.asarray(model_folder.model(model_folder.checkpoint())(inputs, targets))[0]
    np.testing.assert_allclose(logits, np.load(RECORDED / "variants.npz")[name][:, ids], atol=1e-5)
    assert imported.hparams.pos == pos


def test_a_model_with_one_language_needs_no_tag(folder: Path) -> None:
    table = (folder / "vocab.json").read_text("utf-8")
    (folder / "vocab.json").write_text(table.replace(">>deu<<", "deu"), "utf-8")
    imported = MarianImport(folder)
    assert [*imported.vocabulary.tags] == [">>nds_Latn<<"] and not imported.problem.symbols


def test_the_program_imports_a_model_with_its_languages_and_beam(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("folder/tokenizer_config.json").write_text(
        '{"source_lang": "eng", "target_lang": "ROMANCE"}'
    )
    Path("folder/generation_config.json").write_text('{"num_beams": 6, "bad_words_ids": [[144]]}')
    text = programs.succeed("import", "--huggingface=folder", "--output_dir=new").stderr
    assert "2 target languages" in text and "--hparams_set=marian_base --hparams=" in text
    translator = Translator.from_dir("new")
    assert translator.decode_hparams.beam_size == 6
    assert ModelFolder("new").problem.languages == ("", "")
    [translation] = translator.translate(["The dog."], target_language="deu")
    assert 0 not in translation.hypotheses[0].ids
    assert "no such folder" in programs.error("import", "--huggingface=nowhere", "--output_dir=x")
    assert "--vocab" in programs.error(
        "import", "--huggingface=folder", "--vocab=a", "--output_dir=x"
    )
    Path("folder/target.spm").unlink()
    assert "folder/target.spm" in programs.error("import", "--huggingface=folder", "--output_dir=x")
    assert not Path("x").exists()
