"""Tests of the training loop and of the start of a training run: t2t-trainer runs in the test's own process."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from clusters import tf_config
from programs import LOOKUP, SMALL, refused, run, succeed, write_pairs
from t2t_repro import devices, registry
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.metrics.score import Score
from t2t_repro.models.transformer import Transformer
from t2t_repro.training.config import RunConfig
from t2t_repro.training.evaluation import Decoded, Evaluation
from t2t_repro.training.loop import Loop


@registry.register_model
class FullDevice(Transformer):
    """A Transformer that fails at every call as if the device had no memory left."""

    error: Any = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[8,9] on /job:x")

    def call(self, *args: Any, **kwargs: Any) -> Any:
        raise self.error


@registry.register_model
class FullDeviceInCublas(FullDevice):
    """A Transformer that fails at every call as if cuBLAS had no memory left."""

    error = tf.errors.InternalError(None, None, "Graph execution error:\n\nNo BLAS support in stream.")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with data of the problem text_files: pairs of English and German numbers."""
    root = tmp_path_factory.mktemp("data")
    splits = {"train": range(1000, 1300), "dev": range(1300, 1310)}
    text = [f"--{split}={write_pairs(root, split, numbers)}" for split, numbers in splits.items()]
    succeed("datagen", "--problem=text_files", *text, "--vocab_size=300", f"--data_dir={root}")
    return root


def trainer_flags(data_dir: Path, output_dir: Path, *flags: str) -> list[str]:
    data = ["--problem=text_files", f"--data_dir={data_dir}", f"--output_dir={output_dir}"]
    return [*data, "--hparams_set=transformer_tiny", f"--hparams={SMALL}", *flags]


@pytest.mark.parametrize(
    ("flags", "shortage", "advised"),
    [
        (["--model=full_device"], "OOM when allocating tensor with shape[8,9]", 200),
        (["--model=full_device_in_cublas", "--max_tokens_per_replica=100"], "No BLAS support in stream.", 50),
    ],
)
def test_a_device_without_enough_memory_ends_training_with_advice(
    data_dir: Path, tmp_path: Path, flags: list[str], shortage: str, advised: int
) -> None:
    result = run("trainer", *trainer_flags(data_dir, tmp_path / "m", "--train_steps=2", *flags))
    problem = f"the device has too little memory ({shortage})"
    refused(result, f"t2t-trainer: {problem}", f"--max_tokens_per_replica={advised} ")


def test_a_run_that_cannot_begin_leaves_a_folder_that_the_next_run_may_use(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = trainer_flags(data_dir, tmp_path / "m", "--train_steps=1", "--eval_decode_lines=0")
    refused(run("trainer", *flags, f"--warm_start_from={data_dir}"), f"--warm_start_from={data_dir}: no checkpoint in")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=300_000))
        refused(
            run("trainer", *flags), "m: its disk has 0.0003 GB free, but the next checkpoints need 0.00074 GB; free"
        )
    succeed("trainer", *flags, *LOOKUP)


@registry.register_model
class NamesPrecision(Transformer):
    """A Transformer that cannot be made. The error is the precision in which it should be made."""

    def __init__(self, hparams: HParams, vocab_size: int, target_space_id: int, precision: str) -> None:
        raise UserError(f"made in {precision}")


@pytest.mark.parametrize(
    ("precision", "of_model"),
    [("float32", "float32"), ("tf32", "float32"), ("mixed_bfloat16", "mixed_bfloat16")],
)
def test_a_run_has_its_precision(precision: str, of_model: str, data_dir: Path, tmp_path: Path) -> None:
    flags = trainer_flags(data_dir, tmp_path / "m", f"--precision={precision}", "--model=names_precision")
    assert run("trainer", *flags).stderr.endswith(f"t2t-trainer: made in {of_model}\n")
    assert tf.config.experimental.tensor_float_32_execution_enabled() == (precision == "tf32")


MISLEADING = {
    "--train_steps=4000": "the learning rate only rises, because 4,000 training steps are not more than",
    "--keep_checkpoint_max=4": "--keep_checkpoint_max=4 keeps fewer checkpoints than the 5 that averaging uses",
    "--precision=mixed_bfloat16": f"{devices.names()[0]} has no bfloat16 instructions, so --precision=float32 trains",
}


@pytest.mark.parametrize("flag", MISLEADING)
def test_settings_that_mislead_are_reported(
    flag: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: False)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))  # ends the run
    flags = [*trainer_flags(data_dir, tmp_path / "m"), "--hparams_set=transformer_base", f"--hparams={SMALL_BASE}"]
    warnings = [line for line in run("trainer", *flags, flag).stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and warnings[0].startswith(f"warning: {MISLEADING[flag]}")


SMALL_BASE = "num_hidden_layers=1,hidden_size=32,num_heads=2,filter_size=64"


class Recorder:
    """A fake of the parts of a training run that an evaluation uses. `messages` collects the lines that it prints."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.run = SimpleNamespace(
            data=None, config=RunConfig(local_eval_frequency=20), say=self.messages.append, draw_attention=None,
            hparams=HParams(train_steps=100, learning_rate_warmup_steps=40), has_one_worker=True,
        )  # fmt: skip
        self.start, self.model, self.source_use = 40, None, None
        self.pipeline: Any = None
        self.saved: list[int] = []
        self.checkpoints = SimpleNamespace(save_best=self.saved.append)
        metrics = SimpleNamespace(seconds_before=200.0, is_lowest=lambda loss, batches: loss < 2.0)
        self.logs = SimpleNamespace(metrics=metrics, evaluation=lambda *arguments: None)
        self.evaluator: Any = type(
            "Evaluator", (), {"__call__": lambda _, stop: Evaluation(1.0, 0.5), "source_use": lambda _: self.source_use}
        )()

    def decoder(self, should_stop: Any) -> Decoded:
        return Decoded([Score("BLEU", 12.3, "")], 100, [])

    def evaluated(self, step: int, source_use: float | None = 2.345) -> None:
        """Evaluates step `step` in a new loop."""
        self.start, self.source_use = step, source_use
        Loop(self)._evaluate()


def test_an_evaluation_is_one_line_and_saves_the_best_checkpoint() -> None:
    prepared = Recorder()
    prepared.evaluated(40)
    assert prepared.messages == [
        "step 40: dev loss 1.0000 (best), perplexity 2.718 a token, accuracy 50.0%, source use 2.35, BLEU 12.30 of 100 "
        "lines"
    ]
    assert prepared.saved == [40]
    prepared.evaluated(60, None)
    assert "source use" not in prepared.messages[-1]


def test_a_worker_reads_only_the_records_of_its_own_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []
    prepared = Recorder()
    prepared.pipeline = SimpleNamespace(batches=lambda *arguments: requests.append(arguments) or [])
    prepared.run.is_chief, prepared.run.strategy = False, SimpleNamespace(num_replicas_in_sync=4)
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": ["a:1", "b:2"]}, index=1))
    Loop(prepared)._take_steps()
    assert requests == [(40, 100, range(2, 4))]


def test_a_model_that_ignores_its_source_is_reported_after_the_warmup() -> None:
    prepared, reported = Recorder(), []
    for step, source_use in ((39, 0.0), (40, 0.099), (50, None), (60, math.nan), (70, -0.001), (100, 0.1)):
        prepared.messages.clear()
        prepared.evaluated(step, source_use)
        reported += [(step, message) for message in prepared.messages[1:]]
    assert [step for step, _ in reported] == [40, 70]
    assert all(message.startswith("warning: the model hardly uses its source") for _, message in reported)
    assert "by only 0.099 nats a token" in reported[0][1] and "-0.001 nats" in reported[1][1]
