"""Tests that a training run does not delete or overwrite the user's own files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from t2t_repro.checkpoints.checkpoint_files import delete_unfinished, keep_only, set_aside
from t2t_repro.checkpoints.model_folder import LOCK, ModelFolder, Origin
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.training.config import RunConfig
from t2t_repro.training.foreign_files import refuse_foreign_files
from t2t_repro.training.preparation import _refuse_to_overwrite
from user_errors import user_error

USER_FILES = [
    ".env.template", ".gitlab.settings", ".hparams.json.backup", ".checkpoint.ABCDEFGH", ".vocab.abcdefgh",
    "unfinished-thoughts", "unfinished-model.ckpt-draft", "model.ckpt-2.data-notes", "model.ckpt-2.txt",
    "model.ckpt-2x.data-00000-of-00001", "model.ckpt-x.data-00000-of-00001",
]  # fmt: skip
WRITTEN = ["hparams.json", "problem.json", "vocab.numbers_ende.512.model", "checkpoint", "metrics.jsonl"]
"""Names of the files that a training run writes to a new model folder, apart from checkpoints."""


@pytest.mark.parametrize("subfolder", ["", "best"])
def test_only_unfinished_files_with_names_of_this_project_are_deleted(subfolder: str, tmp_path: Path) -> None:
    place = tmp_path / subfolder
    place.mkdir(exist_ok=True)
    for name in [*USER_FILES, "model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001"]:
        (place / name).touch()
    for name in (".hparams.json.abcdefgh", ".vscode.settings", "model.ckpt-9.data-00000-of-00001"):
        (place / name).mkdir()
    kept = set(tmp_path.rglob("*"))
    for name in (*WRITTEN, "not_finite-7.tsv"):
        tempfile.mkstemp(prefix=f".{name}.", dir=place)  # as `whole_file` does
    (place / "unfinished-model.ckpt-2_temp").mkdir()
    unfinished = "unfinished-model.ckpt-2"
    for name in (f"{unfinished}.index", f"{unfinished}_temp/part", "model.ckpt-2.data-00000-of-00001"):
        (place / name).touch()
    assert len(set(tmp_path.rglob("*")) - kept) == 10
    delete_unfinished(tmp_path)
    assert set(tmp_path.rglob("*")) == kept


def test_only_the_files_of_a_checkpoint_are_deleted_or_renamed(tmp_path: Path) -> None:
    checkpoint_files = ("model.ckpt-2.index", "model.ckpt-2.data-00000-of-00002", "model.ckpt-2.data-00001-of-00002")
    for change in (lambda: keep_only(tmp_path, []), lambda: set_aside(str(tmp_path / "model.ckpt-2"))):
        for name in [*USER_FILES, *checkpoint_files]:
            (tmp_path / name).touch()
        change()
        names = {path.name for path in tmp_path.iterdir()}
        assert names >= set(USER_FILES) and not names & set(checkpoint_files)
    assert names == {*USER_FILES, *(f"damaged-{name}" for name in checkpoint_files)}


def refuse(folder: ModelFolder) -> None:
    """Raises UserError if a run with the hparams, vocabulary and data of `folder` must not start there."""
    refuse_foreign_files(folder.path, ModelFolder.first_files(folder.hparams, folder.vocabulary, folder.origin))


@pytest.mark.parametrize("name", [*WRITTEN, "results.json", "report.md"])
def test_a_file_that_no_training_run_has_written_is_not_overwritten(name: str, folder: ModelFolder) -> None:
    for file in folder.path.iterdir():
        file.unlink()
    (folder.path / name).write_text('{"hidden_size": 512}')  # valid hparams, but not those of the run
    message = user_error(refuse, folder)
    assert message.startswith(f"{folder.path / name}: ") and "another --output_dir" in message
    assert [path.name for path in folder.path.iterdir()] == [name]


def test_a_folder_of_tensor2tensor_is_named_with_the_way_to_continue(folder: ModelFolder) -> None:
    (folder.path / "problem.json").unlink()
    (folder.path / "flags_t2t.txt").write_text("--model=transformer\n")
    message = user_error(refuse, folder)
    assert message.startswith(f"{folder.path}/flags_t2t.txt: tensor2tensor trained the model in this folder")
    assert f"t2t-import --t2t_model={folder.path}" in message and "--warm_start_from=M" in message


def test_a_folder_that_a_killed_run_was_creating_is_accepted(folder: ModelFolder) -> None:
    refuse(folder)
    for file in ("problem.json", "hparams.json", folder.origin.vocabulary):  # a run creates them in the reverse order
        (folder.path / file).unlink()
        refuse(folder)
    folder.path.rmdir()
    refuse(folder)


def test_another_vocabulary_is_overwritten_only_in_a_model_folder(folder: ModelFolder) -> None:
    folder.vocabulary = sentencepiece.train(["ein Hund", "eine Katze"], 290)
    refuse(folder)
    (folder.path / "problem.json").unlink()
    assert folder.origin.vocabulary in user_error(refuse, folder)


def test_a_run_that_cannot_begin_deletes_no_lock_file_of_the_user(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    for contents, expected in (("pid 7", [LOCK]), ("", [])):
        (tmp_path / LOCK).write_text(contents)
        with ModelFolder.locked(tmp_path):
            origin = Origin("numbers_ende", {}, "vocab.model", "0123456789ab", 1)
            ModelFolder.create(tmp_path, tiny_hparams, tiny_vocabulary, origin).discard()
        assert ([path.name for path in tmp_path.iterdir()] if tmp_path.exists() else []) == expected


def test_a_best_checkpoint_may_be_older_than_the_first_regular_one_only_if_these_are_saved_by_time(
    tmp_path: Path,
) -> None:
    (tmp_path / "best").mkdir()
    for name in ("model.ckpt-3.index", "model.ckpt-3.data-00000-of-00001"):
        (tmp_path / "best" / name).touch()
    _refuse_to_overwrite(tmp_path, RunConfig(save_checkpoints_secs=600))
    (tmp_path / "averaged").mkdir()
    (tmp_path / "averaged" / "model.ckpt-3.index").touch()
    advice = f"no checkpoint to resume from; to start again, delete {tmp_path}/averaged and {tmp_path}/best, or give"
    assert advice in user_error(_refuse_to_overwrite, tmp_path, RunConfig())
