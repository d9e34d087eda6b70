"""Tests that a dry run describes the batches that the training run uses."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from shards import write_shard
from subwords import small_subwords
from t2t_repro import devices, registry
from t2t_repro.data import batching
from t2t_repro.data.dataset import Data
from t2t_repro.data.pipeline import Batch, Pipeline
from t2t_repro.data.records import Records, shard_path
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models import size
from t2t_repro.training import dry_run
from t2t_repro.training.config import RunConfig
from t2t_repro.training.dry_run import Hardware
from t2t_repro.training.schedule import Schedule

HPARAMS = HParams(
    num_hidden_layers=2,
    hidden_size=512,
    filter_size=2048,
    num_heads=4,
    batch_size=300,
    max_length=14,
    train_steps=1000,
)
VOCAB = 500
GPU = Hardware("a GPU", 1, "float32")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Returns records of 500 pairs with 2 to 9 source tokens and 4 to 18 target tokens. Most pairs are short."""
    random = np.random.default_rng(0)
    path = shard_path(tmp_path_factory.mktemp("data"), "toy", "train", 0, 1)
    sides = np.array([[2], [4]]) + random.binomial([[7], [14]], random.uniform(0.1, 0.7, 500))
    write_shard(path, [([5] * source, [6] * target) for source, target in sides.T.tolist()])
    return Records([path])


def described(records: Records, max_tokens: int, hardware: Hardware = GPU, hparams: HParams = HPARAMS) -> str:
    pipeline = Pipeline(records, hparams, 1, max_tokens, hardware.replicas * hardware.workers)
    return dry_run.describe(hparams, VOCAB, size.parameters(hparams, VOCAB), pipeline, hardware)


def batches(records: Records, max_tokens: int, replicas: int = 1) -> list[Batch]:
    """Returns the batches of the first epoch."""
    pipeline = Pipeline(records, HPARAMS, 1, max_tokens, replicas)
    return list(pipeline.batches(0, pipeline.steps_per_epoch))


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_facts_describe_the_plan(records: Records) -> None:
    text, epoch = described(records, 10_000), batches(records, 10_000)
    examples = sum(len(inputs) for batch in epoch for inputs, *_ in batch.micro_batches)
    assert 0 < examples < 500
    tokens = [batch.target_tokens for batch in epoch]
    positions = sum(ids.size for batch in epoch for sides in batch.micro_batches for ids in sides[:2])
    filled = sum(int((ids != 0).sum()) for batch in epoch for sides in batch.micro_batches for ids in sides[:2])
    assert min(tokens) < max(tokens) and filled < positions
    for line in (
        f"examples              {examples} an epoch; {500 - examples} longer than 14 tokens are skipped",
        f"steps                 {len(epoch)} an epoch; 1,000 steps are {1000 / len(epoch):.1f} epochs",
        f"target tokens a step  {min(tokens)} to {max(tokens)}, {np.mean(tokens):.0f} on average",
        f"padding               {1 - filled / positions:.1%} of all positions",
        f"model                 transformer, {size.parameters(HPARAMS, VOCAB):,} parameters",
        "trained on            1 x a GPU, float32",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize(("max_tokens", "replicas"), [(10_000, 1), (60, 1), (100, 2), (10_000, 4)])
def test_the_table_counts_the_micro_batches(records: Records, max_tokens: int, replicas: int) -> None:
    text, epoch = (
        described(records, max_tokens, replace(GPU, replicas=replicas)),
        batches(records, max_tokens, replicas),
    )
    assert f"micro-batches         at most {max_tokens:,} positions (--max_tokens_per_replica)\n" in text
    largest: dict[int, list[int]] = {}
    for batch in epoch:
        positions = max(ids.size for sides in batch.micro_batches for ids in sides[:2])
        largest.setdefault(len(batch.micro_batches), []).append(positions)
    expected = [
        [f"{count}", f"{len(sizes)}", f"{len(sizes) / len(epoch):.1%}", f"{max(sizes)}", "positions"]
        for count, sizes in sorted(largest.items())
    ]
    table = text.partition("Micro-batches of a step\n\n")[2].partition("\n\n")[0].splitlines()
    assert table[0].split() == ["micro-batches", "steps", "share", "largest", "micro-batch"]
    assert [line.split() for line in table[1:]] == expected


@pytest.mark.parametrize(
    ("max_tokens", "replicas", "accumulates"),
    [(10_000, 1, False), (40, 1, True), (10_000, 4, False), (100, 4, False), (40, 3, True)],
)
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_memory_is_that_of_the_largest_micro_batches_computed_together(
    records: Records, max_tokens: int, replicas: int, accumulates: bool, precision: str
) -> None:
    epoch = batches(records, max_tokens, replicas)
    assert accumulates == any(len(batch.micro_batches) > 2 * replicas for batch in epoch)
    worst = 0
    for batch in epoch:
        shapes = [(*inputs.shape, targets.shape[1]) for inputs, targets, _ in batch.micro_batches if inputs.size]
        sizes = [size.activations(HPARAMS, VOCAB, shape, precision) for shape in shapes]
        if len(batch.micro_batches) <= replicas or len(batch.micro_batches) > 2 * replicas:
            worst = max(worst, *sizes)
        else:
            assert len(sizes) == 2 * replicas
            worst = max(worst, *(sizes[i] + sizes[replicas + i] for i in range(replicas)))
    text = described(records, max_tokens, Hardware("a GPU", replicas, precision))
    memory = dict(re.findall(r"^(\S.*?)  +([\d,]+)$", text.partition("Memory")[2], re.MULTILINE))
    [activations] = [value for name, value in memory.items() if name.startswith("activations of ")]
    assert number(activations) == pytest.approx(worst / 1e6, abs=0.51)
    weights = 4 * size.parameters(HPARAMS, VOCAB) / 1e6
    assert number(memory["weights"]) == pytest.approx(weights, abs=0.51)
    assert number(memory["Adam's moments"]) == pytest.approx(2 * weights, abs=0.51)
    at_once = 2 if " and " in text.partition("activations of")[2].partition("\n")[0] else 1
    uses = 3 * 4 * VOCAB * 512 * at_once / 1e6
    assert number(memory["gradients"]) == pytest.approx(weights * (1 + accumulates) + uses, abs=0.51)
    assert number(memory["together"]) == pytest.approx(sum(map(number, memory.values())) / 2, abs=2)


def test_the_memory_of_weights_is_that_of_the_given_number_of_parameters(records: Records) -> None:
    text = dry_run.describe(HPARAMS, VOCAB, 5_000_000, Pipeline(records, HPARAMS, 1, 10_000, 1), GPU)
    assert re.search(r"^weights +20$", text.partition("Memory")[2], re.MULTILINE)


@pytest.mark.parametrize(("model", "expected"), [("gnmt", "gnmt"), ("custom", "transformer")])
def test_the_memory_table_names_the_model_whose_formulas_it_uses(records: Records, model: str, expected: str) -> None:
    hparams = HParams(model=model, num_hidden_layers=2, hidden_size=16, batch_size=300, max_length=14)
    assert f"estimated by the formulas of {expected}, without" in described(records, 4096, hparams=hparams)


def test_the_memory_of_a_machine_without_gpus_stands_beside_the_estimate(records: Records) -> None:
    assert "this machine" not in described(records, 4096)
    text = described(records, 4096, replace(GPU, memory=8_000_000_000))
    assert re.search(r"^this machine +8,000$", text, re.MULTILINE)


def test_two_workers_of_two_devices_take_the_micro_batches_of_four_devices(records: Records) -> None:
    two = replace(GPU, replicas=2, workers=2)
    together, one_machine = described(records, 60, two), described(records, 60, replace(GPU, replicas=4))
    assert together.replace("2 workers, each 2 x", "4 x") == one_machine


def test_only_the_first_steps_of_a_long_plan_are_counted(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = batches(records, 60)
    assert batching.COUNTED_STEPS > len(epoch) > 3
    monkeypatch.setattr(batching, "COUNTED_STEPS", 3)
    text = described(records, 60)
    micro_batches = [cut for batch in epoch[:3] for cut in batch.micro_batches]
    filled, positions = (
        sum(count(ids) for sides in micro_batches for ids in sides[:2])
        for count in (np.count_nonzero, lambda ids: ids.size)
    )
    assert f"{1 - filled / positions:.1%} of all positions of the first 3 steps" in text
    assert "Micro-batches of a step of the first 3 steps" in text
    tokens = [batch.target_tokens for batch in epoch]
    assert f"{min(tokens)} to {max(tokens)}, " in text


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
    rates = Schedule(hparams)(np.arange(train_steps)).numpy()
    text = dry_run.describe(hparams, VOCAB, 0, Pipeline(records, hparams, 1, 10_000, 1), GPU)
    [line] = [line for line in text.splitlines() if line.startswith("learning rate")]
    assert line.removeprefix("learning rate").strip() == expected
    assert f"at most {rates.max():.3g} (step" in line and f"; {rates[-1]:.3g} at" in line


def data_of(vocabulary: Vocabulary, records: Records) -> Data:
    """Returns data without a description, which a dry run does not need."""
    return Data(registry.problem("numbers_ende"), vocabulary, None, {"train": records}, "")


def test_no_gpu_is_used(
    tiny_hparams: HParams, tiny_vocabulary: Vocabulary, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow would allocate the memory of all visible GPUs when it computes the learning rates."""
    order: list[str] = []
    monkeypatch.setattr(devices, "hide_gpus", lambda: order.append("hidden"))
    monkeypatch.setattr(dry_run, "Schedule", lambda hparams: order.append("computed") or Schedule(hparams))
    dry_run.dry_run(data_of(tiny_vocabulary, records), tiny_hparams, 1, RunConfig())
    assert order[:2] == ["hidden", "computed"]


def test_vocabularies_that_training_would_refuse_are_refused(
    tiny_hparams: HParams, tiny_vocabulary: Vocabulary, records: Records
) -> None:
    data = data_of(tiny_vocabulary.with_sources(small_subwords()), records)
    with pytest.raises(UserError, match="cannot share an embedding"):
        dry_run.dry_run(data, tiny_hparams, 1, RunConfig())
