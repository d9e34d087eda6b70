"""Tests that t2t-reproduce's report shows scores beside the paper's figures, and names what limits
a comparison.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.metrics.score import PAPER_BLEU, PAPER_BLEU_ASCII, Score
from t2t_repro.paper.report import report
from t2t_repro.paper.results import Results

SACREBLEU_SIGNATURE = "nrefs:1|tok:13a"
PAPER_SIGNATURE = "nrefs:1|tok:sacremoses"
MakeFolder = Callable[..., ModelFolder]


@pytest.fixture
def make_folder(tmp_path: Path, tiny_vocabulary: Vocabulary) -> MakeFolder:
    """Returns a function that makes a model folder. Its averaged checkpoint is marked as the
    average of `count`.
    """

    def make_folder(problem: str, hparams: HParams, count: int) -> ModelFolder:
        origin = Origin(problem, {}, "vocab.model", "0123456789ab", 7)
        folder = ModelFolder.create(tmp_path / "model", hparams, tiny_vocabulary, origin)
        (folder.path / "averaged").mkdir()
        average = tf.train.Checkpoint(averaged=tf.Variable(count, dtype=tf.int64))
        average.write(str(folder.path / "averaged" / "model.ckpt-100"))
        return folder

    return make_folder


def cells(text: str) -> dict[str, list[str]]:
    """Returns the rows of the report's table, without its header, as {first cell: other cells}."""
    rows = [
        line.replace("\\|", "/").strip("|").split("|")
        for line in text.split("\n")
        if line.startswith("|")
    ]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows[2:]}


def test_the_papers_base_stands_beside_its_figures(make_folder: MakeFolder) -> None:
    folder = make_folder(
        "wmt_ende", replace(registry.hparams("transformer_base"), train_steps=90_000), 4
    )
    scores = {
        name: [
            Score("BLEU", bleu, SACREBLEU_SIGNATURE),
            Score(PAPER_BLEU, bleu + 0.5, PAPER_SIGNATURE),
            Score(PAPER_BLEU_ASCII, bleu + 0.75, PAPER_SIGNATURE),
        ]
        for name, bleu in (("wmt13", 25.0), ("wmt14", 26.004), ("wmt14/full", 26.5))
    }
    results = Results(90_000, 5.126, train_seconds=45_000, hardware="P100", gpu_count=8)
    text = report(folder, "transformer_base", scores, results, folder.problem.decode_hparams)
    assert cells(text) == {
        "steps": ["100,000", "90,000", ""],
        "dev perplexity per subword, last checkpoint": ["4.92", "5.13", ""],
        "BLEU, wmt13, last checkpoint": ["", "25.00", "nrefs:1/tok:13a"],
        f"{PAPER_BLEU}, wmt13, last checkpoint": ["25.8", "25.50", "nrefs:1/tok:sacremoses"],
        f"{PAPER_BLEU_ASCII}, wmt13, last checkpoint": ["25.8", "25.75", "nrefs:1/tok:sacremoses"],
        "BLEU, wmt14": ["", "26.00", "nrefs:1/tok:13a"],
        # The paper has no score for "wmt14", which is 2,737 of the 3,003 pairs of "wmt14/full".
        f"{PAPER_BLEU}, wmt14": ["", "26.50", "nrefs:1/tok:sacremoses"],
        f"{PAPER_BLEU_ASCII}, wmt14": ["", "26.75", "nrefs:1/tok:sacremoses"],
        "BLEU, wmt14/full": ["", "26.50", "nrefs:1/tok:13a"],
        f"{PAPER_BLEU}, wmt14/full": ["27.3", "27.00", "nrefs:1/tok:sacremoses"],
        f"{PAPER_BLEU_ASCII}, wmt14/full": ["27.3", "27.25", "nrefs:1/tok:sacremoses"],
    }
    words = " ".join(text.split())
    for fact in (
        "# transformer_base on wmt_ende ",
        "Trained in 12.50 hours on 8 x P100, in float32; seed 7; data 0123456789ab,",
        f"vocabulary {folder.vocabulary.fingerprint} of {folder.vocabulary.size}",
        "changed settings of the problem: none; changed hparams: train_steps=90000. ",
        " Averaged checkpoints: 4. Decoded with beam_size=4,",
        "perplexity is per piece of its own vocabulary.",
    ):
        assert fact in words
    assert "Not scored" not in words


def test_a_parser_and_what_differs_from_the_papers_experiment(make_folder: MakeFolder) -> None:
    folder = make_folder("wsj_parsing", registry.hparams("transformer_parsing_4layer"), 5)
    folder.origin = replace(
        folder.origin, precision="mixed_bfloat16", warm_start_from="/models/finished"
    )
    folder.problem = registry.problem("wsj_parsing", {"test_sections": "24"})
    scores = [Score("F1", 90.125, "evalb"), Score("labelled recall", 91.0, "evalb")]
    text = report(
        folder,
        "transformer_parsing_4layer",
        {"dev": scores, "test": scores},
        Results(500),
        DecodeHParams(21),
    )
    table = cells(text)
    words = " ".join(text.split())
    assert table["F1, test"] == ["91.3", "90.12", "evalb"]
    assert table["F1, dev, last checkpoint"] == ["", "90.12", "evalb"]
    assert table["labelled recall, test"] == ["", "91.00", "evalb"]
    # The report omits the unknown time and hardware.
    assert "Trained, in mixed_bfloat16, from the weights of /models/finished; seed 7;" in words
    assert "changed settings of the problem: test_sections=24; changed hparams: none." in words
    assert "Time and steps exclude the training of the initial weights." in words
    assert "beam_size=21" in words


def test_a_problem_without_figures_in_the_paper_has_no_column_for_them(
    make_folder: MakeFolder,
) -> None:
    folder = make_folder("wmt_ende_rev", registry.hparams("transformer_base"), 1)
    scores = {"wmt14/full": [Score(PAPER_BLEU, 27.0, PAPER_SIGNATURE)]}
    text = report(
        folder, "transformer_base", scores, Results(100_000, 4.5), folder.problem.decode_hparams
    )
    assert cells(text)[f"{PAPER_BLEU}, wmt14/full"] == ["27.00", "nrefs:1/tok:sacremoses"]
    assert "Not scored, because their text is missing: wmt13, wmt14.\n" in text
    assert "The paper has no figures for this set on this problem.\n" in text
    for language, reason in (
        ("", "states no target language (docs/scoring.md)"),
        ("tr", "for language 'tr'"),
    ):
        folder.problem.target_language = language
        text = report(
            folder,
            "transformer_base",
            {"dev": [Score("BLEU", 1.0, "")]},
            Results(5, 4.5),
            DecodeHParams(),
        )
        assert reason in text
