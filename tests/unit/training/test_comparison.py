"""Tests that an average and the last checkpoint are scored on the same dev lines, and which one is called better."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import keras
import pytest

from models import weights_of, write_checkpoint
from shards import write_shard
from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.records import Records, shard_path
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.metrics.score import Score
from t2t_repro.models.model import make_model
from t2t_repro.problem import Problem
from t2t_repro.training.comparison import Measured, measure, verdict
from t2t_repro.training.evaluation import EVAL_BEAM, Decoded, DevDecoder, Evaluation, Evaluator, dev_decode_hparams

pytestmark = pytest.mark.usefixtures("no_graphs")

TEXTS = [("the cat sat on the dog", "a cat sat"), ("a cat", "the dog"), ("the dog sat", "a dog"), ("dog", "cat")]


class Quick(Problem):
    """A problem that is decoded quickly."""

    decode_hparams = DecodeHParams(beam_size=1, extra_length=2)


def measured(name: str, loss: float, score: float | None = None) -> Measured:
    decoded = None if score is None else Decoded([Score("BLEU", score, "")], 100, [])
    return Measured(name, Evaluation(loss, 0.5), decoded)


@pytest.mark.parametrize(
    ("average", "last", "expected"),
    [
        ((2.0, 20.0), (2.5, 19.0), "the average is better (dev loss and BLEU); "),
        ((2.5, 5.79), (2.0, 9.27), "the last checkpoint is better (dev loss and BLEU), but t2t-decoder"),
        ((2.0, 5.79), (2.0, 9.27), "the last checkpoint is better (BLEU), but t2t-decoder"),
        ((2.0, 18.0), (2.5, 20.0), "the average has the better dev loss, the last checkpoint the better BLEU; "),
        ((2.5, 20.0), (2.0, 18.0), "the average has the better BLEU, the last checkpoint the better dev loss; "),
        ((2.5, math.nan), (2.0, 1.0), "the last checkpoint is better (dev loss), but t2t-decoder"),
        ((2.0, 1.0), (2.0, 1.0), "the average and the last checkpoint are equally good"),
    ],
)
def test_the_better_one_is_named(
    average: tuple[float, float | None], last: tuple[float, float | None], expected: str
) -> None:
    text = verdict(measured("M/averaged/model.ckpt-9", *average), measured("M/model.ckpt-9", *last), "M")
    assert text.startswith(expected) and "\n" not in text
    command = "--output_dir=M --checkpoint_path=M/model.ckpt-9"
    assert (command in text) == (not expected.startswith(("the average is better", "the average and")))


def test_a_checkpoint_is_shown_with_its_loss_and_score() -> None:
    assert str(measured("M/model.ckpt-9", 2.0)) == "M/model.ckpt-9: dev loss 2.0000"
    assert str(measured("M/model.ckpt-9", 2.0, 3.0)) == "M/model.ckpt-9: dev loss 2.0000, BLEU 3.00 of 100 lines"


CONVS2S = registry.hparams_class("convs2s")(num_hidden_layers=2, hidden_size=16, convolutions="16x3*2", max_length=50)


@pytest.mark.parametrize("hparams", [None, CONVS2S], ids=["Transformer", "ConvS2S"])
def test_each_checkpoint_has_the_figures_of_the_trainers_evaluation(
    hparams: HParams | None, folder: ModelFolder, tmp_path: Path
) -> None:
    folder.hparams = hparams or folder.hparams
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
        for weight in model.trainable_variables:
            if weight.path.endswith("/g"):  # otherwise the weights of a new ConvS2S are already normalized
                weight.assign(1.5 * weight)
        paths.append(write_checkpoint(folder.path, step, weights_of(model), words.fingerprint))
        translator = Translator(model, words, Quick.decode_hparams, folder.hparams.max_length)
        decoded = DevDecoder(translator, folder.problem, records, 1)()
        expected.append((Evaluator(model, records, 4096)().loss, decoded.scores, decoded.lines))
    results = measure(folder, paths, records, 0, 1)
    assert [result.checkpoint for result in results] == paths
    for result, (loss, scores, lines) in zip(results, expected, strict=True):
        assert result.decoded and result.evaluation.loss == pytest.approx(loss, rel=1e-6)
        assert (result.decoded.scores, result.decoded.lines) == (scores, lines)
    assert expected[0][0] != pytest.approx(expected[1][0], rel=1e-3)
    assert all(result.decoded is None for result in measure(folder, paths[:1], records, 1, 0))


def test_an_evaluation_decodes_with_a_small_beam() -> None:
    class Wide(Problem):
        decode_hparams = DecodeHParams(beam_size=21, alpha=0.3)

    assert dev_decode_hparams(Wide({})) == DecodeHParams(beam_size=EVAL_BEAM, alpha=0.3)
    assert dev_decode_hparams(Quick({})) == Quick.decode_hparams
