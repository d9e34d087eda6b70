"""Finds and reads checkpoints: weights under the model's own variable names, without the optimizer's state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.errors import UserError

CHECKPOINT = "model.ckpt"
"""Start of each checkpoint's file name; "-" and the step follow."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint, without the optimizer's state."""

    weights: dict[str, np.ndarray]
    """float32 arrays by the names of the model's variables."""
    step: int
    """Number of optimizer steps taken."""
    vocabulary_fingerprint: str
    """Twelve hex digits that identify the vocabulary the model was trained with."""


def checkpoints_in(folder: Path) -> list[str]:
    """Returns the paths of the checkpoints in a folder, oldest first."""
    names = [path.name.removesuffix(".index") for path in folder.glob(f"{CHECKPOINT}-*.index")]
    numbered = [name for name in names if re.fullmatch(rf"{re.escape(CHECKPOINT)}-\d+", name)]
    return sorted((str(folder / name) for name in numbered), key=step_of)


def step_of(checkpoint: str) -> int:
    """Returns the step number at the end of a checkpoint's path."""
    return int(checkpoint.rpartition("-")[2])


def read_checkpoint(path: str) -> Checkpoint:
    """Reads the weights, step and vocabulary fingerprint of a checkpoint.

    Raises:
        UserError: the checkpoint is missing or damaged.
    """
    try:
        reader = _open(path)
        prefix, suffix = "weights/", _key("")
        keys = [key for key in reader.get_variable_to_shape_map() if key.startswith(prefix)]
        return Checkpoint(
            weights={_unescaped(key.removeprefix(prefix).removesuffix(suffix)): reader.get_tensor(key) for key in keys},
            step=int(reader.get_tensor(_key("step"))),
            vocabulary_fingerprint=reader.get_tensor(_key("vocabulary_fingerprint")).decode(),
        )
    except _read_errors() as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{path}: this checkpoint is missing or damaged ({reason}); use another one") from None


def read_value(path: str, name: str) -> Any:
    """Returns the value that a checkpoint stores under `name`, or None if it has none or cannot be read."""
    try:
        reader = _open(path)
        return reader.get_tensor(_key(name)) if reader.has_tensor(_key(name)) else None
    except _read_errors():
        return None


def assign_weights(model: Any, content: Checkpoint, checkpoint: str, hparams: str, cure: str) -> None:
    """Sets a model's variables to the weights of a checkpoint.

    Args:
        checkpoint: path of the checkpoint, for the error message.
        hparams: source of the model's hparams, for the error message.
        cure: what the user can do, for the error message.

    Raises:
        UserError: the checkpoint lacks a weight, has one that the model lacks, or has one of another shape.
    """
    unused = content.weights.keys() - {variable.path for variable in model.trainable_variables}
    if unused:
        raise UserError(f"{checkpoint}: the model of {hparams} has no weight {min(unused)}; {cure}")
    for variable in model.trainable_variables:
        value = content.weights.get(variable.path)
        if value is None or value.shape != tuple(variable.shape):
            shape = "none" if value is None else list(value.shape)
            raise UserError(
                f"{checkpoint}: weight {variable.path} has shape {shape}, the model of {hparams} needs "
                f"{list(variable.shape)}; {cure}"
            )
    for variable in model.trainable_variables:
        variable.assign(content.weights[variable.path])


def _open(path: str) -> Any:
    """Returns TensorFlow's reader of a checkpoint; imports TensorFlow, which takes seconds."""
    import tensorflow as tf

    return tf.train.load_checkpoint(path)


def _read_errors() -> tuple[type[Exception], ...]:
    """Returns the exceptions that TensorFlow raises for a checkpoint that is missing or damaged."""
    import tensorflow as tf

    return tf.errors.OpError, ValueError, RuntimeError, IndexError


def _key(name: str) -> str:
    """Returns the key under which tf.train.Checkpoint stores the variable `name`."""
    return f"{name}/.ATTRIBUTES/VARIABLE_VALUE"


def _unescaped(name: str) -> str:
    """Reverts the escapes of tf.train.Checkpoint, which writes "/" in a variable's name as ".S" and "." as ".."."""
    return re.sub(r"\.(.)", lambda match: "/" if match[1] == "S" else match[1], name)
