"""The loss of a split against that of its sentences one by one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from t2t_repro.data.records import Records, shard_path, write_shard
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.training.evaluation import Evaluation, Evaluator

PAIRS = [([3, 4, 5, 6, 1], [7, 1]), ([8, 1], [9, 10, 11, 3, 1]), ([4, 1], [5, 1]), ([6, 7, 8, 1], [9, 10, 1])]


@pytest.fixture(scope="module")
def model(tiny_hparams: HParams) -> Transformer:
    return Transformer(tiny_hparams, 12)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    path = shard_path(tmp_path, "toy", "dev", 0, 1)
    write_shard(path, PAIRS)
    return Records([path])


def log_likelihood(model: Transformer, source: list[int], target: list[int]) -> float:
    logits = np.asarray(model(np.array([source]), np.array([target])), np.float64)[0]
    return sum(row[token] - math.log(np.exp(row).sum()) for row, token in zip(logits, target, strict=True))


@pytest.mark.parametrize("max_tokens", [1, 8, 1000])
def test_the_loss_is_that_of_each_sentence_alone(model: Transformer, records: Records, max_tokens: int) -> None:
    result = Evaluator(model, records, max_tokens)()
    expected = -sum(log_likelihood(model, *pair) for pair in PAIRS)
    assert result.tokens == sum(len(target) for _, target in PAIRS)
    assert result.loss == pytest.approx(expected / result.tokens, rel=1e-5)
    assert result.perplexity == pytest.approx(math.exp(expected / result.tokens), rel=1e-5)


def test_so_many_batches_alone(model: Transformer, records: Records) -> None:
    assert Evaluator(model, records, 1, max_batches=2)().tokens == 4
    assert Evaluator(model, records, 1, max_batches=9)().tokens == 12


def test_it_measures_the_model_as_it_is_now(model: Transformer, records: Records) -> None:
    evaluator = Evaluator(model, records, 1000)
    before = evaluator()
    table = model.embedding.table
    table.assign(2 * table)
    assert evaluator().loss != before.loss


def test_perplexity_of_a_hopeless_model_is_finite() -> None:
    assert math.isfinite(Evaluation(1e6, 1).perplexity)
