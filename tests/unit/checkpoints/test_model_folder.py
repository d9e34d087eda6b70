"""Tests that a model folder is created once, refuses a different training run, and returns the
trained model.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from folders import contents
from models import write_checkpoint
from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder, hparams_fingerprint, open_folders
from t2t_repro.checkpoints.reader import step_of
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import to_json
from t2t_repro.hparam import HParams
from t2t_repro.models.model import model_without_values
from user_errors import user_error

SAME = ("train_steps", "local_eval_frequency", "num_last_checkpoints")
"""Hparams that may change when a run resumes."""


@functools.cache
def random_weights(hparams: HParams, vocab_size: int) -> dict[str, tf.Variable]:
    """Returns random weights for the model of `hparams`, by name."""
    random = np.random.default_rng(0)
    variables = model_without_values(hparams, vocab_size).trainable_variables
    return {
        each.path: tf.Variable(random.normal(size=each.shape).astype(np.float32))
        for each in variables
    }


def write(
    folder: ModelFolder, step: int, place: str = "", **changes: tf.Variable
) -> dict[str, tf.Variable]:
    """Writes a checkpoint with random weights to the model folder or its subfolder; returns the
    weights, by name.
    """
    (folder.path / place).mkdir(exist_ok=True)
    weights = random_weights(folder.hparams, folder.vocabulary.size)
    write_checkpoint(folder.path / place, step, weights | changes, folder.vocabulary.fingerprint)
    return weights


@pytest.fixture(scope="module")
def other_vocabulary() -> Vocabulary:
    return sentencepiece.train(["ein Hund", "eine Katze"], 290)


def test_the_same_training_may_resume_with_more_steps(
    folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    assert set(contents(folder.path)) == {
        "hparams.json",
        "problem.json",
        "vocab.numbers_ende.512.model",
    }
    write(folder, 5)
    longer = replace(tiny_hparams, train_steps=tiny_hparams.train_steps + 1)
    resumed = ModelFolder.for_run(folder.path, longer, tiny_vocabulary, folder.origin)
    assert ModelFolder(folder.path).hparams == tiny_hparams  # until the run can take its first step
    resumed.save()
    opened = ModelFolder(folder.path)
    assert (opened.hparams, opened.origin, opened.vocabulary.model) == (
        longer,
        folder.origin,
        tiny_vocabulary.model,
    )
    assert opened.problem.name == "numbers_ende"


@pytest.mark.parametrize("place", ["averaged", "best"])
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
        arguments = folder.path, changed, other_vocabulary, folder.origin
        assert "only an averaged checkpoint" in user_error(ModelFolder.create, *arguments)


@pytest.mark.parametrize("name", ["notes", "hparams.json"])
def test_a_folder_with_files_of_others_is_refused(
    folder: ModelFolder, tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / name).write_text(
        '{"hidden_size": 512, "layer_postprocess_sequence": "dan"}'
    )  # like tensor2tensor's
    arguments = folder.hparams, folder.vocabulary, folder.origin
    assert "no hparams.json of t2t-trainer; give another" in user_error(
        ModelFolder.create, other, *arguments
    )
    assert list(contents(other)) == [name]
    (other / name).rename(other / ".hidden")
    assert ModelFolder.create(other, *arguments).hparams == folder.hparams


def test_only_one_training_locks_a_folder(tmp_path: Path) -> None:
    for _ in range(2):
        with ModelFolder.locked(tmp_path / "new"), ModelFolder.locked(tmp_path / "another"):
            assert "another t2t-trainer" in user_error(
                ModelFolder.locked(tmp_path / "new").__enter__
            )


def test_another_training_is_refused(
    folder: ModelFolder,
    tiny_hparams: HParams,
    tiny_vocabulary: Vocabulary,
    other_vocabulary: Vocabulary,
) -> None:
    def attempt(
        hparams: HParams = tiny_hparams, vocabulary: Vocabulary = tiny_vocabulary, **origin: Any
    ) -> str:
        return user_error(
            ModelFolder.create, folder.path, hparams, vocabulary, replace(folder.origin, **origin)
        )

    write(folder, 5)
    before = contents(folder.path)
    for name, value in (
        ("problem", "numbers_ende_rev"), ("data_fingerprint", "ba9876543210"), ("random_seed", 0),
        ("precision", "tf32"), ("warm_start_from", "/m"),
    ):  # fmt: skip
        message = attempt(**{name: value})
        assert (
            f"{getattr(folder.origin, name)!r}, not {value!r}; give" in message
            and "--warm_start_from" in message
        )
    assert tiny_vocabulary.fingerprint in attempt(vocabulary=other_vocabulary)
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
        assert (hparams_fingerprint(changed) == hparams_fingerprint(tiny_hparams)) == (
            field.name in SAME
        )
        if field.name not in SAME:
            assert f"trained with {field.name} {value!r}, not {other!r}; give" in attempt(changed)
    two = replace(tiny_hparams, label_smoothing=0.3, norm_epsilon=0.5, train_steps=7)
    cure = (
        f"norm_epsilon={tiny_hparams.norm_epsilon},label_smoothing={tiny_hparams.label_smoothing} "
        "again"
    )
    assert f"--hparams={cure}" in attempt(two)
    assert "--freeze" in attempt(replace(tiny_hparams, frozen="embedding,encoder"))
    assert contents(folder.path) == before


def test_the_default_checkpoint_is_the_latest_or_an_average_as_new(folder: ModelFolder) -> None:
    path = folder.path
    for step, place, expected in (
        (20, "averaged", "averaged/model.ckpt-20"),
        (100, "", "model.ckpt-100"),
        (30, "", "model.ckpt-100"),
        (100, "averaged", "averaged/model.ckpt-100"),
        (3, "best", "averaged/model.ckpt-100"),
    ):
        write(folder, step, place)
        assert folder.checkpoint() == str(path / expected)
    assert [step_of(checkpoint) for checkpoint in folder.checkpoints()] == [30, 100]
    best = "best/model.ckpt-3"
    for chosen, name in (
        (path / "model.ckpt-30", "model.ckpt-30"),
        (f"{path}/best/", best),
        ("best", best),
    ):
        assert folder.checkpoint(str(chosen)) == str(path / name)
        assert open_folders(str(path), str(chosen))[1] == [str(path / name)]
    for wrong in (f"{path}/model.ckpt-30.index", f"{path}/model.ckpt-9", str(path.parent)):
        assert wrong in user_error(folder.checkpoint, wrong)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "bfloat16"])
def test_the_model_has_the_weights_of_the_checkpoint(folder: ModelFolder, precision: str) -> None:
    written = write(folder, 3)
    devices.use_tf32(True)
    model = folder.model(folder.checkpoint(), precision)
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    assert written.keys() == {variable.path for variable in model.trainable_variables}
    for variable in model.trainable_variables:
        # In bfloat16, matrices and the inner bias are rounded to it. Layer norms and the outer bias
        # are not.
        is_rounded = (
            precision == "bfloat16" and "norm" not in variable.path and "bias2" not in variable.path
        )
        assert variable.dtype == ("bfloat16" if is_rounded else "float32")
        value = written[variable.path]
        np.testing.assert_array_equal(
            variable.numpy(), (tf.cast(value, tf.bfloat16) if is_rounded else value).numpy()
        )


def another_folder(
    folder: ModelFolder, name: str, vocabulary: Vocabulary | None = None, **changes: Any
) -> ModelFolder:
    """Returns a new model folder next to `folder`, with the same problem and changed hparams."""
    hparams = replace(folder.hparams, **changes)
    return ModelFolder.create(
        folder.path.parent / name, hparams, vocabulary or folder.vocabulary, folder.origin
    )


def test_several_folders_open_together_each_with_its_checkpoint(
    folder: ModelFolder, other_vocabulary: Vocabulary
) -> None:
    other = another_folder(folder, "other", filter_size=20)
    for step in (3, 4):
        write(folder, step)
    write(other, 9)
    write(other, 9, "averaged")
    paths = f"{folder.path}, {other.path}"
    folders, checkpoints = open_folders(paths)
    assert [opened.path for opened in folders] == [folder.path, other.path]
    assert [opened.hparams.filter_size for opened in folders] == [folder.hparams.filter_size, 20]
    assert checkpoints == [
        str(folder.path / "model.ckpt-4"),
        str(other.path / "averaged" / "model.ckpt-9"),
    ]
    chosen = [str(folder.path / "model.ckpt-3"), str(other.path / "model.ckpt-9")]
    assert open_folders(paths, ", ".join(chosen))[1] == chosen
    # An empty path stands for the folder's default checkpoint.
    assert open_folders(paths, f"{chosen[0]},")[1] == [chosen[0], checkpoints[1]]
    assert f"--output_dir={folder.path},: the name of a folder" in user_error(
        open_folders, f"{folder.path},"
    )
    other = another_folder(folder, "a,b", other_vocabulary)
    write(other, 3)
    assert [opened.path for opened in open_folders(str(other.path))[0]] == [other.path]
    other.path.rename(folder.path.parent / "ab")
    message = user_error(open_folders, f"{folder.path},{folder.path.parent}/ab")
    assert folder.vocabulary.fingerprint in message and other_vocabulary.fingerprint in message


def of_t2t(languages: str) -> dict[str, Any]:
    return {"problem": "t2t_text", "settings": {"languages": languages, "vocab_size": 90}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (({}, {"problem": "numbers_ende_rev"}), "with problem numbers_ende_rev, but"),
        ((of_t2t("en,de"), of_t2t("de,en")), "with direction de-en, but"),
        ((of_t2t("en,de"), of_t2t("")), ""),
    ],
)
def test_models_of_different_problems_or_directions_are_no_ensemble(
    folder: ModelFolder, changes: tuple[dict[str, Any], dict[str, Any]], message: str
) -> None:
    other = another_folder(folder, "other")
    for model_folder, change in zip((folder, other), changes, strict=True):
        write(model_folder, 3)
        (model_folder.path / "problem.json").write_text(
            to_json(replace(model_folder.origin, **change))
        )
    paths = f"{folder.path},{other.path}"
    if message:
        assert f"{other.path}: trained {message} {folder.path} with" in user_error(
            open_folders, paths
        )
    else:
        assert len(open_folders(paths)[0]) == 2


def diverged(folder: ModelFolder) -> None:
    name, weight = list(random_weights(folder.hparams, folder.vocabulary.size).items())[-1]
    write(
        folder, 4, **{name: tf.Variable(np.where(np.arange(weight.shape[-1]) == 3, np.nan, weight))}
    )


REFUSALS: list[tuple[Callable[[ModelFolder], object], str, tuple[str, ...]]] = [
    # what happens to the folder, the checkpoint to use, and words of the refusal
    (
        lambda folder: (folder.path / "problem.json").unlink(),
        "",
        ("no problem.json", "not a model folder"),
    ),
    (
        lambda folder: (folder.path / "hparams.json").unlink(),
        "",
        ("no hparams.json", "not a model folder"),
    ),
    (
        lambda folder: (folder.path / folder.origin.vocabulary).unlink(),
        "",
        ("vocab.numbers_ende.512.model",),
    ),
    (
        lambda folder: next(folder.path.glob("*.index")).unlink(),
        "",
        ("no checkpoint yet", "t2t-trainer"),
    ),
    (diverged, "", ("model.ckpt-4: training diverged", "use an earlier checkpoint")),
    (
        lambda folder: tf.train.Checkpoint(other=tf.Variable(1.0)).write(
            str(folder.path / "model.ckpt-4")
        ),
        "",
        ("model.ckpt-4",),
    ),
    (
        lambda folder: sentencepiece.train(["ein Hund"], 270).save(
            folder.path / folder.origin.vocabulary
        ),
        "",
        ("trained with other vocabulary than", "put that file back"),
    ),
    (
        lambda folder: (folder.path / "hparams.json").write_text(
            to_json(replace(folder.hparams, model="mine"))
        ),
        "",
        ("model 'mine'", "--t2t_usr_dir"),
    ),
    (
        lambda folder: (folder.path / "hparams.json").write_text(
            to_json(replace(folder.hparams, filter_size=20))
        ),
        "",
        ("weight ", "the model of the hparams needs"),
    ),
    (
        lambda folder: (folder.path / "problem.json").write_text(
            to_json(replace(folder.origin, problem="my_rev"))
        ),
        "",
        ("problem 'my_rev'", "--t2t_usr_dir"),
    ),
    (lambda folder: None, "a,b", ("--checkpoint_path names 2, --output_dir 1",)),
]


@pytest.mark.parametrize(("change", "checkpoint", "words"), REFUSALS)
def test_a_folder_that_does_not_fit_is_refused(
    folder: ModelFolder,
    change: Callable[[ModelFolder], object],
    checkpoint: str,
    words: tuple[str, ...],
) -> None:
    def load() -> None:
        [opened], [path] = open_folders(str(folder.path), checkpoint)
        opened.model(path)

    write(folder, 3)
    change(folder)
    message = user_error(load)
    assert all(word in message for word in words)
