"""Tests which GPUs each program uses, and how it reports a GPU without free memory. No GPU is
needed.
"""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from absl import flags

from models import write_checkpoint
from programs import refused, run
from t2t_repro import devices
from t2t_repro.beam import pipeline
from t2t_repro.bin import program, t2t_trainer
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.training import loop

CONFIGURE = ("use_one_gpu", "hide_gpus", "let_memory_grow")


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the functions that configure GPUs by functions that raise UserError with their call:
    "hide_gpus()".
    """

    def replacement(name: str) -> Any:
        def configure(*arguments: int) -> None:
            raise UserError(f"{name}{arguments}")

        return configure

    for name in CONFIGURE:
        monkeypatch.setattr(devices, name, replacement(name))


@pytest.fixture
def trained(folder: ModelFolder) -> ModelFolder:
    """Returns a model folder with a checkpoint of step 3. Loading it fails: its weights do not fit
    the model.
    """
    write_checkpoint(folder.path, 3, {"w": tf.Variable(1.0)}, folder.vocabulary.fingerprint)
    return folder


@pytest.mark.parametrize(
    ("name", "arguments", "call"),
    [
        ("decoder", ["--decode_from_file=x"], "use_one_gpu(0,)"),
        (
            "decoder",
            ["--decode_from_file=x", "--decode_to_file=y", "--shards=8", "--shard_id=5"],
            "use_one_gpu(5,)",
        ),
        ("exporter", [], "use_one_gpu()"),
        ("exporter", ["--format=ctranslate2"], "hide_gpus()"),
        ("avg-checkpoints", [], "hide_gpus()"),
        ("import", ["--t2t_model=."], "hide_gpus()"),
    ],
)
@pytest.mark.usefixtures("configured")
def test_a_program_configures_gpus_before_it_loads_weights(
    name: str, arguments: list[str], call: str, trained: ModelFolder, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("a cat\n")
    refused(
        run(name, f"--output_dir={trained.path}", *arguments, cwd=tmp_path), f"t2t-{name}: {call}"
    )


@pytest.mark.usefixtures("configured")
def test_a_worker_of_a_beam_pipeline_uses_one_gpu(trained: ModelFolder) -> None:
    job = pipeline.BeamJob(str(trained.path), trained.checkpoint(), DecodeHParams(), "y")
    with pytest.raises(UserError, match=r"^use_one_gpu\(\)$"):
        pipeline.load(job)


@pytest.mark.parametrize(("train_steps", "calls"), [(2, 1), (3, 1), (4, 0)])
def test_only_training_allocates_all_memory(
    train_steps: int, calls: int, trained: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = t2t_trainer.make_flags()
    values(["t2t-trainer", f"--output_dir={trained.path}"])
    grows = []
    monkeypatch.setattr(devices, "let_memory_grow", lambda: grows.append(True))
    monkeypatch.setattr(loop, "train", lambda *arguments: None)
    t2t_trainer.train(values, HParams(train_steps=train_steps), None)
    assert len(grows) == calls


@pytest.mark.parametrize("kind", [tf.errors.ResourceExhaustedError, tf.errors.InternalError])
def test_a_gpu_without_free_memory_is_one_line(
    kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(values: flags.FlagValues) -> None:
        raise kind(
            None,
            None,
            "CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
        )

    assert program.run(main, flags.FlagValues(), "", ["t2t-decoder"]) == 2
    assert (
        "too little free memory (CUDA runtime implicit initialization on GPU:0 failed"
        in capsys.readouterr().err
    )
