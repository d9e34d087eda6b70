"""Tests that a model folder is created once, refuses a different training run, and returns the trained model."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from models import weights_of, write_checkpoint
from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import MAY_DIFFER, ModelFolder, Origin, hparams_fingerprint, open_folders
from t2t_repro.checkpoints.reader import step_of
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import to_json
from t2t_repro.hparam import HParams
from t2t_repro.model_hparams import MODEL_HPARAMS
from t2t_repro.models.transformer import Transformer
from user_errors import user_error


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
    resumed = ModelFolder.create(folder.path, longer, tiny_vocabulary, folder.origin)
    assert resumed.hparams == longer
    assert ModelFolder(folder.path).hparams == tiny_hparams  # until the run has restored a checkpoint
    resumed.save_description()
    assert ModelFolder(folder.path).hparams == longer
    assert step_of(resumed.checkpoint()) == 5


@pytest.mark.parametrize("place", ["", "averaged", "best"])
def test_a_folder_is_overwritten_only_if_it_has_no_checkpoint(
    folder: ModelFolder, tiny_hparams: HParams, other_vocabulary: Vocabulary, place: str
) -> None:
    changed = replace(tiny_hparams, hidden_size=2 * tiny_hparams.hidden_size)
    created = ModelFolder.create(folder.path, changed, other_vocabulary, folder.origin)
    assert (created.hparams, created.vocabulary.model) == (changed, other_vocabulary.model)
    write(created, 5, place)
    user_error(ModelFolder.create, folder.path, tiny_hparams, other_vocabulary, folder.origin)


def test_only_one_training_locks_a_folder(tmp_path: Path) -> None:
    for _ in range(2):
        with ModelFolder.locked(tmp_path / "new" / "model"):
            with pytest.raises(
                UserError, match="another t2t-trainer or t2t-reproduce is at work there; wait for its end, or give"
            ):
                ModelFolder.locked(tmp_path / "new" / "model").__enter__()
            with ModelFolder.locked(tmp_path / "another"):
                pass


def test_discard_deletes_only_what_create_has_added(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    origin = Origin("numbers_ende", {}, "vocab.model", "0123456789ab", 1)
    with ModelFolder.locked(tmp_path / "model"):
        ModelFolder.create(tmp_path / "model", tiny_hparams, tiny_vocabulary, origin).discard()
    assert list(tmp_path.iterdir()) == []
    data = tmp_path / "data"  # a folder with data, which the user passes as --output_dir
    tiny_vocabulary.save(data / "vocab.model")
    ModelFolder.create(data, tiny_hparams, tiny_vocabulary, origin).discard()
    assert [path.name for path in data.iterdir()] == ["vocab.model"]


def test_a_folder_that_cannot_be_created_keeps_no_new_file(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    origin = Origin("numbers_ende", {}, "vocab.model", "0123456789ab", 1)
    (tmp_path / "model" / "problem.json").mkdir(parents=True)  # cannot be replaced by a file
    message = user_error(ModelFolder.create, tmp_path / "model", tiny_hparams, tiny_vocabulary, origin)
    assert "problem.json: cannot be written" in message
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["problem.json"]
    (tmp_path / "file").touch()
    for name, reason in (("file", "not a folder"), ("file/model", "cannot be written (Not a directory)")):
        message = user_error(ModelFolder.locked(tmp_path / name).__enter__)
        assert message == f"{tmp_path / name}: {reason}; choose another --output_dir"


OF_OTHER_MODELS = set().union(*MODEL_HPARAMS.values()) - {*MODEL_HPARAMS["transformer"]}
NOT_ALONE = ("self_attention_type", "max_relative_position", "shared_embedding", *OF_OTHER_MODELS)
"""Hparams whose other values also need another value of another hparam."""


def test_another_training_is_refused(
    folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary, other_vocabulary: Vocabulary
) -> None:
    def attempt(hparams: HParams = tiny_hparams, vocabulary: Vocabulary = tiny_vocabulary, **origin: Any) -> str:
        return user_error(ModelFolder.create, folder.path, hparams, vocabulary, replace(folder.origin, **origin))

    write(folder, 5)
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    assert "'numbers_ende', not 'numbers_ende_rev'" in attempt(problem="numbers_ende_rev")
    assert "0123456789ab" in (message := attempt(data_fingerprint="ba9876543210")) and "ba9876543210" in message
    assert "--random_seed=1, not 0" in attempt(random_seed=0)
    message = attempt(vocabulary=other_vocabulary)
    assert tiny_vocabulary.fingerprint in message and other_vocabulary.fingerprint in message
    for field in dataclasses.fields(HParams):
        value = getattr(tiny_hparams, field.name)
        if field.name in (*MAY_DIFFER, *NOT_ALONE):
            continue
        if isinstance(value, bool):
            changed_value: Any = not value
        elif isinstance(value, str):
            changed_value = {"model": "mine", "pos": "emb", "learning_rate_schedule": "constant"}[field.name]
        else:
            changed_value = value * 2 or 16 if isinstance(value, int) else value / 2 or 0.5
        changed = replace(tiny_hparams, **{field.name: changed_value})
        message = attempt(changed)
        assert f"{field.name}={value} (" in message and f"not {field.name}={changed_value} (" in message
        for hparams in (tiny_hparams, changed):
            assert hparams_fingerprint(hparams) in message
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


@pytest.mark.parametrize("name", ["hparams.json", "problem.json", "vocab.numbers_ende.512.model"])
@pytest.mark.parametrize("damage", ["missing", "cut", "not UTF-8"])
def test_a_missing_or_damaged_file_is_named(folder: ModelFolder, name: str, damage: str) -> None:
    path = folder.path / name
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:20])
    else:
        content = bytearray(path.read_bytes())
        content[:2] = b"\xff\xff"
        path.write_bytes(content)
    assert name in user_error(ModelFolder, folder.path)


def test_a_path_that_is_not_a_model_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        assert "not a model folder" in user_error(ModelFolder, path)


def test_the_latest_checkpoint_is_the_default(folder: ModelFolder) -> None:
    assert folder.checkpoints() == []
    assert "no checkpoint yet" in user_error(folder.checkpoint)
    for step in (100, 20):
        write(folder, step)
    assert [step_of(path) for path in folder.checkpoints()] == [20, 100]
    assert step_of(folder.checkpoint()) == 100


def test_the_average_is_the_default_if_it_is_as_new_as_the_latest(folder: ModelFolder) -> None:
    (folder.path / "averaged").mkdir()
    write(folder, 20, "averaged")
    assert folder.checkpoint() == str(folder.path / "averaged" / "model.ckpt-20")
    write(folder, 100)
    assert folder.checkpoint() == str(folder.path / "model.ckpt-100")
    write(folder, 100, "averaged")
    assert folder.checkpoint() == str(folder.path / "averaged" / "model.ckpt-100")


def test_the_users_checkpoint_is_used(folder: ModelFolder) -> None:
    write(folder, 3)
    write(folder, 4)
    path = str(folder.path / "model.ckpt-3")
    assert folder.checkpoint(path) == path
    for wrong_path in (f"{path}.index", str(folder.path / "model.ckpt-9"), str(folder.path.parent)):
        assert wrong_path in user_error(folder.checkpoint, wrong_path)


def test_a_folder_stands_for_its_checkpoint(folder: ModelFolder) -> None:
    for step, place in ((4, ""), (3, "best")):
        (folder.path / place).mkdir(exist_ok=True)
        write(folder, step, place)
    best = folder.path / "best"
    assert folder.checkpoint(str(best)) == str(best / "model.ckpt-3")
    assert folder.checkpoint(f"{best}/") == str(best / "model.ckpt-3")
    assert open_folders(str(folder.path), str(best))[1] == [str(best / "model.ckpt-3")]
    assert folder.checkpoint(str(folder.path)) == str(folder.path / "model.ckpt-4")


def test_the_advice_to_warm_start_is_given_only_if_the_weights_fit(
    folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary, other_vocabulary: Vocabulary
) -> None:
    def advice(hparams: HParams, vocabulary: Vocabulary = tiny_vocabulary, **origin: Any) -> str:
        return user_error(folder.refuse_other, hparams, replace(folder.origin, **origin), vocabulary).partition("; ")[2]

    def shapes(hparams: HParams) -> dict[str, Any]:
        variables = Transformer(hparams, tiny_vocabulary.size).trainable_variables
        return {variable.path: variable.shape for variable in variables}

    fits = "give another --output_dir, with --warm_start_from to begin with this model's weights"
    does_not_fit = "give another --output_dir (its weights have other names or shapes, so they do not fit)"
    same_shapes = shapes(tiny_hparams)
    for field in dataclasses.fields(HParams):
        value = getattr(tiny_hparams, field.name)
        if field.name in NOT_ALONE:
            continue
        if isinstance(value, bool):
            changed = replace(tiny_hparams, **{field.name: not value})
        elif isinstance(value, int) and field.name not in MAY_DIFFER:
            changed = replace(tiny_hparams, **{field.name: value * 2 or 32})
        elif field.name == "pos":
            changed = replace(tiny_hparams, pos="emb")
        else:  # rates and schedules do not change how a model is built
            continue
        assert advice(changed) == (fits if shapes(changed) == same_shapes else does_not_fit)
    assert advice(replace(tiny_hparams, label_smoothing=0.2, learning_rate_schedule="constant")) == fits
    relative = replace(tiny_hparams, self_attention_type="dot_product_relative", max_relative_position=3)
    assert advice(relative) == does_not_fit
    assert advice(replace(tiny_hparams, model="mine")) == does_not_fit
    assert advice(replace(tiny_hparams, hidden_size=32), random_seed=7) == does_not_fit
    assert advice(tiny_hparams, random_seed=7) == fits
    assert f"--vocab_file={folder.path / folder.origin.vocabulary}" in advice(tiny_hparams, other_vocabulary)


@pytest.mark.parametrize(
    ("old", "new", "cure"),
    [
        ("/m", "/m/", ""),
        ("/m/", "/m", ""),
        ("", "", ""),
        ("/m", "", "trained with --warm_start_from=/m; give --warm_start_from=/m again, or"),
        ("/m", "/n", "trained with --warm_start_from=/m; give --warm_start_from=/m again, or"),
        ("", "/m", "trained without --warm_start_from; omit --warm_start_from, or give another --output_dir"),
    ],
)
def test_a_run_resumes_only_with_its_warm_start(
    folder: ModelFolder, tiny_vocabulary: Vocabulary, old: str, new: str, cure: str
) -> None:
    folder.origin = replace(folder.origin, warm_start_from=old)
    arguments = folder.hparams, replace(folder.origin, warm_start_from=new), tiny_vocabulary
    if cure:
        assert cure in user_error(folder.refuse_other, *arguments)
    else:
        folder.refuse_other(*arguments)


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


def test_loading_a_model_draws_no_random_weights(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, 3)
    monkeypatch.setattr(keras.initializers.VarianceScaling, "__call__", None)
    monkeypatch.setattr(keras.initializers.RandomNormal, "__call__", None)
    folder.model(folder.checkpoint())


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
    assert open_folders(f"{folder.path},{folder.path}", f"{chosen[0]},")[1] == [
        chosen[0],
        str(folder.path / "model.ckpt-4"),
    ]
    message = user_error(open_folders, f"{paths},{folder.path}/")
    assert f"{folder.path}/model.ckpt-4: is given twice; an ensemble needs different models" in message
    folders, checkpoints = open_folders(str(folder.path), chosen[0])
    assert ([opened.path for opened in folders], checkpoints) == ([folder.path], chosen[:1])


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


@pytest.mark.parametrize("problem", ["numbers_ende_rev", "text_files"])
def test_models_of_different_problems_or_directions_are_no_ensemble(folder: ModelFolder, problem: str) -> None:
    other = another_folder(folder, "other")
    for model_folder in (folder, other):
        write(model_folder, 3)
    assert len(open_folders(f"{folder.path},{other.path}")[0]) == 2
    settings = {"train": "a.en,a.de", "dev": "b.en,b.de"} if problem == "text_files" else {}
    (other.path / "problem.json").write_text(to_json(replace(other.origin, problem=problem, settings=settings)))
    message = user_error(open_folders, f"{folder.path},{other.path}")
    for part in (str(folder.path), str(other.path), "'numbers_ende'", repr(problem), "same problem and direction"):
        assert part in message


def test_imported_models_of_different_languages_are_no_ensemble(folder: ModelFolder) -> None:
    other = another_folder(folder, "other")
    for model_folder, languages in ((folder, "en,de"), (other, "de,en")):
        write(model_folder, 3)
        origin = replace(model_folder.origin, problem="t2t_text", settings={"languages": languages, "vocab_size": 90})
        (model_folder.path / "problem.json").write_text(to_json(origin))
    message = user_error(open_folders, f"{folder.path},{other.path}")
    assert f"{other.path}: translates de to en, but {folder.path} en to de" in message
    for languages in ("", "en,de"):  # unknown, or the same
        (other.path / "problem.json").write_text(to_json(replace(origin, settings={"languages": languages})))
        assert len(open_folders(f"{folder.path},{other.path}")[0]) == 2


def test_a_model_of_user_code_names_the_flag_that_imports_it(folder: ModelFolder) -> None:
    write(folder, 3)
    model = with_hparams(folder, model="mine")
    message = user_error(model.model, model.checkpoint())
    assert str(folder.path) in message and "model 'mine'" in message and "--t2t_usr_dir" in message
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
