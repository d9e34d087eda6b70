"""Tests that a model folder is created once, refuses a different training run, and returns the trained model."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from folders import contents
from models import weights_of, write_checkpoint
from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder, hparams_fingerprint, open_folders
from t2t_repro.checkpoints.reader import step_of
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import to_json
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer
from user_errors import user_error

SAME = ("train_steps", "local_eval_frequency", "num_last_checkpoints")
"""Hparams that may change when a run resumes."""


def write(folder: ModelFolder, step: int, place: str = "") -> Transformer:
    """Writes a checkpoint of a new model to the model folder or its subfolder `place`, and returns the new model."""
    model = Transformer(folder.hparams, folder.vocabulary.size)
    write_checkpoint(folder.path / place, step, weights_of(model), folder.vocabulary.fingerprint)
    return model


@pytest.fixture(scope="module")
def other_vocabulary() -> Vocabulary:
    return sentencepiece.train(["ein Hund", "eine Katze"], 290)


def test_a_folder_has_what_it_was_created_with(
    folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    opened = ModelFolder(folder.path)
    assert opened.hparams == tiny_hparams
    assert opened.origin == folder.origin
    assert opened.vocabulary.model == tiny_vocabulary.model
    assert opened.problem.name == "numbers_ende"
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"hparams.json", "problem.json", "vocab.numbers_ende.512.model"}


def test_the_same_training_may_resume_with_more_steps(
    folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    write(folder, 5)
    longer = replace(tiny_hparams, train_steps=tiny_hparams.train_steps + 1)
    resumed = ModelFolder.for_run(folder.path, longer, tiny_vocabulary, folder.origin)
    assert resumed.hparams == longer
    assert ModelFolder(folder.path).hparams == tiny_hparams  # until the run can take its first step
    resumed.save()
    assert ModelFolder(folder.path).hparams == longer
    assert step_of(resumed.checkpoint()) == 5


@pytest.mark.parametrize("place", ["", "averaged", "best"])
def test_a_folder_is_overwritten_only_if_it_has_no_checkpoint(
    folder: ModelFolder, tiny_hparams: HParams, other_vocabulary: Vocabulary, place: str
) -> None:
    (folder.path / "problem.json").unlink()  # a killed run has written only hparams.json
    changed = replace(tiny_hparams, hidden_size=2 * tiny_hparams.hidden_size)
    created = ModelFolder.create(folder.path, changed, other_vocabulary, folder.origin)
    assert (created.hparams, created.vocabulary.model) == (changed, other_vocabulary.model)
    write(created, 5, place)
    user_error(ModelFolder.create, folder.path, tiny_hparams, other_vocabulary, folder.origin)
    if place == "averaged":
        assert "only an averaged checkpoint" in user_error(
            ModelFolder.create, folder.path, changed, other_vocabulary, folder.origin
        )


@pytest.mark.parametrize("name", ["problem.json", "notes", "vocab.numbers_ende.512.model", "hparams.json", "m/x"])
def test_a_folder_with_files_of_others_is_refused(folder: ModelFolder, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    (other / name).parent.mkdir(parents=True)
    (other / name).write_text('{"hidden_size": 512, "layer_postprocess_sequence": "dan"}')  # like tensor2tensor's
    arguments = folder.hparams, folder.vocabulary, folder.origin
    assert "no hparams.json of t2t-trainer; give another" in user_error(ModelFolder.create, other, *arguments)
    assert list(contents(other)) == [name]
    (other / name).rename(tmp_path / ".lock")
    (other / "m").rmdir() if name == "m/x" else None
    (tmp_path / ".lock").rename(other / ".lock")
    assert ModelFolder.create(other, *arguments).hparams == folder.hparams


def test_only_one_training_locks_a_folder(tmp_path: Path) -> None:
    for _ in range(2):
        with ModelFolder.locked(tmp_path / "new" / "model"):
            message = user_error(ModelFolder.locked(tmp_path / "new" / "model").__enter__)
            assert "another t2t-trainer or t2t-reproduce is at work there" in message
            with ModelFolder.locked(tmp_path / "another"):
                pass


def test_another_training_is_refused(
    folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary, other_vocabulary: Vocabulary
) -> None:
    def attempt(hparams: HParams = tiny_hparams, vocabulary: Vocabulary = tiny_vocabulary, **origin: Any) -> str:
        return user_error(ModelFolder.create, folder.path, hparams, vocabulary, replace(folder.origin, **origin))

    write(folder, 5)
    before = contents(folder.path)
    for name, value in (
        ("problem", "numbers_ende_rev"), ("data_fingerprint", "ba9876543210"), ("random_seed", 0),
        ("precision", "tf32"), ("warm_start_from", "/m"),
    ):  # fmt: skip
        message = attempt(**{name: value})
        assert f"{getattr(folder.origin, name)!r}, not {value!r}; give" in message and "--warm_start_from" in message
    assert f"{tiny_vocabulary.fingerprint!r}, not {other_vocabulary.fingerprint!r}" in attempt(
        vocabulary=other_vocabulary
    )
    strings = {"pos": "emb", "learning_rate_schedule": "constant"}
    for field in dataclasses.fields(HParams):
        value: Any = getattr(tiny_hparams, field.name)
        if isinstance(value, str):
            other: Any = strings.get(field.name, value)
        elif isinstance(value, bool):
            other = not value
        else:
            other = value * 2 or 16 if isinstance(value, int) else value / 2 or 0.5
        try:
            changed = replace(tiny_hparams, **{field.name: other})
        except UserError:  # this value also needs another value of another hparam
            continue
        if other == value:
            continue
        assert (hparams_fingerprint(changed) == hparams_fingerprint(tiny_hparams)) == (field.name in SAME)
        if field.name not in SAME:
            assert f"trained with {field.name} {value!r}, not {other!r}; give" in attempt(changed)
    assert contents(folder.path) == before
    for source in ("/m", "/m/"):
        (folder.path / "problem.json").write_text(to_json(replace(folder.origin, warm_start_from="/m")))
        ModelFolder.create(folder.path, tiny_hparams, tiny_vocabulary, replace(folder.origin, warm_start_from=source))


@pytest.mark.parametrize("name", ["hparams.json", "problem.json", "vocab.numbers_ende.512.model"])
def test_a_missing_file_is_named(folder: ModelFolder, name: str) -> None:
    (folder.path / name).unlink()
    message = user_error(ModelFolder, folder.path)
    assert name in message and ("not a model folder" in message) == name.endswith(".json")
    for path in (folder.path.parent / "nowhere", folder.path / "vocab.numbers_ende.512.model"):
        assert "not a model folder" in user_error(ModelFolder, path)


def test_the_default_checkpoint_is_the_latest_or_an_average_as_new(folder: ModelFolder) -> None:
    assert "no checkpoint yet" in user_error(folder.checkpoint)
    assert f"--output_dir={shlex.quote(str(folder.path))} " in user_error(folder.checkpoint)
    (folder.path / "averaged").mkdir()
    for step, place in ((20, "averaged"), (100, ""), (30, ""), (100, "averaged")):
        write(folder, step, place)
        latest = max(step, 100 if step == 30 else 0)
        expected = folder.path / ("" if step == 30 else place) / f"model.ckpt-{latest}"
        assert folder.checkpoint() == str(expected)
    assert [step_of(path) for path in folder.checkpoints()] == [30, 100]


def test_the_users_checkpoint_or_that_of_the_users_folder_is_used(folder: ModelFolder) -> None:
    best = folder.path / "best"
    best.mkdir()
    for step, place in ((2, ""), (4, ""), (3, "best")):
        write(folder, step, place)
    for path, expected in (
        (folder.path / "model.ckpt-2", folder.path / "model.ckpt-2"),
        (best, best / "model.ckpt-3"),
        (f"{best}/", best / "model.ckpt-3"),
        (folder.path, folder.path / "model.ckpt-4"),
    ):
        assert folder.checkpoint(str(path)) == str(expected)
        assert open_folders(str(folder.path), str(path))[1] == [str(expected)]
    for wrong in (f"{folder.path}/model.ckpt-4.index", f"{folder.path}/model.ckpt-9", str(folder.path.parent)):
        assert wrong in user_error(folder.checkpoint, wrong)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "bfloat16"])
def test_the_model_has_the_weights_of_the_checkpoint(folder: ModelFolder, precision: str) -> None:
    written = write(folder, 3)
    devices.use_tf32(True)
    model = folder.model(folder.checkpoint(), precision)
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    assert model.dtype_policy.name == precision
    for expected, variable in zip(written.trainable_variables, model.trainable_variables, strict=True):
        assert variable.path == expected.path
        # In bfloat16, matrices and the inner bias are rounded to it. Layer norms and the outer bias are not.
        is_rounded = precision == "bfloat16" and "norm" not in variable.path and "bias2" not in variable.path
        assert variable.dtype == ("bfloat16" if is_rounded else "float32")
        value = tf.cast(expected.value, tf.bfloat16) if is_rounded else expected.value
        np.testing.assert_array_equal(variable.numpy(), value.numpy())


def test_a_swapped_vocabulary_is_refused(folder: ModelFolder, other_vocabulary: Vocabulary) -> None:
    write(folder, 3)
    fingerprint = folder.vocabulary.fingerprint
    other_vocabulary.save(folder.path / folder.origin.vocabulary)
    swapped = ModelFolder(folder.path)
    message = user_error(swapped.model, swapped.checkpoint())
    assert fingerprint in message and other_vocabulary.fingerprint in message and folder.origin.vocabulary in message


def with_hparams(folder: ModelFolder, **changes: Any) -> ModelFolder:
    """Writes hparams.json with changed hparams, and returns the model folder, opened again."""
    (folder.path / "hparams.json").write_text(to_json(replace(folder.hparams, **changes)))
    return ModelFolder(folder.path)


@pytest.mark.parametrize("changes", [{"filter_size": 20}, {"num_hidden_layers": 2}, {"norm_before": True}])
def test_hparams_that_need_more_or_fewer_weights_are_refused(folder: ModelFolder, changes: dict[str, Any]) -> None:
    for trained, changed in (({}, changes), (changes, {})):
        write(with_hparams(folder, **trained), 3)
        swapped = with_hparams(folder, **changed)
        assert "hparams.json" in user_error(swapped.model, swapped.checkpoint())


def test_a_checkpoint_of_another_program_is_refused(folder: ModelFolder) -> None:
    tf.train.Checkpoint(other=tf.Variable(1.0)).write(str(folder.path / "model.ckpt-1"))
    assert "model.ckpt-1" in user_error(folder.model, folder.checkpoint())


def another_folder(folder: ModelFolder, name: str, vocabulary: Vocabulary | None = None, **changes: Any) -> ModelFolder:
    """Returns a new model folder next to `folder`, with the same problem and changed hparams."""
    hparams = replace(folder.hparams, **changes)
    return ModelFolder.create(folder.path.parent / name, hparams, vocabulary or folder.vocabulary, folder.origin)


def test_several_folders_open_together_each_with_its_checkpoint(folder: ModelFolder) -> None:
    other = another_folder(folder, "other", filter_size=20)
    for step in (3, 4):
        write(folder, step)
    write(other, 9)
    (other.path / "averaged").mkdir()
    write(other, 9, "averaged")
    paths = f"{folder.path}, {other.path}"
    folders, checkpoints = open_folders(paths)
    assert [opened.path for opened in folders] == [folder.path, other.path]
    assert [opened.hparams.filter_size for opened in folders] == [folder.hparams.filter_size, 20]
    assert checkpoints == [str(folder.path / "model.ckpt-4"), str(other.path / "averaged" / "model.ckpt-9")]
    chosen = [str(folder.path / "model.ckpt-3"), str(other.path / "model.ckpt-9")]
    assert open_folders(paths, ", ".join(chosen))[1] == chosen
    # An empty path stands for the folder's default checkpoint.
    assert open_folders(paths, f"{chosen[0]},")[1] == [chosen[0], checkpoints[1]]


def test_folders_that_do_not_belong_together_are_refused(folder: ModelFolder, other_vocabulary: Vocabulary) -> None:
    other = another_folder(folder, "other", other_vocabulary)
    for model_folder in (folder, other):
        write(model_folder, 3)
    message = user_error(open_folders, f"{folder.path},{other.path}")
    for part in (str(folder.path), str(other.path), folder.vocabulary.fingerprint, other_vocabulary.fingerprint):
        assert part in message
    for checkpoints in ("a,b", "a,b,c"):
        message = user_error(open_folders, str(folder.path), checkpoints)
        assert "--checkpoint_path" in message and f"names {len(checkpoints.split(','))}, --output_dir 1" in message
    assert "names 1, --output_dir 2" in user_error(open_folders, f"{folder.path},{folder.path}", "a")
    for paths in ("", f"{folder.path},", f",{folder.path}"):
        assert f"--output_dir={paths}: the name of a folder is empty" in user_error(open_folders, paths)
    assert "nowhere" in user_error(open_folders, f"{folder.path},{folder.path.parent / 'nowhere'}")
    assert "model.ckpt-8" in user_error(
        open_folders, f"{folder.path},{folder.path}", f"{folder.path}/model.ckpt-3,{folder.path}/model.ckpt-8"
    )


@pytest.mark.parametrize(
    ("problems", "settings", "message"),
    [
        (("numbers_ende", "numbers_ende"), ({}, {}), ""),
        (("numbers_ende", "numbers_ende_rev"), ({}, {}), "with problem numbers_ende_rev, but"),
        (("t2t_text", "t2t_text"), ("en,de", "de,en"), "with direction de-en, but"),
        (("t2t_text", "t2t_text"), ("en,de", "en,de"), ""),
        (("t2t_text", "t2t_text"), ("en,de", ""), ""),
    ],
)
def test_models_of_different_problems_or_directions_are_no_ensemble(
    folder: ModelFolder, problems: tuple[str, str], settings: tuple[Any, Any], message: str
) -> None:
    other = another_folder(folder, "other")
    for model_folder, problem, values in zip((folder, other), problems, settings, strict=True):
        write(model_folder, 3)
        changes = values if isinstance(values, dict) else {"languages": values, "vocab_size": 90}
        origin = replace(model_folder.origin, problem=problem, settings=changes)
        (model_folder.path / "problem.json").write_text(to_json(origin))
    paths = f"{folder.path},{other.path}"
    if message:
        assert f"{other.path}: trained {message} {folder.path} with" in user_error(open_folders, paths)
    else:
        assert len(open_folders(paths)[0]) == 2


def test_a_model_of_user_code_names_the_flag_that_imports_it(folder: ModelFolder) -> None:
    write(folder, 3)
    message = user_error(with_hparams, folder, model="mine")
    assert str(folder.path) in message and "model 'mine'" in message and "--t2t_usr_dir" in message
    with_hparams(folder)
    (folder.path / "problem.json").write_text(to_json(replace(folder.origin, problem="my_corpus_rev")))
    message = user_error(ModelFolder, folder.path)
    assert str(folder.path) in message and "problem 'my_corpus_rev'" in message and "--t2t_usr_dir" in message


def test_a_diverged_checkpoint_is_refused(folder: ModelFolder) -> None:
    model = Transformer(folder.hparams, folder.vocabulary.size)
    kernel = model.trainable_variables[-1]
    kernel.assign(np.where(np.arange(kernel.shape[-1]) == 3, np.nan, kernel))
    write_checkpoint(folder.path, 1, weights_of(model), folder.vocabulary.fingerprint)
    checkpoint = folder.checkpoint()
    expected = f"{checkpoint}: training diverged, its weights are not numbers; use an earlier checkpoint"
    assert user_error(folder.model, checkpoint) == expected
