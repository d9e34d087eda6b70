"""Tests that trained models appear in the rows that they reproduce, with their results and what
limits them.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.paper.rows import ROWS
from t2t_repro.paper.tables import TrainedModel, compare, select_columns, sustained_tflops
from t2t_repro.training.metrics_log import MetricsLog

RESULTS = {
    "steps": 90_000,
    "dev_perplexity": 5.125,
    "dev_bleu": 24.5,
    "bleu": {"wmt14": 26.25, "wmt14/full": 26.5},
    "train_seconds": 43_200,
    "hardware": "Tesla P100-SXM2-16GB",
    "gpu_count": 4,
}
MakeModel = Callable[..., str]


@pytest.fixture
def make_model(tmp_path: Path, tiny_vocabulary: Vocabulary) -> MakeModel:
    """Returns a function that makes a model folder, writes `results` to results.json, and returns
    the folder's path.
    """

    def make_model(
        problem: str, hparams: HParams, results: dict[str, Any] | None = None, **origin: Any
    ) -> str:
        path = tmp_path / f"model{len(list(tmp_path.iterdir()))}"
        settings = origin.pop("settings", {})
        ModelFolder.create(
            path,
            hparams,
            tiny_vocabulary,
            Origin(problem, settings, "vocab.model", "01", 1, **origin),
        )
        if results is not None:
            (path / "results.json").write_text(json.dumps(results))
        return str(path)

    return make_model


def test_a_model_reproduces_the_rows_with_its_problem_and_hparams(make_model: MakeModel) -> None:
    for hparams_set, problem, changes, rows in (
        ("transformer_base", "wmt_ende", {"train_steps": 90_000}, ["Transformer (base)", "base"]),
        ("transformer_base", "wmt_ende", {"hidden_size": 128}, []),
        ("transformer_h16", "wmt_ende", {}, ["(A)"]),
        ("deep_att", "wmt_ende", {}, []),  # Table 2 has Deep-Att only for EN-FR
        ("convs2s_enfr", "wmt_enfr", {}, ["ConvS2S"]),
        ("transformer_parsing_4layer_semi", "wsj_parsing_semi", {}, ["Transformer (4 layers)"]),
    ):
        hparams = replace(registry.hparams(hparams_set), **changes)
        model = TrainedModel.read(make_model(problem, hparams), {})
        assert [row.name for row in ROWS if model.reproduces(row)] == rows
    base = registry.hparams("transformer_base")
    tuned = TrainedModel.read(make_model("wmt_ende", base, warm_start_from="/m"), {})
    assert not any(map(tuned.reproduces, ROWS))


def test_each_model_of_a_row_has_a_line_with_its_results(make_model: MakeModel) -> None:
    hparams = registry.hparams("transformer_parsing_4layer")
    paths = [make_model("wsj_parsing", hparams, RESULTS | {"f1": f1}) for f1 in (91.5, 92.0)]
    other = make_model("wsj_parsing", replace(hparams, batch_size=99), RESULTS)
    table, others = compare(["4"], [*paths, other], 1000, {})
    lines = [
        line for line in table.lines if line.get("hparams_set") == "transformer_parsing_4layer"
    ]
    expected = {
        "row": "Transformer (4 layers)",
        "training": "WSJ only",
        "paper_f1": 91.3,
        "problem": "wsj_parsing",
        "measured_steps": 90_000,
        "measured_perplexity": 5.125,
        "measured_bleu_dev": 24.5,
        "measured_bleu:wmt14": 26.25,
        "measured_bleu:wmt14/full": 26.5,
        "train_seconds": 43_200,
        "measured_flops_by_time": 43_200 * 4 * 9.5e12,
        # that of Table 4, with 1,000 instead of 16,000 entries
        "parameters": 100_335_616 - 15_000 * 1024,
    }
    for line, path, f1 in zip(lines, paths, (91.5, 92.0), strict=True):
        assert {**line, **expected, "output_dir": path, "measured_f1": f1} == line
    assert [line["output_dir"] for line in others.lines] == [other]
    titles = [column.title for column in select_columns([table], [])]
    assert "BLEU wmt14/full, measured" in titles and "d_model" not in titles


def test_columns_are_selected_by_name() -> None:
    columns = select_columns([], ["paper_f1", "row"])
    assert [column.name for column in columns] == ["paper_f1", "row"]
    assert select_columns([], ["all"]) == select_columns([], [])
    with pytest.raises(UserError, match="unknown column 'paper_f2'; did you mean 'paper_f1'"):
        select_columns([], ["paper_f2"])
    with pytest.raises(UserError, match="unknown table '5'; there are: 2, 3, 4"):
        compare(["3", "5"], [], 0, {})


@pytest.mark.parametrize(("steps", "bleu"), [(110, 27.5), (100, None)])
def test_results_older_than_the_last_checkpoint_are_replaced_by_the_metrics(
    steps: int, bleu: float | None, make_model: MakeModel, tiny_hparams: HParams
) -> None:
    path = make_model("numbers_ende", tiny_hparams, {"steps": steps, "dev_bleu": 27.5})
    for step in (20, 110, 90):
        (Path(path) / f"model.ckpt-{step}.index").touch()
    MetricsLog(path, 0).add(110, dev_loss=1.0, dev_perplexity=2.75)
    results = TrainedModel.read(path, {}).results
    assert (results.steps, results.dev_bleu) == (110, bleu)


def test_notes_say_what_limits_a_comparison(make_model: MakeModel) -> None:
    base = registry.hparams("transformer_base")
    moved = {
        "steps": 5,
        "search": "beam_size=1",
        "signatures": ["BLEU"],
        "hardware": "2 x K80, then 1 x P100",
    }
    origin = {
        "precision": "mixed_bfloat16",
        "warm_start_from": "/m",
        "settings": {"vocab_size": 99},
    }
    facts = [
        "BLEU",
        "5 of 100,000 steps",
        "mixed_bfloat16",
        "/m",
        "beam_size=1",
        "several machines",
        "--vocab_size=99",
    ]
    unknown_rate = {"hardware": "V100", "gpu_count": 1, "train_seconds": 5}
    for path, expected in (
        (make_model("wmt_ende", base, moved, **origin), facts),
        (make_model("wmt_ende", base, unknown_rate), ["'V100'; give one with --sustained_tflops"]),
        (make_model("wmt_ende", base, unknown_rate | {"hardware": "P100"}), []),
    ):
        for note, fact in zip(TrainedModel.read(path, {}).notes(), expected, strict=True):
            assert note.startswith(f"{path}: ") and fact in note


def test_the_rate_of_a_gpu_is_found_by_the_longest_name_in_it() -> None:
    assert sustained_tflops("Tesla P100-PCIE-16GB (R)", {}) == 9.5
    assert sustained_tflops("Tesla P100-PCIE-16GB (R)", {"P100-PCIE": 8.0, "Tesla": 1.0}) == 8.0
    assert sustained_tflops("Tesla V100 SXM2", {"V100": 14.5}) == 14.5
    assert sustained_tflops("GRID K8000", {}) is None
