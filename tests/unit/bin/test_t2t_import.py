"""Tests t2t-import: what it finds by itself, what it is told, and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import programs
from golden_model import HPARAMS
from t2t_folders import VOCABULARY, weights, write_t2t_checkpoint, write_t2t_model, write_vocabulary
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator
from t2t_repro.tensor2tensor.variables import by_our_names

pytestmark = pytest.mark.usefixtures("no_graphs")

PORTED = """
from t2t_repro import registry
from t2t_repro.problems import text_problems

@registry.register_problem
class Ported(text_problems.Text2TextProblem):
    target_space_id = 8
"""
"""A problem of tensor2tensor in the user's code."""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder of tensor2tensor, "old" in the current folder."""
    monkeypatch.chdir(tmp_path)
    return write_t2t_model(tmp_path / "old")


def imports(*arguments: str) -> tuple[str, ModelFolder]:
    """Runs t2t-import without an error; returns what it prints, and the new model folder."""
    text = programs.succeed("import", *arguments, "--output_dir=new").stderr
    return text, ModelFolder(Path("new").absolute())


def test_a_folder_is_imported_by_itself(old: Path) -> None:
    # From an import that was killed.
    Path("new/.unfinished/model.ckpt-20.index").mkdir(parents=True)
    text, folder = imports("--t2t_model=old")
    assert not list(folder.path.glob(".*"))
    assert "step 20" in text and "post-norm" in text and "not used: step counters (1)" in text
    assert folder.hparams.num_heads == HPARAMS.num_heads and folder.vocabulary.size == 100
    model = folder.model(folder.checkpoint())
    expected = by_our_names(weights(), "")
    for variable in model.trainable_variables:
        np.testing.assert_array_equal(variable, expected[variable.path])
    assert folder.checkpoint().endswith("new/model.ckpt-20")
    assert folder.problem.name == "t2t_text" and folder.problem.decode_hparams.extra_length == 100
    assert len(Translator.from_dir(str(folder.path)).translate(["a b", ""])) == 2
    assert "--output_dir=new: has files; give a new folder" in programs.error(
        "import", "--t2t_model=old", "--output_dir=new"
    )


def test_every_part_can_be_named(old: Path) -> None:
    (old / "hparams.json").rename("h.json")
    # The contents do not say the kind.
    Path("v.txt").write_text((old / VOCABULARY).read_text().replace("'", ""))
    (old / VOCABULARY).unlink()
    named = ["--checkpoint=old/model.ckpt-20", "--hparams_json=h.json", "--problem=numbers_ende"]
    _, folder = imports(*named, "--vocab=v.txt", "--vocab_type=subwords")
    assert folder.problem.name == "numbers_ende"


def test_a_setting_that_is_not_given_is_that_of_the_registered_problem(old: Path) -> None:
    Path("user").mkdir()
    Path("user/__init__.py").write_text(PORTED)
    text, folder = imports(
        "--t2t_model=old", "--problem=ported_rev", "--t2t_usr_dir=user", "--languages=de,fr"
    )
    assert text.endswith("try t2t-decoder --output_dir=new --t2t_usr_dir=user\n")
    problem = folder.problem
    assert (problem.name, problem.languages, problem.target_space_id) == (
        "t2t_text",
        ("de", "fr"),
        8,
    )


def test_separate_vocabularies(old: Path) -> None:
    other = {name: value for name, value in weights().items() if "symbol_modality" not in name}
    for size, name in ((90, "input_emb"), (100, "target_emb"), (100, "softmax")):
        other[f"transformer/symbol_modality_{size}_32/{name}/weights_0"] = np.ones(
            (size, 32), np.float32
        )
    write_t2t_checkpoint(old, other, 30)
    write_vocabulary(old / "vocab.translate_toy.90.subwords.en", 90)
    lines = (old / "vocab.translate_toy.90.subwords.en").read_text().splitlines(keepends=True)
    # So that the words of the test have other ids than in the other vocabulary.
    lines[20:30] = lines[29:19:-1]
    (old / "vocab.translate_toy.90.subwords.en").write_text("".join(lines))
    text, folder = imports("--t2t_model=old", "--languages=en,de", "--target_space_id=8")
    sources = "90 subwords (old/vocab.translate_toy.90.subwords.en)"
    assert f"vocabulary: {sources} to 100 subwords (old/{VOCABULARY})\n" in text
    assert (folder.vocabulary.sources.size, folder.vocabulary.size) == (90, 100)
    assert folder.problem.languages == ("en", "de") and folder.problem.target_space_id == 8
    names = [path.name for path in folder.description_files()[:2]]
    assert names == ["vocab.t2t_text.100.subwords", "vocab.t2t_text.90.source.subwords"]
    translator = Translator.from_dir(str(folder.path))
    [translation] = translator.translate(["g h i"], beam_size=1)
    assert folder.vocabulary.encode(["g h i"])[0] != folder.vocabulary.sources.encode(["g h i"])[0]
    assert list(translation.source_ids) == folder.vocabulary.sources.encode(["g h i"])[0]
    assert len(translator.score(["a"], ["b"])[0].token_scores) == len(
        folder.vocabulary.encode(["b"])[0]
    )


def test_an_average_takes_files_from_the_folders_above_before_the_current_one(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    average = old.parent / "average"
    work = old.parent / "work"
    for folder in (average, old.parent / "data", work / "data", work / "old"):
        folder.mkdir(parents=True)
    for factor, step in ((9, 7), (1, 40), (3, 50)):
        write_t2t_checkpoint(
            average, {name: factor * value for name, value in weights().items()}, step
        )
    (average / "flags.txt").write_text(
        "--output_dir=old\n--data_dir=data\n--problem=translate_toy\n"
    )
    (old.parent / "data" / "vocab.other.100.subwords").write_text("no vocabulary")
    (work / "data" / VOCABULARY).write_text((old / VOCABULARY).read_text())
    (old / VOCABULARY).rename(old.parent / "data" / VOCABULARY)
    (work / "old" / "hparams.json").write_text("{}")
    monkeypatch.chdir(work)
    text, folder = imports(f"--t2t_model={average}", "--average_last=2")
    model = folder.model(folder.checkpoint())
    assert folder.checkpoint().endswith("model.ckpt-50")
    np.testing.assert_allclose(
        model.embedding.table, 2 * by_our_names(weights(), "")["transformer/embedding/table"], 1e-6
    )
    assert f"hparams: {old}/hparams.json; its learning_rate_schedule=constant*" in text
    assert f"vocabulary: 100 subwords ({old.parent}/data/{VOCABULARY})\n" in text


@pytest.mark.parametrize(
    ("problem", "report", "languages"),
    [
        ("translate_encs_wmt32k_rev", "t2t_text, cs to en", ("cs", "en")),
        ("summarize_cnn", "t2t_text", ("", "")),
        ("translate_ende_wmt32k_rev", "translate_ende_wmt32k_rev, de to en", ("en", "de")),
    ],
)
def test_the_languages_follow_from_the_problem(
    problem: str, report: str, languages: Any, old: Path
) -> None:
    text, folder = imports("--t2t_model=old", f"--problem={problem}", f"--vocab=old/{VOCABULARY}")
    assert folder.problem.languages == languages
    assert f"problem: {report}\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--t2t_model or --checkpoint: give one"),
        ("--t2t_model=nowhere", "--t2t_model=nowhere: no such folder"),
        (
            "--t2t_model=averages",
            "has 0 checkpoints model.ckpt-*, not 1; give --average_last=1 or --checkpoint=averag",
        ),
        (
            "--t2t_model=old --average_last=3",
            "has 1 checkpoint model.ckpt-*, not 3; give --average_last=1",
        ),
        (
            "--t2t_model=old --data_dir=D",
            "--data_dir does not exist here: t2t-import looks for the vocabulary in",
        ),
        (
            "--checkpoint=old/model.ckpt-99",
            "--checkpoint=old/model.ckpt-99: no old/model.ckpt-99.index",
        ),
        (
            "--checkpoint=averages/averaged.ckpt-0",
            "averages/averaged.ckpt-0: this checkpoint is damaged",
        ),
        ("--t2t_model=old --hparams_json=list.json", "list.json: not a JSON object"),
        (
            "--t2t_model=old --hparams_json=wide.json",
            "wide.json: hidden_size=64, but the checkpoint has hidden_size=32",
        ),
        ("--checkpoint=alone/model.ckpt-20", "alone: no hparams.json there"),
        (
            "--checkpoint=alone/model.ckpt-20 --hparams_json=old/hparams.json",
            "no vocabularies have the 100 entries of",
        ),
        ("--t2t_model=old --languages=german", "--languages=german: name two languages"),
        (
            "--t2t_model=old --vocab=small.subwords",
            "small.subwords: has 90 entries, but the source embedding of",
        ),
    ],
)
def test_a_wrong_request_is_refused(old: Path, arguments: str, message: str) -> None:
    write_vocabulary(old.parent / "small.subwords", 90)
    for name, contents in (("list.json", "[]"), ("wide.json", '{"hidden_size": 64}')):
        Path(name).write_text(contents)
    for name in ("averages", "alone"):
        Path(name).mkdir()
    Path("averages/averaged.ckpt-0.index").touch()
    for path in old.glob("model.ckpt*"):
        (old.parent / "alone" / path.name).symlink_to(path)
    assert message in programs.error("import", *arguments.split(), "--output_dir=new")
    assert not Path("new").exists()


def test_other_programs_say_that_an_old_model_must_be_imported(old: Path) -> None:
    message = programs.error("decoder", f"--output_dir={old}")
    assert f"if tensor2tensor trained the model, t2t-import --t2t_model={old}" in message
