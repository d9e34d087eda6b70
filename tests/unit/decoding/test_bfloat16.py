"""Tests of decoding in bfloat16: no step of the search converts a weight, and each program uses its --precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from models import weights_of, write_checkpoint
from programs import refused, run
from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer

VARIANTS: list[dict[str, Any]] = [
    {},
    {
        "norm_before": True,
        "pos": "emb",
        "shared_embedding_and_softmax_weights": False,
        "self_attention_neighborhood": 2,
    },
]


@pytest.fixture
def trained(folder: ModelFolder, tiny_hparams: HParams) -> ModelFolder:
    """Returns a model folder with a checkpoint of random weights."""
    keras.utils.set_random_seed(3)
    model = Transformer(tiny_hparams, folder.vocabulary.size)
    write_checkpoint(folder.path, 3, weights_of(model), folder.vocabulary.fingerprint)
    return folder


@pytest.fixture
def any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepts every processor, because TensorFlow can compute in bfloat16 on all of them, though slowly."""
    monkeypatch.setattr(devices, "require_precision", lambda precision: None)


def casts_of_weights(model: Any) -> list[str]:
    """Returns the names of the Cast operations in a step of the search whose input is a weight, perhaps transposed."""

    def step(inputs: tf.Tensor) -> tf.Tensor:
        return model.decode_step(inputs, tf.constant(0), model.start(tf.size(inputs)), model.encode(inputs))[0]

    function = tf.function(step, autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    casts = []
    for cast in function.get_concrete_function().graph.get_operations():
        if cast.type != "Cast":
            continue
        source = cast.inputs[0].op
        while source.type in ("Identity", "Transpose", "Reshape"):
            source = source.inputs[0].op
        if source.type == "ReadVariableOp":
            casts.append(cast.name)
    return casts


@pytest.mark.parametrize("changes", VARIANTS)
def test_no_step_of_the_search_converts_a_weight(changes: dict[str, Any], tiny_hparams: HParams) -> None:
    hparams = replace(tiny_hparams, **changes)
    assert casts_of_weights(Transformer(hparams, 30, precision="bfloat16")) == []
    assert len(casts_of_weights(Transformer(hparams, 30, precision="mixed_bfloat16"))) > 5  # the weights are float32


@pytest.mark.usefixtures("any_processor")
def test_a_translator_in_bfloat16_scores_almost_as_in_float32(trained: ModelFolder) -> None:
    texts = ["the dog", "a cat sat on the dog", ""]
    exact, coarse = (Translator.from_dir(str(trained.path), precision=name) for name in ("float32", "bfloat16"))
    assert exact.model.embedding.table.dtype == "float32"
    assert coarse.model.embedding.table.dtype == "bfloat16"
    scores = [[pair.log_prob for pair in translator.score(texts, texts)] for translator in (exact, coarse)]
    np.testing.assert_allclose(scores[1], scores[0], rtol=0.01)
    assert scores[0] != scores[1]


@pytest.mark.usefixtures("any_processor")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_each_program_loads_the_model_in_its_precision(
    precision: str, trained: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(folder: ModelFolder, checkpoint: str, precision: str = "float32") -> None:
        raise UserError(f"loads in {precision}")

    monkeypatch.setattr(ModelFolder, "model", model)
    (tmp_path / "x").write_text("the dog\n")
    flags = [f"--output_dir={trained.path}"] + ["--precision=bfloat16"] * (precision == "bfloat16")
    files = [f"--decode_from_file={tmp_path}/x", f"--decode_to_file={tmp_path}/y"]
    for program, arguments in (("decoder", files), ("translate-beam", files), ("exporter", [])):
        refused(run(program, *flags, *arguments), f"loads in {precision}")


def test_a_wrong_precision_is_one_line(trained: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "BFLOAT16_INSTRUCTIONS", set[str]())
    (tmp_path / "x").write_text("the dog\n")
    flags = [f"--output_dir={trained.path}", f"--decode_from_file={tmp_path}/x", f"--decode_to_file={tmp_path}/y"]
    for program in ("decoder", "translate-beam"):
        refused(run(program, *flags, "--precision=bfloat16"), "--precision=bfloat16", "no bfloat16 instructions")
    with pytest.raises(UserError, match="no bfloat16 instructions"):
        Translator.from_dir(str(trained.path), precision="bfloat16")
    with pytest.raises(UserError, match="did you mean 'bfloat16'"):
        Translator.from_dir(str(trained.path), precision="bf16")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "x"}
