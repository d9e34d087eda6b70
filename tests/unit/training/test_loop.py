"""Tests of the training loop and the start of a run, in the test's own process."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from programs import LOOKUP, SMALL, refused, run, succeed, write_pairs
from t2t_repro import registry
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.keras import transformer as keras_layers
from t2t_repro.training.metrics_log import read_metrics
from t2t_repro.training.run import Run


@registry.register_model
class FullDevice(keras_layers.Transformer):
    """A Transformer that fails at every call as if the device had no memory left."""

    error: Any = tf.errors.ResourceExhaustedError(
        None, None, "OOM when allocating tensor with shape[8,9] on /job:x"
    )

    def call(self, *args: Any, **kwargs: Any) -> Any:
        raise self.error


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


def test_a_device_without_enough_memory_ends_training_with_advice(
    data_dir: Path, tmp_path: Path
) -> None:
    flags = trainer_flags(data_dir, tmp_path / "m", "--train_steps=2", "--model=full_device")
    problem = (
        "t2t-trainer: the device has too little memory (OOM when allocating tensor with shape[8,9])"
    )
    refused(run("trainer", *flags), problem, "--max_tokens_per_replica=200 ")
    refused(
        run("trainer", *flags, "--max_tokens_per_replica=100"),
        problem,
        "--max_tokens_per_replica=50 ",
    )


@registry.register_model
class NamesPrecision(keras_layers.Transformer):
    """A Transformer that cannot be made. The error is the precision in which it should be made."""

    def __init__(
        self, hparams: HParams, vocab_size: int, target_space_id: int, precision: str
    ) -> None:
        raise UserError(f"made in {precision}")


def test_a_run_that_cannot_begin_leaves_no_file(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = trainer_flags(
        data_dir, tmp_path / "m", "--train_steps=1", "--eval_decode_lines=0", *LOOKUP
    )
    disk = "m: its disk has 0.0003 GB free, but the next checkpoints need 0.0043 GB; free"
    for change, message in (
        (f"--warm_start_from={data_dir}", f"--warm_start_from={data_dir}: no checkpoint in"),
        ("--model=names_precision", "made in float32"),
        ("--freeze=embeding", "embeding"),
        (f"--hparams={SMALL},max_length=1", "longer than"),
        ("", disk),
    ):
        with monkeypatch.context() as patch:
            if message == disk:
                patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=300_000))
            refused(run("trainer", *flags, *filter(None, [change])), message)
        assert not list((tmp_path / "m").glob("*"))
    with monkeypatch.context() as patch:  # a worker that sees another disk than the chief
        patch.setattr(Run, "is_chief", False)
        refused(
            run("trainer", *flags),
            "m: the chief created it, but this worker does not see it; put --out",
        )
    succeed("trainer", *flags)


def test_a_warm_start_is_evaluated_before_its_first_step(data_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / "m"
    tuned = tmp_path / "tuned"
    flags = ["--train_steps=1", "--eval_decode_lines=0", "--local_eval_frequency=1", *LOOKUP]
    succeed("trainer", *trainer_flags(data_dir, model, *flags))
    messages = succeed(
        "trainer", *trainer_flags(data_dir, tuned, *flags, f"--warm_start_from={model}")
    ).stderr
    assert "learning rate at most" in messages and "--hparams=learning_rate_constant" in messages
    [before], after = (
        [line for line in read_metrics(folder) if "dev_loss" in line] for folder in (model, tuned)
    )
    assert [line["step"] for line in after] == [0, 1] and after[0]["dev_loss"] == before["dev_loss"]
    # The rate of the first step is 0, so the initial weights, which lie in M, stay the best.
    assert after[1]["dev_loss"] == before["dev_loss"] and not list(tuned.glob("best/*"))
    refused(
        run("trainer", *trainer_flags(data_dir, tmp_path / "z", *flags, "--train_steps=0")),
        "train_steps=0 must",
    )


@pytest.mark.parametrize(
    ("precision", "of_model"),
    [("tf32", "float32"), ("mixed_bfloat16", "mixed_bfloat16")],
)
def test_a_run_has_its_precision(
    precision: str, of_model: str, data_dir: Path, tmp_path: Path
) -> None:
    flags = trainer_flags(
        data_dir, tmp_path / "m", f"--precision={precision}", "--model=names_precision"
    )
    assert run("trainer", *flags).stderr.endswith(f"t2t-trainer: made in {of_model}\n")
    assert tf.config.experimental.tensor_float_32_execution_enabled() == (precision == "tf32")
