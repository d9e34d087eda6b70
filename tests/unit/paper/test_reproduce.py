"""Tests that t2t-reproduce, after training, keeps finished work, redoes outdated work, and stores
its results.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from models import weights_of, write_checkpoint
from programs import LOOKUP, user_code_forgotten, write_lines
from t2t_repro import registry
from t2t_repro.checkpoints.averaging import averaged_count
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.checkpoints.reader import read_checkpoint
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding import Translator
from t2t_repro.errors import UserError
from t2t_repro.files.textfile import read_lines
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.metrics import bleu
from t2t_repro.metrics.score import PAPER_BLEU
from t2t_repro.models.model import make_model
from t2t_repro.paper.reproduce import averaged, evaluate
from t2t_repro.paper.results import Results, read_results
from t2t_repro.problem import Problem
from t2t_repro.problems.numbers import NumbersEnde
from t2t_repro.training.metrics_log import MetricsLog
from toys import Published

pytestmark = pytest.mark.usefixtures("no_graphs")

SOURCES = ["the cat sat", "", "a dog"]
REFERENCES = ["die Katze sass auf dem Dach", "leer", "ein Hund"]
QUICK = DecodeHParams(beam_size=1, extra_length=2)
MakeFolder = Callable[..., ModelFolder]


class Numbers(NumbersEnde):
    """The numbers problem, scored by BLEU."""

    scores = Problem.scores


class Apart(Published):
    """A problem whose dev split is one of its test sets."""

    dev_set = "second"


@pytest.fixture(scope="module", autouse=True)
def lookup() -> Iterator[None]:
    """Registers the model Lookup, which is built and decodes faster than a Transformer."""
    with user_code_forgotten():
        registry.import_usr_dir(LOOKUP[0].partition("=")[2])
        yield


def save(folder: ModelFolder, *steps: int) -> None:
    """Writes a checkpoint for each of `steps`, all with different weights."""
    for step in steps:
        keras.utils.set_random_seed(step)
        model = make_model(folder.hparams, folder.vocabulary.size)
        write_checkpoint(folder.path, step, weights_of(model), folder.vocabulary.fingerprint)


def write(data: Path, name: str, **sides: list[str]) -> None:
    """Writes the text files of a test set as t2t-datagen does."""
    data.mkdir(exist_ok=True)
    for suffix, lines in sides.items():
        write_lines(data / f"{name}.{suffix}", lines)


@pytest.fixture
def make_folder(tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> MakeFolder:
    """Returns a function that makes the model folder or, if it exists, opens it. It averages two
    checkpoints.
    """

    def make_folder(
        problem: Problem | None = None, name: str = "numbers_ende", last: int = 2
    ) -> ModelFolder:
        origin = Origin(name, {}, "vocab.model", "0123456789ab", 1)
        hparams = replace(tiny_hparams, num_last_checkpoints=last, model="lookup")
        folder = ModelFolder.create(tmp_path / "model", hparams, tiny_vocabulary, origin)
        folder.problem = problem or Numbers({}, name=name)
        return folder

    return make_folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Writes the text files of a dev split with three lines, and returns the files' folder."""
    write(tmp_path / "data", "numbers_ende.dev", inputs=SOURCES, targets=REFERENCES)
    return tmp_path / "data"


def decoded(folder: ModelFolder) -> dict[str, list[str]]:
    """Returns {file name without the fingerprint: lines} for all decoded files of a model folder."""  # noqa: E501
    files = (folder.path / "decoded").iterdir()
    return {
        re.sub(r"-[0-9a-f]{8}\.", ".", path.name): list(read_lines(str(path))) for path in files
    }


def test_test_sets_are_decoded_with_the_average_and_a_dev_set_beside_them_with_the_last_checkpoint(
    make_folder: MakeFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_folder(Apart())
    data = tmp_path / "data"
    save(folder, 5, 10, 15)
    log = MetricsLog(folder.path, 0)
    log.add(15, seconds=300.5, train_loss=2.0, learning_rate=0.1, hardware="Abacus", gpu_count=4)
    log.add(15, dev_loss=1.0, dev_perplexity=66.5)
    scores, results = evaluate(folder, str(data), str(tmp_path), QUICK)
    assert (
        "test set far is not written: far.tgz: no such file; download it" in capsys.readouterr().err
    )

    average = str(folder.path / "averaged/model.ckpt-15")
    last = str(folder.path / "model.ckpt-15")
    parts = [read_checkpoint(str(folder.path / f"model.ckpt-{step}")).weights for step in (10, 15)]
    for name, value in read_checkpoint(average).weights.items():
        np.testing.assert_allclose(value, (parts[0][name] + parts[1][name]) / 2, atol=1e-6)
    expected: dict[str, Any] = {}
    for test_set, checkpoint, file in (
        ("first_full", average, "first_full-15"),
        ("second", last, "second-15-last"),
    ):
        sources, references = (
            list(read_lines(str(data / f"toy.{test_set}.{side}"))) for side in ("en", "el")
        )
        outputs = Translator(folder.model(checkpoint), folder.vocabulary, QUICK).translate(sources)
        expected[f"{file}.txt"] = [output.text for output in outputs]
        assert scores[test_set.replace("_", "/")] == bleu.scores(
            expected[f"{file}.txt"], references, "el"
        )
    assert decoded(folder) == expected and all(map(any, expected.values()))

    [first, second] = [
        {score.label: score for score in scores[name]}[PAPER_BLEU]
        for name in ("first/full", "second")
    ]
    assert results == Results(
        steps=15,
        dev_perplexity=66.5,
        dev_bleu=second.score,
        bleu={"first/full": first.score},
        train_seconds=300.5,
        hardware="Abacus",
        gpu_count=4,
        signatures=[f"first/full: {first.signature}", f"second: {second.signature}"],
        search="beam_size=1,extra_length=2",
    )
    assert read_results(folder.path) == results


def test_finished_work_is_kept_as_long_as_it_fits(
    make_folder: MakeFolder, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It belongs to its weights, text and search, wherever the data is."""

    def count(data_dir: Path, search: DecodeHParams = QUICK) -> int:
        """Evaluates the model; returns how many files of outputs there are then."""
        evaluate(folder, str(data_dir), str(tmp_path), search)
        return len(list((folder.path / "decoded").iterdir()))

    folder = make_folder()
    save(folder, 5)
    assert count(data) == 1
    assert averaged_count(averaged(folder)) == 1
    assert decoded(folder).keys() == {"dev-5.txt"}
    assert (
        "averaging 1, not 2 checkpoints, because the folder has no more" in capsys.readouterr().err
    )
    save(folder, 3)  # the next average must include this checkpoint of an earlier step
    assert count(data) == 2 and averaged_count(averaged(folder)) == 2
    for path in (folder.path / "decoded").iterdir():
        write_lines(path, REFERENCES)
    times = {
        path: path.stat().st_mtime_ns
        for path in folder.path.rglob("*")
        if path.name != "results.json"
    }
    assert count(data) == 2
    moved = data.rename(tmp_path / "moved")
    for path in folder.path.glob("model.ckpt-3.*"):  # the average of this checkpoint stays valid
        times.pop(path.unlink() or path)
    assert count(moved, replace(QUICK, batch_size=9)) == 2  # the batch size changes no output
    assert {path: path.stat().st_mtime_ns for path in times} == times
    results = read_results(folder.path)
    assert results and results.dev_bleu == pytest.approx(100)

    save(folder, 3)
    for path in (folder.path / "averaged").glob("model.ckpt-*"):
        whole = path.read_bytes()
        path.write_bytes(whole[:100])
        assert count(moved) == 2 and path.read_bytes() == whole
    decoded_files = [*(folder.path / "decoded").iterdir()]
    for damaged in (b"", b"only a line\n", b"two\nlines\nand a ha", b"\xff\n\n\n"):
        for path in decoded_files:
            path.write_bytes(damaged)
        assert count(moved) == 2
        assert len({path.read_bytes() for path in decoded_files}) == 2  # one of them is in use
    folder = make_folder(last=1)
    assert count(moved) == 2  # the file of this average exists since the first evaluation
    assert averaged_count(averaged(folder)) == 1
    assert count(moved, replace(QUICK, alpha=0.0)) == 3
    write(tmp_path / "other", "numbers_ende.dev", inputs=SOURCES[:1], targets=REFERENCES[:1])
    assert count(tmp_path / "other") == 4  # a different text of the same name


def test_a_parsers_outputs_are_trees_and_its_score_is_the_test_sections_f1(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    folder = make_folder(registry.problem("wsj_parsing"), "wsj_parsing")
    save(folder, 5)
    flat = "(TOP (S (NP (NN cat)) (NN sat)))"
    whole = "(TOP (S (NP (NN cat)) (VP (VB sat))))"
    for name, gold in (("dev", flat), ("test", whole)):
        write(tmp_path / "data", f"wsj_parsing.{name}", words=["cat sat"], trees=[gold])
    scores, results = evaluate(folder, str(tmp_path / "data"), str(tmp_path), QUICK)
    for (tree,) in decoded(folder).values():
        assert tree.startswith("(TOP (") and tree.count("(") == tree.count(")")
        assert " cat)" in tree and " sat)" in tree
    # The untrained model's output has no brackets except TOP, so EVALB's F1 is NaN, which
    # results.json cannot hold.
    assert (results.bleu, results.f1, scores["test"][0].label) == ({}, None, "F1")
    assert read_results(folder.path) == results
    for path in (folder.path / "decoded").iterdir():
        path.write_text(f"{flat}\n")
    scores, results = evaluate(folder, str(tmp_path / "data"), str(tmp_path), QUICK)
    # The output has two of the test tree's three brackets and no others: precision 1, recall 2/3,
    # so F1 is 80.
    assert (results.f1, scores["dev"][0].score) == (pytest.approx(80), 100)
    assert results.signatures[1].startswith("test: evalb:COLLINS.prm|sentences:1|")


def test_a_missing_checkpoint_or_test_set_is_reported(
    make_folder: MakeFolder, data: Path, tmp_path: Path
) -> None:
    folder = make_folder()
    with pytest.raises(UserError, match="no checkpoint yet"):
        evaluate(folder, str(data), str(tmp_path), QUICK)
    folder.problem = registry.problem(
        "text_files", {"train": "nowhere.en,nowhere.de", "dev": "no.en,no.de"}
    )
    save(folder, 5)
    with pytest.raises(
        UserError, match=f"{tmp_path}/none: no test set of problem text_files; write its"
    ):
        evaluate(folder, str(tmp_path / "none"), str(tmp_path), QUICK)
    with (
        ModelFolder.locked(folder.path),
        pytest.raises(UserError, match="another t2t-trainer or t2t-reproduce"),
    ):
        evaluate(folder, str(data), str(tmp_path), QUICK)
    assert not (folder.path / "results.json").exists()
