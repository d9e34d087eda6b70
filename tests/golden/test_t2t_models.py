"""Imports the models that tensor2tensor trained, and compares their outputs and scores with
tensor2tensor's own.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from t2t_models import MODELS, NEED_MODELS
from t2t_repro.checkpoints.checkpoint import warm_start
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator
from t2t_repro.models.model import make_model
from t2t_repro.tensor2tensor.model import BYTES, Import, Request
from t2t_repro.training.loss import smoothed_cross_entropy

pytestmark = NEED_MODELS


class Imported(NamedTuple):
    """An imported model, and the folder with tensor2tensor's outputs."""

    folder: ModelFolder
    translator: Translator
    golden: Path


@pytest.fixture(
    scope="module", params=["v1", "v3_src_tgt_separate", "relative", "pos_emb", "bytes"]
)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    path = tmp_path_factory.mktemp("imported") / "model"
    Import(Request(str(MODELS / request.param / "model"))).write(str(path))
    return Imported(
        ModelFolder(path), Translator.from_dir(str(path), n=4), MODELS / request.param / "out"
    )


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def test_the_best_outputs_are_the_same(imported: Imported) -> None:
    translations = imported.translator.translate(lines(MODELS / "raw" / "test.en"))
    rows = json.loads((imported.golden / "beams.json").read_text())["rows"]
    expected = lines(imported.golden / "test.decoded.de")
    for translation, row, text in zip(translations, rows, expected, strict=True):
        best = translation.hypotheses[0]
        golden = row["hyps"][0]
        assert best.text == text
        assert (list(translation.source_ids), list(best.ids)) == (row["input_ids"], golden["ids"])
        assert best.score == pytest.approx(golden["score"], abs=1e-4)


def test_the_best_outputs_of_an_average_are_the_same(tmp_path: Path) -> None:
    Import(Request(str(MODELS / "v3/avg"))).write(str(tmp_path / "model"))
    translations = Translator.from_dir(str(tmp_path / "model")).translate(
        lines(MODELS / "raw" / "test.en")[:50]
    )
    expected = lines(MODELS / "v3/out/test.decoded.avg.de")[:50]
    assert [translation.hypotheses[0].text for translation in translations] == expected


@pytest.mark.usefixtures("no_graphs")
def test_the_scores_of_given_pairs_are_the_same(imported: Imported) -> None:
    rows: list[dict[str, Any]] = json.loads((imported.golden / "scores.json").read_text())["rows"]
    scores = imported.translator.score(
        [row["source"] for row in rows], [row["target"] for row in rows]
    )
    for score, row in zip(scores, rows, strict=True):
        np.testing.assert_allclose(score.token_scores, row["token_log_probs"], atol=1e-4)


def test_training_that_starts_from_an_import_has_its_loss(imported: Imported) -> None:
    folder = imported.folder
    golden = np.load(imported.golden / "logits.npz")
    model = make_model(
        folder.hparams,
        folder.vocabulary.size,
        source_vocab_size=folder.vocabulary.separate_source_size,
    )
    warm_start(model, folder.vocabulary, str(folder.path))
    targets = golden["targets"]
    logits = model(golden["inputs"], targets)
    is_token = targets != 0
    np.testing.assert_allclose(np.asarray(logits)[is_token], golden["logits"][is_token], atol=2e-4)
    loss = float(smoothed_cross_entropy(logits, targets, 0.0)) / is_token.sum()
    # tensor2tensor doubles the loss of problems on bytes, with the hparam loss_multiplier.
    factor = 2 if folder.vocabulary.size == BYTES else 1
    assert factor * loss == pytest.approx(float(golden["loss_training"]), abs=1e-5)


def test_our_average_is_tensor2tensors() -> None:
    ours = Import(Request(str(MODELS / "v3/model"), average_last=3))
    golden = Import(Request(str(MODELS / "v3/avg")))
    assert ours.step == golden.step == 1800
    for name, weight in golden.weights.items():
        np.testing.assert_allclose(ours.weights[name], weight, atol=1e-6)
