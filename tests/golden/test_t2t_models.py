"""Imports the models that tensor2tensor trained, and compares their outputs and scores with tensor2tensor's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from t2t_repro.decoding.translator import Translator
from t2t_repro.importing.model import Import, Request

MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "t2t_models"
pytestmark = pytest.mark.skipif(not MODELS.exists(), reason="../shared/golden/t2t_models does not exist")


class Imported(NamedTuple):
    """An imported model, and the folder with tensor2tensor's outputs."""

    translator: Translator
    golden: Path
    average: str
    """End of the names of files about the averaged checkpoint; else ""."""


@pytest.fixture(
    scope="module",
    params=["v1/model", "v3/avg", "v3_src_tgt_separate/model", "relative/model", "pos_emb/model", "bytes/model"],
)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    folder = tmp_path_factory.mktemp("imported") / "model"
    Import(Request(str(MODELS / request.param))).write(str(folder))
    name, _, kind = request.param.partition("/")
    translator = Translator.from_dir(str(folder), n=4)
    return Imported(translator, MODELS / name / "out", ".avg" if kind == "avg" else "")


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def test_the_best_outputs_are_the_same(imported: Imported) -> None:
    translations = imported.translator.translate(lines(MODELS / "raw" / "test.en"))
    expected = lines(imported.golden / f"test.decoded{imported.average}.de")
    assert [translation.hypotheses[0].text for translation in translations] == expected
    if imported.average:
        return
    rows = json.loads((imported.golden / "beams.json").read_text())["rows"]
    for translation, row in zip(translations, rows, strict=True):
        best, golden = translation.hypotheses[0], row["hyps"][0]
        assert (list(translation.source_ids), list(best.ids)) == (row["input_ids"], golden["ids"])
        assert best.score == pytest.approx(golden["score"], abs=1e-4)


def test_the_scores_of_given_pairs_are_the_same(imported: Imported) -> None:
    if imported.average:
        pytest.skip("tensor2tensor scored only the checkpoint of step 1,800, not the average")
    rows: list[dict[str, Any]] = json.loads((imported.golden / "scores.json").read_text())["rows"]
    scores = imported.translator.score([row["source"] for row in rows], [row["target"] for row in rows])
    for score, row in zip(scores, rows, strict=True):
        np.testing.assert_allclose(score.token_scores, row["token_log_probs"], atol=1e-4)
