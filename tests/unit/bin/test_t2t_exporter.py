"""Tests which languages and scores t2t-exporter writes into a model card."""

import json
from pathlib import Path

import pytest

import programs
from models import weights_of, write_checkpoint
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.models import variants
from t2t_repro.paper.results import Results, write_results

pytestmark = pytest.mark.usefixtures("no_graphs")


def test_a_model_card_has_the_scores_of_its_checkpoint(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    origin = Origin("numbers_ende_rev", {}, f"vocab.x{tiny_vocabulary.suffix}", "0123456789ab", 1)
    ModelFolder.create(tmp_path, tiny_hparams, tiny_vocabulary, origin)
    weights = weights_of(variants.transformer(tiny_hparams, tiny_vocabulary.size))
    (tmp_path / "averaged").mkdir()
    checkpoints = [
        write_checkpoint(folder, 3, weights, tiny_vocabulary.fingerprint)
        for folder in (tmp_path, tmp_path / "averaged")
    ]
    write_results(tmp_path, Results(bleu={"newstest": 30.5}, signatures=["newstest: nrefs:1"]))
    measured = [
        {"step": 2, "dev_perplexity": 7.75},
        {"step": 3, "dev_perplexity": 9.5, "eval_steps": 1},
    ]
    lines = [
        *measured,
        {"step": 3, "dev_perplexity": 5.25, "dev_bleu": 20.5, "signature": "nrefs:2"},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    cards = []
    for number, checkpoint in enumerate(checkpoints, 1):
        programs.succeed(
            "exporter",
            f"--output_dir={tmp_path}",
            f"--checkpoint_path={checkpoint}",
            "--format=huggingface",
        )
        cards.append((tmp_path / "export_huggingface" / str(number) / "README.md").read_text())
    scores = ["30.5", "newstest: nrefs:1", "5.25", "20.5", "nrefs:2", "7.75", "9.5"]
    assert [[score in card for score in scores] for card in cards] == [
        [True] * 5 + [False] * 2,
        [True] * 2 + [False] * 5,
    ]
    assert all('language: ["de", "en"]' in card for card in cards)
