"""Tests that checkpoints are listed in the order of their steps, and that weights have the
variables' names.
"""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from models import write_checkpoint
from t2t_repro.checkpoints.checkpoint_files import keep_only
from t2t_repro.checkpoints.reader import checkpoints_in, key, read_checkpoint, read_value, step_of
from user_errors import user_error


def write(folder: Path, *names: str) -> str:
    """Writes a checkpoint of step 3, with weights of these names and the values 0, 1, 2, ...;
    returns its path.
    """
    return write_checkpoint(
        folder, 3, {name: tf.Variable(float(i)) for i, name in enumerate(names)}, "0123456789ab"
    )


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step in (100, 20, 3):
        (tmp_path / f"model.ckpt-{step}.index").touch()
    for name in (
        "model.ckpt-7_temp.index",
        "model.ckpt-best.index",
        "other.ckpt-9.index",
        "model.ckpt-8.data",
    ):
        (tmp_path / name).touch()
    assert [step_of(path) for path in checkpoints_in(tmp_path)] == [3, 20, 100]
    assert checkpoints_in(tmp_path / "missing") == []


def test_weights_have_the_names_of_their_variables(tmp_path: Path) -> None:
    names = ("a/b.c", "a.b/c", "a_b", "a.S/b", "über/ä")
    content = read_checkpoint(write(tmp_path, *names))
    assert [float(content.weights[name]) for name in names] == [0, 1, 2, 3, 4]
    assert content.vocabulary_fingerprint == "0123456789ab"


def test_a_checkpoint_is_missing_also_if_it_is_deleted_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "w")
    load = tf.train.load_checkpoint
    assert read_value(path, "step") == 3

    def load_and_delete(prefix: str) -> Any:
        reader = load(prefix)  # has read the index file, not the data file
        keep_only(tmp_path, [])
        return reader

    monkeypatch.setattr(tf.train, "load_checkpoint", load_and_delete)
    for _ in range(2):
        assert user_error(read_checkpoint, path).startswith(
            f"{path}: this checkpoint is missing; if a training run"
        )
    assert read_value(path, "step") is None


def test_a_checkpoint_of_another_program_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "model.ckpt-1")
    vocabulary = tf.constant("0123456789ab")
    for name, cure in (
        ("global_step", "import it with t2t-import"),
        (key("weights", "w"), "is not float32"),
    ):
        names = [name, key("vocabulary_fingerprint")]
        tf.raw_ops.SaveV2(
            prefix=path, tensor_names=names, shape_and_slices=["", ""], tensors=[1, vocabulary]
        )
        assert cure in user_error(read_checkpoint, path)
