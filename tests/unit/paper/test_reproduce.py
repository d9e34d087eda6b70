"""Tests that t2t-reproduce, after training, keeps finished work, redoes outdated work, and stores its results."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import sacrebleu

from models import weights_of, write_checkpoint
from t2t_repro import registry
from t2t_repro.checkpoints.averaging import averaged_count
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.checkpoints.reader import read_checkpoint
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding import Translator
from t2t_repro.errors import UserError
from t2t_repro.files.textfile import read_lines
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.metrics.score import PAPER_BLEU
from t2t_repro.models.transformer import Transformer
from t2t_repro.paper.reproduce import averaged, evaluate
from t2t_repro.paper.results import read_results
from t2t_repro.problem import Problem
from t2t_repro.problems.numbers import NumbersEnde
from t2t_repro.problems.wsj_parsing import WsjParsing
from t2t_repro.training.metrics_log import MetricsLog
from toys import Published

pytestmark = pytest.mark.usefixtures("no_graphs")

SOURCES, REFERENCES = ["the cat sat", "", "a dog"], ["die Katze sass auf dem Dach", "leer", "ein Hund"]
QUICK = DecodeHParams(beam_size=1, extra_length=2)
MakeFolder = Callable[..., ModelFolder]


class Quick(NumbersEnde):
    """The numbers problem, decoded greedily to save time, and scored by BLEU."""

    decode_hparams = QUICK
    scores = Problem.scores


class QuickParsing(WsjParsing):
    """The parsing problem, decoded greedily to save time."""

    decode_hparams = QUICK


class QuickPublished(Published):
    """A problem with test sets, decoded greedily to save time."""

    decode_hparams = QUICK


def save(folder: ModelFolder, *steps: int) -> None:
    """Writes a checkpoint for each of `steps`, all with different weights."""
    for step in steps:
        keras.utils.set_random_seed(step)  # with these seeds, the model's outputs are not empty
        model = Transformer(folder.hparams, folder.vocabulary.size)
        write_checkpoint(folder.path, step, weights_of(model), folder.vocabulary.fingerprint)


def write(data: Path, problem: str, test_set: str, sides: dict[str, list[str]]) -> None:
    """Writes a test set's text files as t2t-datagen does, and sets their modification time to 1970."""
    data.mkdir(exist_ok=True)
    for suffix, lines in sides.items():
        path = data / f"{problem}.{test_set}.{suffix}"
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        os.utime(path, (1, 1))


@pytest.fixture
def make_folder(tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> MakeFolder:
    """Returns a function that makes the model folder or, if it exists, opens it. `changes` are hparams to change."""

    def make_folder(problem: Problem | None = None, name: str = "numbers_ende", **changes: int) -> ModelFolder:
        origin = Origin(name, {}, "vocab.model", "0123456789ab", 1)
        hparams = replace(tiny_hparams, **{"num_last_checkpoints": 2, **changes})  # type: ignore[arg-type]
        folder = ModelFolder.create(tmp_path / "model", hparams, tiny_vocabulary, origin)
        folder.problem = problem or Quick({}, name=name)
        return folder

    return make_folder


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Writes the text files of a dev split with three lines, and returns the files' folder."""
    write(tmp_path / "data", "numbers_ende", "dev", {"inputs": SOURCES, "targets": REFERENCES})
    return str(tmp_path / "data")


def lines(path: Path) -> list[str]:
    return list(read_lines(str(path)))


def decoded(folder: ModelFolder) -> dict[str, list[str]]:
    """Returns {file name without the fingerprint: lines} for all decoded files of a model folder."""
    return {re.sub(r"-[0-9a-f]{8}\.", ".", path.name): lines(path) for path in (folder.path / "decoded").iterdir()}


def test_the_last_checkpoints_are_averaged_decoded_and_scored(
    make_folder: MakeFolder, data: str, tmp_path: Path
) -> None:
    folder = make_folder()
    save(folder, 5, 10, 15)
    log = MetricsLog(folder.path, 0)
    for step, seconds in ((5, 100.0), (15, 300.5)):
        log.add(step, seconds=seconds, train_loss=2.0, learning_rate=0.1, hardware="Abacus", gpu_count=4)
        log.add(step, dev_loss=1.0, dev_perplexity=1000.0 / step)
    scores, results = evaluate(folder, data, str(tmp_path))

    assert averaged_count(str(folder.path / "averaged/model.ckpt-15")) == 2
    mean = read_checkpoint(str(folder.path / "averaged/model.ckpt-15")).weights
    parts = [read_checkpoint(str(folder.path / f"model.ckpt-{step}")).weights for step in (10, 15)]
    for name, value in mean.items():
        np.testing.assert_allclose(value, (parts[0][name] + parts[1][name]) / 2, atol=1e-6)
    outputs = Translator(folder.model(str(folder.path / "averaged/model.ckpt-15")), folder.vocabulary, QUICK)
    expected = [output.text for output in outputs.translate(SOURCES)]
    assert decoded(folder) == {"dev-15.txt": expected}
    assert expected[0] and expected[2] and not expected[1]

    by_label = {score.label: score.score for score in scores["dev"]}
    assert by_label["BLEU"] == pytest.approx(sacrebleu.corpus_bleu(expected, [REFERENCES]).score)
    assert by_label["chrF"] == pytest.approx(sacrebleu.corpus_chrf(expected, [REFERENCES]).score)
    assert (results.dev_bleu, results.bleu) == (by_label[PAPER_BLEU], {})
    (signature,) = results.signatures
    assert signature.startswith("dev: nrefs:1|case:mixed|eff:no|tok:sacremoses")
    assert (results.steps, results.dev_perplexity, results.f1) == (15, pytest.approx(1000 / 15), None)
    assert (results.train_seconds, results.hardware, results.gpu_count) == (300.5, "Abacus", 4)
    assert read_results(folder.path) == results


def test_finished_work_is_kept_as_long_as_it_fits(
    make_folder: MakeFolder, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It belongs to its weights, text and search, wherever the data is."""

    def count(data_dir: str, search: DecodeHParams = QUICK) -> int:
        """Evaluates the model; returns how many files of outputs there are then."""
        evaluate(folder, data_dir, str(tmp_path), search)
        return len(list((folder.path / "decoded").iterdir()))

    folder = make_folder()
    save(folder, 5)
    assert count(data) == 1 and averaged_count(averaged(folder)) == 1
    assert "averaging 1, not 2 checkpoints, because the folder has no more" in capsys.readouterr().err
    save(folder, 3)  # the next average must include this checkpoint of an earlier step
    assert count(data) == 2 and averaged_count(averaged(folder)) == 2
    for path in (folder.path / "decoded").iterdir():
        path.write_text("".join(f"{line}\n" for line in REFERENCES), "utf-8")
    times = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*") if path.name != "results.json"}
    moved = str(Path(data).rename(tmp_path / "moved"))
    for path in folder.path.glob("model.ckpt-3.*"):  # the average of this checkpoint stays valid
        times.pop(path.unlink() or path)
    assert count(moved, replace(QUICK, batch_size=9)) == 2  # the batch size changes no output
    assert {path: path.stat().st_mtime_ns for path in times} == times
    results = read_results(folder.path)
    assert results and (results.dev_bleu, results.search) == (pytest.approx(100), "")

    index = Path(f"{averaged(folder)}.index")
    whole = index.read_bytes()
    index.write_bytes(whole[:100])  # as if a kill had interrupted the writing of the file
    save(folder, 3)
    assert count(moved) == 2 and index.read_bytes() == whole
    folder = make_folder(num_last_checkpoints=1)
    assert count(moved) == 2 and averaged_count(averaged(folder)) == 1  # that file exists since the first evaluation
    assert count(moved, replace(QUICK, beam_size=2, alpha=0.0)) == 3
    results = read_results(folder.path)
    assert results and results.search == "beam_size=2,alpha=0.0"
    # `evaluate` decodes a different text of the same name, although the text's files are older than the outputs.
    write(tmp_path / "other", "numbers_ende", "dev", {"inputs": SOURCES[:1], "targets": REFERENCES[:1]})
    assert count(str(tmp_path / "other")) == 4


def test_test_sets_are_decoded_with_the_average_and_a_dev_set_beside_them_with_the_last_checkpoint(
    make_folder: MakeFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Apart(QuickPublished):
        """A problem whose dev split is one of its test sets."""

        dev_set = "second"

    folder = make_folder(Apart())
    save(folder, 5, 10)
    scores, results = evaluate(folder, str(tmp_path / "data"), str(tmp_path))
    assert "test set far is not written: far.tgz: no such file; download it" in capsys.readouterr().err
    assert scores.keys() == {"first/full", "second"}
    assert {name: len(texts) for name, texts in decoded(folder).items()} == {
        "first_full-10.txt": 3,
        "second-10-last.txt": 3,
    }
    assert [signature.partition(": ")[0] for signature in results.signatures] == ["first/full", "second"]
    assert results.bleu.keys() == {"first/full"} and results.dev_bleu is not None
    last = Translator(folder.model(str(folder.path / "model.ckpt-10")), folder.vocabulary, QUICK)
    sources = list(read_lines(str(next((tmp_path / "data").glob("*.second.*")))))
    assert decoded(folder)["second-10-last.txt"] == [translation.text for translation in last.translate(sources)]


def test_a_parsers_outputs_are_trees_and_its_score_is_the_test_sections_f1(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    folder = make_folder(QuickParsing({}, name="wsj_parsing"), "wsj_parsing")
    save(folder, 5)
    flat, whole = "(TOP (S (NP (NN cat)) (NN sat)))", "(TOP (S (NP (NN cat)) (VP (VB sat))))"
    for name, gold in (("dev", flat), ("test", whole)):
        write(tmp_path / "data", "wsj_parsing", name, {"words": ["cat sat"], "trees": [gold]})
    scores, results = evaluate(folder, str(tmp_path / "data"), str(tmp_path))
    for (tree,) in decoded(folder).values():
        assert tree.startswith("(TOP (") and tree.count("(") == tree.count(")")
        assert " cat)" in tree and " sat)" in tree
    assert results.bleu == {}
    # The untrained model's output has no brackets except TOP, so EVALB's F1 is NaN, which results.json cannot hold.
    assert (results.f1, scores["test"][0].label) == (None, "F1")
    assert read_results(folder.path) == results
    for path in (folder.path / "decoded").iterdir():
        path.write_text(f"{flat}\n")
    scores, results = evaluate(folder, str(tmp_path / "data"), str(tmp_path))
    # The output has two of the test tree's three brackets and no others: precision 1, recall 2/3, so F1 is 80.
    assert (results.f1, scores["dev"][0].score) == (pytest.approx(80), 100)
    assert results.signatures[1].startswith("test: evalb:COLLINS.prm|sentences:1|")


def test_a_missing_checkpoint_or_test_set_is_reported(make_folder: MakeFolder, data: str, tmp_path: Path) -> None:
    folder = make_folder()
    with pytest.raises(UserError, match="no checkpoint yet"):
        evaluate(folder, data, str(tmp_path))
    folder.problem = registry.problem("text_files", {"train": "nowhere.en,nowhere.de", "dev": "no.en,no.de"})
    save(folder, 5)
    with pytest.raises(UserError, match=f"{tmp_path}/none: no test set of problem text_files; write its"):
        evaluate(folder, str(tmp_path / "none"), str(tmp_path))
    with ModelFolder.locked(folder.path), pytest.raises(UserError, match="another t2t-trainer or t2t-reproduce"):
        evaluate(folder, data, str(tmp_path))
    assert not (folder.path / "results.json").exists()
