"""Tests of decoding in bfloat16: scores are almost those of float32, and each program uses its
--precision.
"""

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
from t2t_repro.models import variants
from user_errors import user_error


@pytest.fixture
def trained(folder: ModelFolder, tiny_hparams: HParams) -> ModelFolder:
    """Returns a model folder with a checkpoint of random weights."""
    keras.utils.set_random_seed(3)
    model = variants.transformer(tiny_hparams, folder.vocabulary.size)
    write_checkpoint(folder.path, 3, weights_of(model), folder.vocabulary.fingerprint)
    return folder


@pytest.fixture
def any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepts every processor, because TensorFlow can compute in bfloat16 on all of them, though
    slowly.
    """
    monkeypatch.setattr(devices, "require_precision", lambda precision: None)


@pytest.mark.usefixtures("any_processor", "no_graphs")
def test_a_translator_in_bfloat16_scores_almost_as_in_float32(trained: ModelFolder) -> None:
    texts = ["the dog", "a cat sat on the dog", ""]
    log_probs = []
    for name in ("float32", "bfloat16"):
        translator = Translator.from_dir(str(trained.path), precision=name)
        assert translator.model.embedding.table.dtype == name
        log_probs.append([pair.log_prob for pair in translator.score(texts, texts)])
    exact, coarse = log_probs
    np.testing.assert_allclose(coarse, exact, rtol=0.01)
    assert coarse != exact
    assert "did you mean 'bfloat16'" in user_error(
        Translator.from_dir, str(trained.path), precision="bf16"
    )


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
    for has_instructions in (True, False):
        monkeypatch.setattr(devices, "multiplies", lambda name, result=has_instructions: result)
        for program, arguments in (("decoder", files), ("translate-beam", files), ("exporter", [])):
            is_refused = precision == "bfloat16" and not has_instructions and program != "exporter"
            words = "no bfloat16 instructions" if is_refused else f"loads in {precision}"
            refused(run(program, *flags, *arguments), words)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "x"}
