"""A training run from start to end, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import programs
from t2t_repro import registry
from t2t_repro.models.transformer import Transformer


@registry.register_model
class FullDevice(Transformer):
    """A Transformer on a device without memory for a micro-batch."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[8,9] on /job:x")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of the problem text_files: numbers in English and German."""
    root = tmp_path_factory.mktemp("road")
    splits = {"train": range(1000, 1300), "dev": range(1300, 1310)}
    text = [f"--{split}={programs.write_pairs(root, split, numbers)}" for split, numbers in splits.items()]
    assert programs.here("datagen", "--problem=text_files", *text, "--vocab_size=300", f"--data_dir={root}") == 0
    return root


def trainer(data_dir: Path, output_dir: Path, *flags: str) -> int:
    """Runs t2t-trainer; returns its exit code."""
    usual = ["--problem=text_files", "--hparams_set=transformer_tiny", f"--hparams={programs.MINUTE}"]
    return programs.here("trainer", *usual, f"--data_dir={data_dir}", f"--output_dir={output_dir}", *flags)


@pytest.mark.parametrize(("flags", "advised"), [([], 200), (["--max_tokens_per_replica=100"], 50)])
def test_a_device_without_enough_memory_ends_training_with_advice(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], advised: int
) -> None:
    assert trainer(data_dir, tmp_path / "m", "--model=full_device", "--train_steps=2", *flags) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("t2t-trainer: the device has too little memory (OOM when allocating tensor with shape[8,9])")
    assert f"--max_tokens_per_replica={advised} " in line


def test_a_micro_batch_has_at_least_one_position(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trainer(data_dir, tmp_path / "m", "--max_tokens_per_replica=0") == 2
    assert "--max_tokens_per_replica=0" in capsys.readouterr().err
