"""Tests that a dry run describes the batches that the training run uses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shards import write_shard
from t2t_repro import devices, registry
from t2t_repro.data import batching
from t2t_repro.data.dataset import Data
from t2t_repro.data.pipeline import Batch, Pipeline
from t2t_repro.data.records import Records, shard_path
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.training import dry_run
from t2t_repro.training.config import RunConfig
from t2t_repro.training.schedule import Schedule

HPARAMS = HParams(batch_size=300, max_length=14, train_steps=1000)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Returns records of 500 pairs with 2 to 9 source tokens and 4 to 18 target tokens. Most pairs are short."""
    random = np.random.default_rng(0)
    path = shard_path(tmp_path_factory.mktemp("data"), "toy", "train", 0, 1)
    sides = np.array([[2], [4]]) + random.binomial([[7], [14]], random.uniform(0.1, 0.7, 500))
    write_shard(path, [([5] * source, [6] * target) for source, target in sides.T.tolist()])
    return Records([path])


def described(records: Records, max_tokens: int, replicas: int = 1, hparams: HParams = HPARAMS) -> list[str]:
    pipeline = Pipeline(records, hparams, 1, max_tokens, replicas)
    return dry_run.describe({"model": "a model"}, pipeline, hparams).splitlines()


def batches(records: Records, max_tokens: int, replicas: int = 1) -> list[Batch]:
    """Returns the batches of the first epoch."""
    pipeline = Pipeline(records, HPARAMS, 1, max_tokens, replicas)
    return list(pipeline.batches(0, pipeline.steps_per_epoch))


def padding(epoch: list[Batch]) -> float:
    ids = [ids for batch in epoch for sides in batch.micro_batches for ids in sides[:2]]
    return 1 - sum(map(np.count_nonzero, ids)) / sum(part.size for part in ids)


def test_the_facts_describe_the_plan(records: Records) -> None:
    epoch = batches(records, 10_000)
    examples = sum(len(inputs) for batch in epoch for inputs, *_ in batch.micro_batches)
    tokens = [batch.target_tokens for batch in epoch]
    assert 0 < examples < 500 and min(tokens) < max(tokens) and padding(epoch) > 0
    assert described(records, 10_000)[:7] == [
        "model                 a model",
        f"examples              {examples} an epoch; {500 - examples} longer than 14 tokens are skipped",
        f"steps                 {len(epoch)} an epoch; 1,000 steps are {1000 / len(epoch):.1f} epochs",
        f"target tokens a step  {min(tokens)} to {max(tokens)}, {np.mean(tokens):.0f} on average",
        "learning rate         at most 0.000175 (step 1,000); 0.000175 at the last step (1,000)",
        f"padding               {padding(epoch):.1%} of all positions",
        "micro-batches         at most 10,000 positions (--max_tokens_per_replica)",
    ]


@pytest.mark.parametrize(("max_tokens", "replicas"), [(10_000, 1), (60, 1), (100, 2)])
def test_the_table_counts_the_micro_batches(records: Records, max_tokens: int, replicas: int) -> None:
    epoch = batches(records, max_tokens, replicas)
    largest: dict[int, list[int]] = {}
    for batch in epoch:
        positions = max(ids.size for sides in batch.micro_batches for ids in sides[:2])
        largest.setdefault(len(batch.micro_batches), []).append(positions)
    expected = [
        [f"{count}", f"{len(sizes)}", f"{len(sizes) / len(epoch):.1%}", f"{max(sizes)}", "positions"]
        for count, sizes in sorted(largest.items())
    ]
    lines = described(records, max_tokens, replicas)
    table = lines[lines.index("Micro-batches of a step") + 2 :]
    assert table[0].split() == ["micro-batches", "steps", "share", "largest", "micro-batch"]
    assert [line.split() for line in table[1:]] == expected


def test_only_the_first_steps_of_a_long_plan_are_counted(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = batches(records, 60)
    monkeypatch.setattr(batching, "COUNTED_STEPS", 3)
    lines = described(records, 60)
    assert f"padding               {padding(epoch[:3]):.1%} of all positions of the first 3 steps" in lines
    assert "Micro-batches of a step of the first 3 steps" in lines
    tokens = [batch.target_tokens for batch in epoch]
    assert f"{min(tokens)} to {max(tokens)}, " in lines[3]


WARMED_UP = "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"


@pytest.mark.parametrize(
    ("schedule", "train_steps", "expected"),
    [
        ("constant*noam", 100_000, "at most 0.000699 (step 4,000); 0.00014 at the last step (100,000)"),
        (WARMED_UP, 100_000, "at most 0.000699 (step 4,001); 0.00014 at the last step (100,000)"),
        (WARMED_UP, 50, "at most 8.56e-06 (step 50); 8.56e-06 at the last step (50)"),
        ("linear_warmup", 5000, "at most 1 (steps 4,001 to 5,000); 1 at the last step (5,000)"),
        ("constant*linear_decay", 5000, "at most 1 (steps 1 to 4,001); 0.001 at the last step (5,000)"),
    ],
)
def test_the_learning_rates_are_those_of_the_schedule(
    schedule: str, train_steps: int, expected: str, records: Records
) -> None:
    hparams = replace(HPARAMS, learning_rate_schedule=schedule, train_steps=train_steps)
    assert described(records, 10_000, hparams=hparams)[4].removeprefix("learning rate").strip() == expected
    rates = Schedule(hparams)(np.arange(train_steps)).numpy()
    assert f"at most {rates.max():.3g} (step" in expected and f"; {rates[-1]:.3g} at" in expected


def test_a_dry_run_counts_parameters_and_checkpoints_and_uses_no_gpu(
    tiny_hparams: HParams, tiny_vocabulary: Vocabulary, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow would allocate the memory of all visible GPUs when it computes the learning rates."""
    order: list[str] = []
    monkeypatch.setattr(devices, "hide_gpus", lambda: order.append("hidden"))
    monkeypatch.setattr(dry_run, "Schedule", lambda hparams: order.append("computed") or Schedule(hparams))
    data = Data(registry.problem("numbers_ende"), tiny_vocabulary, None, {"train": records}, "")
    hparams = replace(tiny_hparams, hidden_size=512, num_heads=8, train_steps=3000)
    text = dry_run.dry_run(data, hparams, 1, RunConfig(local_eval_frequency=1000))
    assert order[:2] == ["hidden", "computed"]
    lines = text.splitlines()
    parameters = int(lines[0].split()[2].replace(",", ""))
    assert "trained on" in lines[1] and ", float32" in lines[1]
    [space] = [line.split() for line in lines if line.startswith("disk space")]
    assert float(space[2]) == pytest.approx((12 * 5 + 4) * parameters / 1e9, rel=0.06)
    assert space[4:6] == ["for", "3"]
