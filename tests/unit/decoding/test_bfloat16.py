"""Tests of decoding in bfloat16: scores are almost those of float32, and each program uses its --precision."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from models import weights_of, write_checkpoint
from programs import refused, run
from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer


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
