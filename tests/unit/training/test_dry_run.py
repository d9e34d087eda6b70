"""What a dry run says is what the training's own batches are."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from t2t_repro.data import batching, summary
from t2t_repro.data.pipeline import Batch, Pipeline
from t2t_repro.data.records import Records, shard_path, write_shard
from t2t_repro.hparam import HParams
from t2t_repro.model_folder import hparams_fingerprint
from t2t_repro.models import size
from t2t_repro.training import dry_run, part_size
from t2t_repro.training.part_size import Place

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
GPU = Place("a GPU", 1, "float32", 0)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """500 pairs of up to 18 tokens a side, most of them short and with longer targets."""
    random = np.random.default_rng(0)
    path = shard_path(tmp_path_factory.mktemp("data"), "toy", "train", 0, 1)
    sides = np.array([[2], [4]]) + random.binomial([[7], [14]], random.uniform(0.1, 0.7, 500))
    write_shard(path, [([5] * source, [6] * target) for source, target in sides.T.tolist()])
    return Records([path])


def said(
    records: Records,
    max_tokens: int,
    place: Place = GPU,
    folder: Path = Path("nowhere"),
    hparams: HParams = HPARAMS,
) -> str:
    epoch = batching.plan(records.lengths, hparams.batch_size, hparams.max_length, 1, 0)
    return dry_run.describe(hparams, VOCAB, records.lengths, epoch, place, folder, max_tokens)


def batches(records: Records, max_tokens: int, replicas: int = 1) -> list[Batch]:
    """An epoch as it is trained on."""
    pipeline = Pipeline(records, HPARAMS.batch_size, HPARAMS.max_length, 1, max_tokens, replicas)
    return list(pipeline.batches(0, pipeline.steps_per_epoch))


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_plan(records: Records) -> None:
    text, epoch = said(records, 10_000), batches(records, 10_000)
    examples = sum(len(inputs) for batch in epoch for inputs, _ in batch.parts)
    assert 0 < examples < 500
    tokens = [batch.target_tokens for batch in epoch]
    positions = sum(ids.size for batch in epoch for part in batch.parts for ids in part)
    filled = sum(int((ids != 0).sum()) for batch in epoch for part in batch.parts for ids in part)
    assert min(tokens) < max(tokens) and filled < positions
    for line in (
        f"examples              {examples} an epoch; {500 - examples} longer than 14 tokens left out",
        f"steps                 {len(epoch)} an epoch; 1,000 in all are {1000 / len(epoch):.1f} epochs",
        f"target tokens a step  {min(tokens)} to {max(tokens)}, {np.mean(tokens):.0f} on average",
        f"padding               {1 - filled / positions:.1%} of all positions",
        f"model                 transformer, {size.parameters(HPARAMS, VOCAB):,} parameters",
        "trained on            1 x a GPU, float32",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize(("max_tokens", "replicas"), [(10_000, 1), (60, 1), (100, 2), (10_000, 4)])
def test_the_parts(records: Records, max_tokens: int, replicas: int) -> None:
    text, epoch = said(records, max_tokens, replace(GPU, replicas=replicas)), batches(records, max_tokens, replicas)
    assert f"positions of a part   {max_tokens:,} at most, as --max_tokens_per_replica says\n" in text
    expected = []
    for count, steps in sorted(Counter(len(batch.parts) for batch in epoch).items()):
        largest = max(ids.size for batch in epoch if len(batch.parts) == count for part in batch.parts for ids in part)
        expected.append([f"{count}", f"{steps}", f"{steps / len(epoch):.1%}", f"{largest}", "positions"])
    table = text.partition("Parts of a step\n\n")[2].partition("\n\n")[0].splitlines()
    assert table[0].split() == ["parts", "steps", "share", "largest", "part"]
    assert [line.split() for line in table[1:]] == expected


@pytest.mark.parametrize(
    ("max_tokens", "replicas", "accumulates"),
    [(10_000, 1, False), (40, 1, True), (10_000, 4, False), (100, 4, False), (40, 3, True)],
)
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_memory_is_of_the_worst_that_a_replica_computes_at_once(
    records: Records, max_tokens: int, replicas: int, accumulates: bool, precision: str
) -> None:
    epoch = batches(records, max_tokens, replicas)
    assert accumulates == any(len(batch.parts) > 2 * replicas for batch in epoch)
    worst = 0
    for batch in epoch:
        shapes = [(*inputs.shape, targets.shape[1]) for inputs, targets in batch.parts if inputs.size]
        each = [size.activations(HPARAMS, VOCAB, shape, precision) for shape in shapes]
        if len(batch.parts) <= replicas or len(batch.parts) > 2 * replicas:
            worst = max(worst, *each)
        else:
            assert len(each) == 2 * replicas
            worst = max(worst, *(each[i] + each[replicas + i] for i in range(replicas)))
    text = said(records, max_tokens, Place("a GPU", replicas, precision, 0))
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


def test_where_the_size_of_parts_comes_from(records: Records, tmp_path: Path) -> None:
    processor = Place("a processor", 1, "float32", 8 << 30)
    assert "4,096 at most, by this machine's memory; tried at the start" in said(records, 0, processor)
    assert "a single example, which is too much" in said(records, 0, replace(processor, memory=1 << 20))
    gpu = said(records, 0, GPU, tmp_path)
    assert "so that nothing is cut; how many fit is found at the start" in gpu
    uncut = said(records, 10_000)
    assert gpu.partition("Parts")[2] == uncut.partition("Parts")[2]
    assert list(tmp_path.iterdir()) == []

    epoch = batching.plan(records.lengths, HPARAMS.batch_size, HPARAMS.max_length, 1, 0)
    needs = asdict(part_size.demand(records.lengths, epoch, 1)) | {"vocab_size": VOCAB}
    found = {"max_tokens_per_replica": 1024, "hparams_fingerprint": hparams_fingerprint(HPARAMS)}
    (tmp_path / part_size.FILE_NAME).write_text(json.dumps(found | asdict(GPU) | needs))
    assert f"1,024 at most, as {tmp_path / 'part_size.json'} says" in said(records, 0, GPU, tmp_path)
    assert "50 at most, as --max_tokens_per_replica says" in said(records, 50, GPU, tmp_path)
    assert "so that nothing is cut" in said(records, 0, replace(GPU, device="another"), tmp_path)


def test_several_workers_take_the_parts_of_as_many_devices(records: Records) -> None:
    two = replace(GPU, replicas=2, workers=2)
    together, alone = said(records, 60, two), said(records, 60, replace(GPU, replicas=4))
    assert together.replace("2 workers, each 2 x", "4 x") == alone
    assert "4,096 at most, tried at the start" in said(records, 0, two)
    assert "so that nothing is cut; how many fit" in said(records, 0, replace(two, workers=1))


def test_a_long_plan_is_looked_at_in_part(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "MAX_STEPS", 3)
    text, epoch = said(records, 60), batches(records, 60)
    parts = [part for batch in epoch[:3] for part in batch.parts]
    filled, positions = (
        sum(count(ids) for part in parts for ids in part) for count in (np.count_nonzero, lambda ids: ids.size)
    )
    assert f"{1 - filled / positions:.1%} of all positions of the first 3 steps" in text
    assert "Parts of a step of the first 3 steps" in text
    tokens = [batch.target_tokens for batch in epoch]
    assert f"{min(tokens)} to {max(tokens)}, " in text
    assert summary.MAX_STEPS > len(epoch) > 3
