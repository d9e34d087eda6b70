"""The model folder: made once, refused to another training, and its model given back with its weights."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.checkpoint_reader import read_checkpoint, step_of
from t2t_repro.data import vocabulary
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams, to_json
from t2t_repro.model_folder import MAY_DIFFER, ModelFolder, Origin, hparams_fingerprint, open_folders
from t2t_repro.models.transformer import Transformer


def write(folder: ModelFolder, step: int, under: str = "", **changes: Any) -> Transformer:
    """Writes a checkpoint as the training does; gives the model whose weights it holds."""
    model = Transformer(folder.hparams, folder.vocabulary.size)
    weights = {variable.path: variable.value for variable in model.trainable_variables}
    content = {
        "weights": {**weights, **changes.pop("weights", {})},
        "step": tf.Variable(step, dtype=tf.int64),
        "vocabulary_fingerprint": tf.Variable(folder.vocabulary.fingerprint),
        **changes,
    }
    tf.train.Checkpoint(**content).write(str(folder.path / under / f"model.ckpt-{step}"))
    return model


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(UserError) as error:
        call(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def other_vocabulary() -> Vocabulary:
    return vocabulary.train(["ein Hund", "eine Katze"], 290)


def test_what_was_put_in_comes_out(folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> None:
    found = ModelFolder(folder.path)
    assert found.hparams == tiny_hparams
    assert found.origin == folder.origin
    assert found.vocabulary.model == tiny_vocabulary.model
    assert found.problem.name == "numbers_ende"
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"hparams.json", "problem.json", "vocab.numbers_ende.512.model"}


def test_the_same_training_takes_it_up(folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> None:
    write(folder, 5)
    longer = replace(tiny_hparams, train_steps=tiny_hparams.train_steps + 1)
    again = ModelFolder.create(folder.path, longer, tiny_vocabulary, folder.origin)
    assert again.hparams == longer
    assert step_of(again.checkpoint()) == 5


@pytest.mark.parametrize("under", ["", "averaged", "best"])
def test_without_weights_it_is_made_anew(
    folder: ModelFolder, tiny_hparams: HParams, other_vocabulary: Vocabulary, under: str
) -> None:
    other = replace(tiny_hparams, hidden_size=2 * tiny_hparams.hidden_size)
    found = ModelFolder.create(folder.path, other, other_vocabulary, folder.origin)
    assert (found.hparams, found.vocabulary.model) == (other, other_vocabulary.model)
    write(found, 5, under)
    refused(ModelFolder.create, folder.path, tiny_hparams, other_vocabulary, folder.origin)


def test_one_training_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):
        with ModelFolder.locked(tmp_path / "new" / "model"):
            with pytest.raises(UserError, match="another t2t-trainer is at work there; wait for its end, or give"):
                ModelFolder.locked(tmp_path / "new" / "model").__enter__()
            with ModelFolder.locked(tmp_path / "another"):
                pass


def test_what_is_discarded_is_what_was_made(tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> None:
    origin = Origin("numbers_ende", {}, "vocab.model", "0123456789ab", 1)
    with ModelFolder.locked(tmp_path / "model"):
        ModelFolder.create(tmp_path / "model", tiny_hparams, tiny_vocabulary, origin).discard()
    assert list(tmp_path.iterdir()) == []
    data = tmp_path / "data"  # the user gave it as the model folder, too
    tiny_vocabulary.save(data / "vocab.model")
    ModelFolder.create(data, tiny_hparams, tiny_vocabulary, origin).discard()
    assert [path.name for path in data.iterdir()] == ["vocab.model"]


def test_another_training_is_refused(
    folder: ModelFolder, tiny_hparams: HParams, tiny_vocabulary: Vocabulary, other_vocabulary: Vocabulary
) -> None:
    def attempt(hparams: HParams = tiny_hparams, words: Vocabulary = tiny_vocabulary, **origin: str) -> str:
        return refused(ModelFolder.create, folder.path, hparams, words, replace(folder.origin, **origin))

    write(folder, 5)
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    assert "'numbers_ende', not 'numbers_ende_rev'" in attempt(problem="numbers_ende_rev")
    assert "0123456789ab" in (message := attempt(data_fingerprint="ba9876543210")) and "ba9876543210" in message
    message = attempt(words=other_vocabulary)
    assert tiny_vocabulary.fingerprint in message and other_vocabulary.fingerprint in message
    for field in dataclasses.fields(HParams):
        value = getattr(tiny_hparams, field.name)
        if field.name in MAY_DIFFER:
            continue
        if isinstance(value, bool):
            other: Any = not value
        elif isinstance(value, str):
            other = {"model": "mine", "pos": "emb", "learning_rate_schedule": "constant"}[field.name]
        else:
            other = value * 2 or 16 if isinstance(value, int) else value / 2 or 0.5
        changed = replace(tiny_hparams, **{field.name: other})
        message = attempt(changed)
        assert f"{field.name}={value} (" in message and f"not {field.name}={other} (" in message
        for hparams in (tiny_hparams, changed):
            assert hparams_fingerprint(hparams) in message
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


@pytest.mark.parametrize("name", ["hparams.json", "problem.json", "vocab.numbers_ende.512.model"])
@pytest.mark.parametrize("damage", ["missing", "cut", "no UTF-8"])
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
    assert name in refused(ModelFolder, folder.path)


def test_no_model_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        assert "no model folder" in refused(ModelFolder, path)


def test_no_checkpoint_yet(folder: ModelFolder) -> None:
    assert folder.checkpoints() == []
    assert "no checkpoint yet" in refused(folder.checkpoint)


def test_checkpoints_are_in_the_order_of_their_steps(folder: ModelFolder) -> None:
    for step in (100, 20, 3):
        write(folder, step)
    for stranger in ("model.ckpt-7_temp.index", "model.ckpt-best.index", "other.ckpt-9.index", "model.ckpt-8.data"):
        (folder.path / stranger).touch()
    assert [step_of(path) for path in folder.checkpoints()] == [3, 20, 100]
    assert step_of(folder.checkpoint()) == 100


@pytest.mark.parametrize(("averaged", "chosen"), [(20, "model.ckpt-100"), (100, "averaged/model.ckpt-100")])
def test_the_average_is_preferred_until_training_goes_on(folder: ModelFolder, averaged: int, chosen: str) -> None:
    (folder.path / "averaged").mkdir()
    write(folder, 100)
    write(folder, averaged, "averaged")
    assert folder.checkpoint() == str(folder.path / chosen)


def test_an_average_alone_will_do(folder: ModelFolder) -> None:
    (folder.path / "averaged").mkdir()
    write(folder, 7, "averaged")
    assert folder.checkpoint() == str(folder.path / "averaged" / "model.ckpt-7")


def test_a_given_checkpoint_is_taken(folder: ModelFolder) -> None:
    write(folder, 3)
    write(folder, 4)
    given = str(folder.path / "model.ckpt-3")
    assert folder.checkpoint(given) == given
    for wrong in (f"{given}.index", str(folder.path / "model.ckpt-9"), str(folder.path)):
        assert wrong in refused(folder.checkpoint, wrong)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_the_model_comes_with_its_weights(folder: ModelFolder, precision: str) -> None:
    before = write(folder, 3)
    after = folder.model(folder.checkpoint(), precision)
    assert after.dtype_policy.name == precision
    for one, other in zip(before.trainable_variables, after.trainable_variables, strict=True):
        assert one.path == other.path
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_names_survive_the_checkpoint(folder: ModelFolder) -> None:
    names = ["a/b.c", "a.b/c", "a_b", "a.S/b", "über/ä"]
    write(folder, 3, weights={name: tf.Variable(float(number)) for number, name in enumerate(names)})
    weights = read_checkpoint(folder.checkpoint()).weights
    assert [float(weights[name]) for name in names] == [0, 1, 2, 3, 4]


def test_a_swapped_vocabulary_is_refused(folder: ModelFolder, other_vocabulary: Vocabulary) -> None:
    write(folder, 3)
    right = folder.vocabulary.fingerprint
    other_vocabulary.save(folder.path / folder.origin.vocabulary)
    swapped = ModelFolder(folder.path)
    message = refused(swapped.model, swapped.checkpoint())
    assert right in message and other_vocabulary.fingerprint in message and folder.origin.vocabulary in message


def rewrite(folder: ModelFolder, **changes: Any) -> ModelFolder:
    """Puts other hparams into the folder."""
    (folder.path / "hparams.json").write_text(to_json(replace(folder.hparams, **changes)))
    return ModelFolder(folder.path)


@pytest.mark.parametrize("changes", [{"filter_size": 20}, {"num_hidden_layers": 2}, {"norm_before": True}])
def test_hparams_that_need_other_weights_are_refused(folder: ModelFolder, changes: dict[str, Any]) -> None:
    write(folder, 3)
    swapped = rewrite(folder, **changes)
    assert "hparams.json" in refused(swapped.model, swapped.checkpoint())


@pytest.mark.parametrize("changes", [{"num_hidden_layers": 2}, {"norm_before": True}])
def test_hparams_that_leave_weights_unused_are_refused(folder: ModelFolder, changes: dict[str, Any]) -> None:
    write(rewrite(folder, **changes), 3)
    swapped = rewrite(folder)
    assert "hparams.json" in refused(swapped.model, swapped.checkpoint())


def test_a_missing_checkpoint(folder: ModelFolder) -> None:
    assert "missing or damaged" in refused(read_checkpoint, str(folder.path / "model.ckpt-1"))


def test_another_programs_checkpoint(folder: ModelFolder) -> None:
    tf.train.Checkpoint(other=tf.Variable(1.0)).write(str(folder.path / "model.ckpt-1"))
    assert "model.ckpt-1" in refused(folder.model, folder.checkpoint())


def another(folder: ModelFolder, name: str, words: Vocabulary | None = None, **changes: Any) -> ModelFolder:
    """A folder beside the first, of the same problem."""
    hparams = replace(folder.hparams, **changes)
    return ModelFolder.create(folder.path.parent / name, hparams, words or folder.vocabulary, folder.origin)


def test_several_folders_open_together_each_with_its_checkpoint(folder: ModelFolder) -> None:
    other = another(folder, "other", filter_size=20)
    for step in (3, 4):
        write(folder, step)
    write(other, 9)
    (other.path / "averaged").mkdir()
    write(other, 9, "averaged")
    paths = f"{folder.path}, {other.path}"
    folders, checkpoints = open_folders(paths)
    assert [each.path for each in folders] == [folder.path, other.path]
    assert [each.hparams.filter_size for each in folders] == [folder.hparams.filter_size, 20]
    assert checkpoints == [str(folder.path / "model.ckpt-4"), str(other.path / "averaged" / "model.ckpt-9")]
    given = [str(folder.path / "model.ckpt-3"), str(other.path / "model.ckpt-9")]
    assert open_folders(paths, ", ".join(given))[1] == given
    # An empty one of several is that of its folder.
    assert open_folders(paths, f"{given[0]},")[1] == [given[0], checkpoints[1]]
    folders, checkpoints = open_folders(str(folder.path), given[0])
    assert ([each.path for each in folders], checkpoints) == ([folder.path], given[:1])


def test_folders_that_do_not_belong_together_are_refused(folder: ModelFolder, other_vocabulary: Vocabulary) -> None:
    other = another(folder, "other", other_vocabulary)
    for each in (folder, other):
        write(each, 3)
    message = refused(open_folders, f"{folder.path},{other.path}")
    for part in (str(folder.path), str(other.path), folder.vocabulary.fingerprint, other_vocabulary.fingerprint):
        assert part in message
    for checkpoints in ("a,b", "a,b,c"):
        message = refused(open_folders, str(folder.path), checkpoints)
        assert "--checkpoint_path" in message and f"names {len(checkpoints.split(','))}, --output_dir 1" in message
    assert "names 1, --output_dir 2" in refused(open_folders, f"{folder.path},{folder.path}", "a")
    assert "nowhere" in refused(open_folders, f"{folder.path},{folder.path.parent / 'nowhere'}")
    assert "model.ckpt-8" in refused(
        open_folders, f"{folder.path},{folder.path}", f"{folder.path}/model.ckpt-3,{folder.path}/model.ckpt-8"
    )
