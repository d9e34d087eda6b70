"""Tests of whole training runs: t2t-trainer runs in the test's own process."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from clusters import tf_config
from programs import LOOKUP, SMALL, refused, run, succeed, write_pairs
from t2t_repro import devices, registry
from t2t_repro.data.description import Description
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.hparam import HParams
from t2t_repro.metrics.score import Score
from t2t_repro.models.transformer import Transformer
from t2t_repro.problem import Problem
from t2t_repro.training.config import RunConfig
from t2t_repro.training.evaluation import Decoded, Evaluation
from t2t_repro.training.loop import Loop, first_short
from t2t_repro.training.preparation import _warnings


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


def test_a_full_disk_is_refused_before_training(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=300_000))
    result = run("trainer", *trainer_flags(data_dir, tmp_path / "m", "--train_steps=2"))
    refused(result, "m: its disk has 0.0003 GB free, but the next checkpoints need 0.00074 GB; free space")
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_cannot_hold_the_model_leaves_no_folder(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise FullDevice.error

    monkeypatch.setattr("t2t_repro.training.preparation.make_model", fail)
    result = run("trainer", *trainer_flags(data_dir, tmp_path / "m", "--train_steps=2"))
    refused(result, "OOM when allocating tensor with shape[8,9]")
    assert list(tmp_path.iterdir()) == []


def test_a_warm_start_from_nothing_leaves_no_folder(data_dir: Path, tmp_path: Path) -> None:
    flags = trainer_flags(data_dir, tmp_path / "m", "--train_steps=2", f"--warm_start_from={data_dir}")
    refused(run("trainer", *flags), f"--warm_start_from={data_dir}: no checkpoint in this folder; give a checkpoint")
    assert list(tmp_path.iterdir()) == []


def test_a_start_builds_the_problem_and_loads_vocabulary_and_description_once(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: Counter[str] = Counter()

    def count(name: str, owner: Any, attribute: str) -> None:
        function = getattr(owner, attribute)

        def counted(*args: Any, **kwargs: Any) -> Any:
            loads[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, attribute, counted)

    count("problem", Problem, "__init__")
    count("vocabulary", SentencePieceVocabulary, "__init__")
    count("description", Description, "load")
    flags = trainer_flags(data_dir, tmp_path / "m", "--train_steps=1", "--eval_decode_lines=0", *LOOKUP)
    succeed("trainer", *flags)
    assert loads == {"problem": 1, "vocabulary": 1, "description": 1}
    loads.clear()
    succeed("trainer", *flags, "--dry_run")
    assert loads == {"problem": 1, "vocabulary": 1, "description": 1}


def test_a_worker_reads_only_the_records_of_its_own_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def batches(start: int, stop: int, local_replicas: range | None = None) -> list[Any]:
        requests.append((start, stop, local_replicas))
        return []

    prepared = Recorder(True, 100, 200)
    prepared.pipeline = SimpleNamespace(batches=batches)
    prepared.run.is_chief, prepared.run.strategy = False, SimpleNamespace(num_replicas_in_sync=4)
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": ["a:1", "b:2"]}, index=1))
    assert Loop(prepared)._take_steps() == 40
    assert requests == [(40, 100, range(2, 4))]


@pytest.mark.parametrize(
    ("precision", "warning"),
    [
        ("mixed_bfloat16", "warning: {} has no bfloat16 instructions, so --precision=float32 trains faster here\n"),
        ("tf32", "warning: {} has no TF32, so this run computes in float32\n"),
        ("float32", ""),
    ],
)
@pytest.mark.parametrize("is_supported", [False, True])
def test_a_precision_that_the_device_does_not_support_is_reported(
    is_supported: bool, precision: str, warning: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: is_supported)
    monkeypatch.setattr(devices, "multiplies_tf32", lambda: is_supported)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=0)
    )  # ends the run before its first step
    result = run("trainer", *trainer_flags(data_dir, tmp_path / "m", "--train_steps=101", f"--precision={precision}"))
    warnings = [line for line in result.stderr.splitlines(keepends=True) if line.startswith("warning: ")]
    assert warnings == ([] if is_supported or not warning else [warning.format(devices.names()[0])])
    assert tf.config.experimental.tensor_float_32_execution_enabled() == (precision == "tf32")


def test_settings_that_mislead_are_reported() -> None:
    assert list(_warnings(HParams(), RunConfig())) == []
    reported = list(_warnings(HParams(train_steps=4000), RunConfig(keep_checkpoint_max=4)))
    assert reported[0].startswith("the learning rate only rises, because 4,000 training steps are not more than")
    assert reported[1].startswith("--keep_checkpoint_max=4 keeps fewer checkpoints than the 5 that averaging uses")
    assert len(reported) == 2


class FakeEvaluator:
    """A fake of `Evaluator` with constant results."""

    def __init__(self, source_use: float | None) -> None:
        self._source_use = source_use

    def __call__(self, should_stop: Any) -> Evaluation:
        return Evaluation(1.0, 0.5, 100)

    def source_use(self) -> float | None:
        return self._source_use


class Recorder:
    """A fake of the parts of a training run that an evaluation uses. `limits` collects the decoding time limits."""

    def __init__(self, limits_decoding: bool, seconds_before: float, lines: int) -> None:
        self.limits, self.messages = list[float](), list[str]()
        self.run = SimpleNamespace(
            data=None,
            config=RunConfig(local_eval_frequency=20, limits_decoding=limits_decoding),
            hparams=HParams(train_steps=100, learning_rate_warmup_steps=40),
            say=self.messages.append,
        )
        self.start, self.model = 40, SimpleNamespace(has_attention=False)
        self.pipeline: Any = None
        self.checkpoints = SimpleNamespace(save_best=lambda step: None)
        self.logs = SimpleNamespace(
            seconds_before=seconds_before,
            is_best=lambda evaluation: True,
            log_evaluation=lambda *arguments: None,
        )
        self._lines = lines
        self.evaluator = FakeEvaluator(2.345)

    def decoder(self, should_stop: Any, seconds: float) -> Decoded:
        self.limits.append(seconds)
        return Decoded([Score("BLEU", 12.3, "")], self._lines, 200, [])


@pytest.mark.parametrize(
    ("limits_decoding", "seconds_before", "limit"), [(True, 100, 60.0), (True, 40_000, 2000.0), (False, 100, math.inf)]
)
def test_a_resumed_run_limits_the_time_of_decoding_like_the_process_before(
    limits_decoding: bool, seconds_before: float, limit: float
) -> None:
    prepared = Recorder(limits_decoding, seconds_before, 200)
    Loop(prepared)._evaluate(40)
    assert prepared.limits == [pytest.approx(limit)]
    assert prepared.messages == [
        "step 40: dev loss 1.0000 (best), perplexity 2.718 a token, accuracy 50.0%, source use 2.35, BLEU 12.30"
    ]


def test_an_evaluation_says_how_many_lines_it_decoded() -> None:
    prepared = Recorder(True, 100, 50)
    Loop(prepared)._evaluate(40)
    assert prepared.messages[0].endswith(", BLEU 12.30 of 50 lines (--eval_decode_lines=200 decodes 200 each time)")


def test_evaluations_longer_than_the_steps_between_them_are_reported_once() -> None:
    prepared = Recorder(True, 100, 200)
    loop = Loop(prepared)
    for seconds, interval in ((59, 30), (80, 90), (80, 70), (100, 70)):
        loop._report_slow_evaluation(seconds, interval)
    assert prepared.messages == [
        "the evaluation took 80 s, but the steps between two evaluations take 70 s; give a higher "
        "--local_eval_frequency, or --eval_steps to evaluate fewer batches"
    ]


def test_a_model_that_ignores_its_source_is_reported_after_the_warmup_and_at_the_end() -> None:
    prepared = Recorder(True, 100, 200)
    loop = Loop(prepared)
    reported = []
    uses = [(20, 0.0), (40, 0.1), (50, None), (60, math.nan), (70, -0.001), (80, 0.05), (100, 0.09)]
    for step, source_use in uses:
        prepared.evaluator = FakeEvaluator(source_use)
        prepared.messages.clear()
        loop._evaluate(step)
        assert (f", source use {source_use or 0:z.2f}, BLEU" in prepared.messages[0]) == (source_use is not None)
        if len(prepared.messages) > 1:
            reported.append((step, *prepared.messages[1:]))
    start = "warning: the model hardly uses its source: the source of another example raises the dev loss by only"
    advice = (
        "nats a token; check that the source and target files match line by line, train longer, or start again with "
        "initializer_gain=0.5, lower dropout, fewer layers or norm_before=true"
    )
    assert reported == [(70, f"{start} -0.001 {advice}"), (100, f"{start} 0.090 {advice}")]


@pytest.mark.parametrize("flag", ["--max_tokens_per_replica=0", "--keep_checkpoint_max=0", "--eval_steps=-1"])
def test_a_number_out_of_range_is_refused_before_anything_is_read(flag: str, tmp_path: Path) -> None:
    result = run("trainer", *trainer_flags(tmp_path / "none", tmp_path / "m", flag))
    refused(result, f"flag {flag}: {flag.partition('=')[2]} is not a ")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("limit", "number"), [(9, 0), (5, 1), (4, 2), (3, 4), (2, 4)])
def test_the_attention_picture_is_of_the_first_short_example(limit: int, number: int) -> None:
    lengths = np.array([[9, 5, 4, 9, 1], [1, 2, 4, 9, 3]])
    assert first_short(lengths, limit) == number
