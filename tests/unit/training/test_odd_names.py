"""Tests that a model folder with any legal name is resumed, averaged, opened and read."""

from __future__ import annotations

import shlex

from checkpoints import Training, numbers, same
from t2t_repro.checkpoints.averaging import average_checkpoints
from t2t_repro.checkpoints.checkpoint import Checkpoints, warm_start
from t2t_repro.checkpoints.model_folder import ModelFolder, open_folders
from t2t_repro.checkpoints.reader import read_checkpoint
from user_errors import user_error

NAMES = [" Größe 模型 [!a]*?, %s {x}\n\t'\"`$HOME#!;&|<> ", "[", "--flag=value", "~", "back\\slash\\ ", "x" * 255]


def test_a_folder_of_any_name_is_resumed_averaged_and_read(folder: ModelFolder) -> None:
    training = Training(folder).saved(1, 2)
    weights = {variable.path: variable.numpy() for variable in training.model.trainable_variables}
    path = folder.path
    for step, name in enumerate(NAMES, 3):
        path = path.rename(folder.path.with_name(name))
        renamed = ModelFolder(path)
        checkpoints = Checkpoints(renamed, training.model, training.optimizer.variables, keep=2)
        training.draw(step)
        assert checkpoints.restore() == step - 1, name
        assert same({variable.path: variable.numpy() for variable in training.model.trainable_variables}, weights)

        checkpoints.save(step)
        assert numbers(renamed) == [step - 1, step]
        average, _ = average_checkpoints(renamed, 2)
        [opened], [chosen] = open_folders(str(path))
        assert (opened.path, chosen) == (path, average)
        assert same(read_checkpoint(chosen).weights, weights)
        latest = f"{path}/model.ckpt-{step}"
        assert open_folders(str(path), latest)[1] == [latest]
        assert warm_start(training.model, renamed.vocabulary, str(path)) == average


def test_a_checkpoint_of_any_name_is_read(folder: ModelFolder) -> None:
    Training(folder).saved(2)
    last = "model.ckpt-2"
    for name in NAMES[:-1]:  # with ".index", the last name is too long
        for file in folder.path.iterdir():
            if file.name.startswith(f"{last}."):
                file.rename(folder.path / f"{name}{file.name.removeprefix(last)}")
        last = name
        assert read_checkpoint(folder.checkpoint(str(folder.path / name))).step == 2, name


def test_paths_in_advice_can_be_pasted_into_a_shell(folder: ModelFolder) -> None:
    path = folder.path.rename(folder.path.with_name("my $model"))
    assert f"--output_dir={shlex.quote(str(path))} " in user_error(ModelFolder(path).checkpoint)
