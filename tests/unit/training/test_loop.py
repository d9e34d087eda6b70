"""Tests of the training loop, its tasks after a step, and the start of a run, in the test's own
process.
"""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

from programs import LOOKUP, SMALL, refused, run, succeed, write_pairs
from t2t_repro import devices, registry
from t2t_repro.errors import Stopped, UserError
from t2t_repro.hparam import HParams
from t2t_repro.metrics.score import Score
from t2t_repro.models.transformer import Transformer
from t2t_repro.training import preparation
from t2t_repro.training.config import RunConfig
from t2t_repro.training.evaluation import Decoded, Evaluation
from t2t_repro.training.loop import Due, Loop, due_after
from t2t_repro.training.metrics_log import read_metrics
from t2t_repro.training.preparation import warnings


@registry.register_model
class FullDevice(Transformer):
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
class NamesPrecision(Transformer):
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
        patch.setattr(preparation.Run, "is_chief", False)
        refused(
            run("trainer", *flags),
            "m: the chief created it, but this worker does not see it; put --out",
        )
    succeed("trainer", *flags)


def test_a_warm_start_is_evaluated_before_its_first_step(data_dir: Path, tmp_path: Path) -> None:
    model, tuned = tmp_path / "m", tmp_path / "tuned"
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


@pytest.mark.parametrize(
    ("change", "config", "words"),
    [
        ({"train_steps": 4001}, RunConfig(keep_checkpoint_max=5), ""),
        (
            {"train_steps": 4000},
            RunConfig(),
            "the learning rate only rises, because train_steps=4000 is not more",
        ),
        (
            {},
            RunConfig(keep_checkpoint_max=4),
            "--keep_checkpoint_max=4 keeps fewer checkpoints than the 5 that",
        ),
        (
            {},
            RunConfig(precision="mixed_bfloat16"),
            "has no bfloat16 instructions, so --precision=float32 trains faster",
        ),
        (
            {},
            RunConfig(precision="tf32"),
            "has no tf32 instructions, so --precision=float32 gives the same",
        ),
    ],
)
def test_settings_that_mislead_are_reported(
    change: dict[str, int], config: RunConfig, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "multiplies", lambda kind: False)
    found = list(warnings(HParams(**change), config))
    assert len(found) == bool(words) and all(words in warning for warning in found)


LAST = 100
ALL = Due(logs=True, saves=True, evaluates=True)


@pytest.mark.parametrize(
    ("step", "save_secs", "seconds", "stops", "expected"),
    [
        # The run evaluates every 10 steps, and saves a checkpoint before each evaluation.
        (7, 0, 9.0, False, Due()),
        (8, 0, 9.0, False, Due(logs=True)),
        (10, 0, 9.0, False, ALL),
        (LAST, 0, 9.0, False, ALL),
        (8, 0, 9.0, True, Due(logs=True, saves=True, saves_by_request=True, stops=True)),
        (10, 0, 9.0, True, Due(logs=True, saves=True, stops=True)),
        # The run evaluates every 10 steps, and saves a checkpoint every 600 seconds and after the
        # last step.
        (7, 600, 599.0, False, Due()),
        (7, 600, 600.0, False, Due(saves=True)),
        (10, 600, 599.0, False, Due(logs=True, evaluates=True)),
        (LAST, 600, 9.0, False, ALL),
        (7, 600, 9.0, True, Due(saves=True, stops=True)),
    ],
)
def test_due_after_a_step(
    step: int, save_secs: int, seconds: float, stops: bool, expected: Due
) -> None:
    hparams = HParams(train_steps=LAST, local_eval_frequency=10)
    config = RunConfig(log_step_count_steps=4, save_checkpoints_secs=save_secs)
    assert due_after(step, hparams, config, seconds, stops) == expected
    assert due_after(101, replace(hparams, train_steps=101), config, 0.0, False) == ALL


class Recorder:
    """A fake of the parts of a training run that an evaluation uses. `messages` collects the lines
    that it prints.
    """

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.run = SimpleNamespace(
            data=None,
            config=RunConfig(),
            say=self.messages.append,
            draw_attention=None,
            hparams=HParams(
                train_steps=100, local_eval_frequency=20, learning_rate_warmup_steps=40
            ),
        )
        self.start, self.model, self.source_use = 40, None, None
        self.saved: list[int] = []
        self.checkpoints = SimpleNamespace(save_best=self.saved.append)
        self.logs = SimpleNamespace(
            is_best=lambda evaluation: evaluation.loss < 2.0, evaluation=lambda *arguments: None
        )

    def evaluator(self, should_stop: Any) -> Evaluation:
        return Evaluation(1.0, 0.5, 0, self.source_use, Decoded([Score("BLEU", 12.3, "")], 100, []))

    def evaluated(self, step: int, source_use: float | None = 2.345) -> list[str]:
        """Evaluates step `step` in a new loop; returns the messages."""
        self.messages.clear()
        self.start, self.source_use = step, source_use
        Loop(self)._evaluate()
        return [*self.messages]


def test_the_mark_of_the_best_evaluation_stands_beside_its_measure() -> None:
    scores = [
        Score("BLEU", 12.3, ""),
        Score("BLEU, lower-cased", 13.0, ""),
        Score("chrF", 45.6, ""),
    ]
    evaluation = Evaluation(1.0, 0.5, decoded=Decoded(scores, 100, []))
    for best_by, marked, ending in (
        ("bleu", "12.30 of 100 lines (best)", ""),
        ("chrf", "lines, ", "chrF 45.60 (best)"),
    ):
        text = evaluation.describe(True, best_by)
        assert marked in text and text.endswith(ending) and text.count("(best)") == 1
        assert evaluation.describe(False, best_by) == text.replace(" (best)", "")


def test_an_evaluation_is_one_line_and_saves_the_best_checkpoint() -> None:
    prepared = Recorder()
    line = (
        "step 40: dev loss 1.0000 (best), perplexity 2.718 a token, accuracy 50.0%, source use "
        "2.35, BLEU 12.30 of 100"
    )
    assert prepared.evaluated(40) == [f"{line} lines"]
    assert prepared.saved == [40] and "source use" not in prepared.evaluated(60, None)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "evaluator", mock.Mock(side_effect=Stopped))
        assert prepared.evaluated(80) == [
            "step 80: evaluation interrupted, as requested; the same command evaluates first"
        ]
    assert prepared.saved == [40, 60]


def test_a_model_that_ignores_its_source_is_reported_after_the_warmup() -> None:
    prepared, reported = Recorder(), []
    for step, source_use in (
        (39, 0.0),
        (40, 0.099),
        (50, None),
        (60, math.nan),
        (70, -0.001),
        (100, 0.1),
    ):
        reported += [(step, message) for message in prepared.evaluated(step, source_use)[1:]]
    assert [step for step, _ in reported] == [40, 70]
    assert all(
        message.startswith("warning: the model hardly uses its source") for _, message in reported
    )
    assert "by only 0.099 nats a token" in reported[0][1] and "-0.001 nats" in reported[1][1]
