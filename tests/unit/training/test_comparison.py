"""Tests that an average and the last checkpoint are scored on the same dev lines, and which one is called better."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import keras
import pytest

from models import weights_of, write_checkpoint
from shards import write_shard
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.records import Records, shard_path
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import Score
from t2t_repro.models.model import make_model
from t2t_repro.problem import Problem
from t2t_repro.training.comparison import evaluate, verdict
from t2t_repro.training.evaluation import EVAL_BEAM, Decoded, DevDecoder, Evaluation, Evaluator

pytestmark = pytest.mark.usefixtures("no_graphs")

TEXTS = [("the cat sat on the dog", "a cat sat"), ("a cat", "the dog"), ("the dog sat", "a dog"), ("dog", "cat")]


class Quick(Problem):
    """A problem that is decoded quickly."""

    decode_hparams = DecodeHParams(beam_size=1, extra_length=2)


def evaluation(loss: float, score: float | None = None) -> Evaluation:
    return Evaluation(loss, 0.5, decoded=None if score is None else Decoded([Score("BLEU", score, "")], 100, []))


@pytest.mark.parametrize(
    ("average", "last", "better"),
    [
        ((2.0, 20.0), (2.5, 19.0), ""),
        ((2.5, 5.79), (2.0, 9.27), "dev loss and BLEU"),
        ((2.0, 5.79), (2.0, 9.27), "BLEU"),
        ((2.5, math.nan), (2.0, 1.0), "dev loss"),
        ((2.5, None), (2.0, None), "dev loss"),
        ((2.0, 1.0), (2.0, 1.0), ""),
    ],
)
def test_what_the_last_checkpoint_does_better_is_named(
    average: tuple[float, float | None], last: tuple[float, float | None], better: str
) -> None:
    text = verdict(evaluation(*average), evaluation(*last), "M", "M/model.ckpt-9")
    assert text.startswith(f"the last checkpoint has the better {better}, but" if better else "the average is as good")
    assert ("--output_dir=M --checkpoint_path=M/model.ckpt-9" in text) == bool(better)


def test_each_checkpoint_has_the_figures_of_the_trainers_evaluation(folder: ModelFolder, tmp_path: Path) -> None:
    folder.problem = Quick({}, name="numbers_ende")
    words = folder.vocabulary
    sources, targets = (words.encode(side) for side in zip(*TEXTS, strict=True))
    path = shard_path(tmp_path, "toy", "dev", 0, 1)
    write_shard(path, list(zip(sources, targets, strict=True)))
    records = Records([path])
    paths, expected = [], []
    for step in (1, 2):
        keras.utils.set_random_seed(step)
        model: Any = make_model(folder.hparams, words.size)
        paths.append(write_checkpoint(folder.path, step, weights_of(model), words.fingerprint))
        decoded = DevDecoder(model, folder, records, 1)()
        expected.append((Evaluator(model, records, 4096)().loss, decoded))
    results = evaluate(folder, paths, records, 0, 1)
    for result, (loss, decoded) in zip(results, expected, strict=True):
        assert result.loss == pytest.approx(loss, rel=1e-6) and result.decoded == decoded
    assert expected[0][0] != pytest.approx(expected[1][0], rel=1e-3)
    assert evaluate(folder, paths[:1], records, 1, 0)[0].decoded is None
    Quick.decode_hparams = DecodeHParams(beam_size=21, alpha=0.3)
    search = DevDecoder(model, folder, records, 1).translator.decode_hparams
    assert search == DecodeHParams(beam_size=EVAL_BEAM, alpha=0.3)
